//! Ordinary scripts, held to the output of CPython 3.11 and PyTorch 2.7.1 (two ranks, gloo):
//! `ordinary/*.txt` is the output and the log of rank 0 of `ordinary/*.py`.

#![allow(clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_scenarios::program::Options;

/// A program, and the prints of rank 0.
macro_rules! held {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!("ordinary/", $name, ".py")),
            include_str!(concat!("ordinary/", $name, ".txt")),
        )),*]
    };
}

#[test]
fn ordinary_scripts_print_what_they_print() {
    let programs = held![
        "values",
        "data",
        "models",
        "calls",
        "logs",
        "handlers",
        "trainer",
        "own",
        "loops",
        "containers",
        "iterators",
        "rows",
        "sampled",
        "compared",
        "methods",
        "numbers",
        "shown",
        "groups",
        "language_model",
        "image_net",
    ];
    for (name, text, expected) in programs {
        let options = Options { world_size: Some(2), ..Options::default() };
        let compiled =
            compile(name, text, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(compiled.raised.is_empty(), "{name}: {:?}", compiled.raised);
        let own = compiled.printed.iter().filter(|print| print.rank.0 == 0);
        let texts: Vec<&str> = own.map(|print| print.text.as_str()).collect();
        assert_eq!(texts.join("\n"), expected.trim_end(), "{name}");
    }
}

/// Rows that cannot be made into a batch, and functions that change batches, are refused.
#[test]
fn what_a_loader_cannot_follow_is_refused() {
    let of = |row: &str, told: &str| {
        let text = format!(
            "import torch\nfrom torch.utils.data import Dataset, DataLoader\nimport torch.distributed as \
             dist\nclass Own(Dataset):\n    def __len__(self):\n        return 4\n    def \
             __getitem__(self, i):\n        return {row}\ndist.init_process_group('gloo')\nfor batch in \
             DataLoader(Own(), batch_size=2{told}):\n    dist.barrier()\n"
        );
        let options = Options { world_size: Some(2), ..Options::default() };
        compile("train.py", &text, &options).map_err(|error| error.message)
    };
    assert!(of("torch.zeros(3), i", ", num_workers=2, prefetch_factor=2").is_ok());
    for (row, told, about) in
        [("'text', i", "", "a row of a data set"), ("i", ", batch_sampler=[[0]]", "batch_sampler")]
    {
        let refused = of(row, told);
        assert!(refused.as_ref().is_err_and(|why| why.contains(about)), "{refused:?}");
    }
}

/// Unknown values may be in code that is never reached, and are refused where they are used.
#[test]
fn what_is_not_known_matters_where_it_is_used() {
    let of = |body: &str| {
        let text = format!(
            "import torch.distributed as dist\nimport wandb\nclass Key:\n    def __eq__(self, other):\n        \
             return True\ndef plot(x):\n    wandb.log(x)\n    return nothing_has_it + x\n\
             dist.init_process_group('gloo')\n{body}\n"
        );
        let options = Options { world_size: Some(2), ..Options::default() };
        compile("train.py", &text, &options).map_err(|error| error.message)
    };
    assert!(of("dist.barrier()").is_ok());
    for (body, about) in [
        ("print(nothing_has_it)", "Variable `nothing_has_it` not found"),
        ("plot(1)", "wandb.log is not known here"),
        ("if 1 > 2:\n    pass\nelif (n := 1):\n    pass", "may not be reached"),
        ("x = {Key(): 1}", ""),
        ("for x in iter([1]):\n    pass\nelse:\n    raise ValueError('else')", ""),
    ] {
        let refused = of(body);
        match about {
            "" => assert!(refused.is_ok_and(|made| made.raised.len() == 1), "{body}"),
            about => assert!(refused.as_ref().is_err_and(|why| why.contains(about)), "{refused:?}"),
        }
    }
}
