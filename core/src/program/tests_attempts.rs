//! `try` in programs, held to what CPython 3.11 and PyTorch 2.7.1 (two ranks, gloo) have printed:
//! `tries/*.txt` is what rank 0 of `tries/*.py` did.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use super::tests::compiled;
use super::{Options, compile};

#[test]
fn what_is_raised_is_caught_as_in_python() {
    let programs = [
        ("caught", include_str!("tries/caught.py"), include_str!("tries/caught.txt")),
        ("left", include_str!("tries/left.py"), include_str!("tries/left.txt")),
    ];
    for (name, text, expected) in programs {
        let options = Options { world_size: Some(2), ..Options::default() };
        let compiled = compile(name, text, &options).unwrap_or_else(|error| panic!("{error}"));
        assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
        let own = compiled.printed.iter().filter(|print| print.rank.0 == 0);
        let texts: Vec<&str> = own.map(|print| print.text.as_str()).collect();
        assert_eq!(texts.join("\n"), expected.trim_end(), "{name}");
    }
}

/// What nobody catches ends its rank in the line that raised it, after what is in `finally`.
#[test]
fn what_is_not_caught_ends_the_rank_where_it_was_raised() {
    let text = "import torch.distributed as dist\ndef main():\n    dist.init_process_group('gloo')\n    \
                try:\n        if dist.get_rank() == 1:\n            raise ValueError('odd')\n    except \
                KeyError:\n        print('no')\n    finally:\n        print('bye')\n        \
                dist.destroy_process_group()\nrun(main, world_size=2)\n";
    let compiled = compiled(text);
    let [(ranks, error)] = &compiled.raised[..] else { panic!("{:?}", compiled.raised) };
    assert_eq!((ranks.len(), error.line, error.message.as_str()), (1, 6, "ValueError: odd"));
    let printed: Vec<u32> = compiled.printed.iter().map(|print| print.rank.0).collect();
    assert_eq!(printed, [0, 1]);
    let stack: Vec<&str> = error.stack.iter().map(|(name, _)| name.as_str()).collect();
    assert!(!stack.contains(&"_attempt"), "{stack:?}");
}

/// What is no exception of Python's is no handler's: a program that cannot be followed, a process that
/// has ended.
#[test]
fn nothing_else_is_caught() {
    let around = |line: &str| {
        format!(
            "import os, torch\nimport numpy as np\nimport torch.distributed as dist\ndef main():\n    \
             dist.init_process_group('gloo')\n    try:\n        {line}\n    except BaseException:\n        \
             print('caught')\nrun(main, world_size=2)\n"
        )
    };
    for line in ["np.zeros(3)", "x = torch.frobnicate(3)", "for i in range(2000000000): pass"] {
        let refused = compile("train.py", &around(line), &Options::default());
        assert_eq!(refused.map_err(|error| error.line).err(), Some(7), "{line}");
    }
    for line in ["die('gone')", "os._exit(3)", "os._exit(0)"] {
        assert!(compiled(&around(line)).printed.is_empty(), "{line}");
    }
}

/// A module that comes with neither Python nor PyTorch is not there, which is told; one that does is not
/// said to be missing.
#[test]
fn imports_are_tried() {
    let text = "try:\n    import wandb\nexcept ImportError:\n    wandb = None\ntry:\n    import \
                functools\nexcept ImportError:\n    print('no functools')\nimport torch.distributed as \
                dist\ndef main():\n    dist.init_process_group('gloo')\n    print(wandb)\nrun(main, \
                world_size=2)\n";
    let compiled = compiled(text);
    let texts: Vec<&str> = compiled.printed.iter().map(|print| print.text.as_str()).collect();
    assert_eq!(texts, ["None", "None"]);
    let [(2, told)] = &compiled.assumed[..] else { panic!("{:?}", compiled.assumed) };
    assert!(told.contains("ImportError"), "{told}");
}
