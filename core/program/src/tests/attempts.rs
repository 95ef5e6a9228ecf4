//! `try` in programs, compared with the prints of CPython 3.11 and PyTorch 2.7.1 (two ranks, gloo):
//! `tries/*.txt` is the output of rank 0 of `tries/*.py`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use crate::tests::compiled;
use lockstep_scenarios::program::Options;

/// A string inside of a `try` is printed unchanged.
#[test]
fn a_string_in_a_try_is_not_rewritten() {
    let text = "import torch.distributed as dist\ndef main():\n    dist.init_process_group('gloo')\n    try:\n        \
                print('was_imported(yes)')\n        said = 'x = _imported(no)'\n    except ImportError:\n        \
                pass\n    print(said)\nrun(main, world_size=1)\n";
    let compiled = compiled(text);
    let printed: Vec<&str> = compiled.printed.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(printed, ["was_imported(yes)", "x = _imported(no)"]);
}

#[test]
fn what_is_raised_is_caught_as_in_python() {
    let programs = [
        ("caught", include_str!("tries/caught.py"), include_str!("tries/caught.txt")),
        ("left", include_str!("tries/left.py"), include_str!("tries/left.txt")),
        ("given", include_str!("tries/given.py"), include_str!("tries/given.txt")),
        ("taken", include_str!("tries/taken.py"), include_str!("tries/taken.txt")),
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

/// An exception that nothing catches ends its rank in the line that raised it, after the `finally` blocks.
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

/// An error that is no exception of Python's is no handler's: a program that cannot be followed, a
/// process that has ended.
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

/// A program that would take more time or memory than it may ends at once: a list that is put into
/// itself, products of many rows, classes with many ways to one above them.
#[test]
fn what_grows_is_bounded() {
    let start = "import torch.nn as nn, itertools\nimport torch.distributed as dist\n";
    let main = |body: &str| {
        format!(
            "{start}def main():\n    dist.init_process_group('gloo')\n{body}run(main, world_size=2)\n"
        )
    };
    // As in PyTorch: a module that holds itself is gone through once.
    let lists = "    l = nn.ModuleList()\n    for i in range(64):\n        l.append(l)\n    \
                 print(len(list(l.modules())), len(list(l.parameters())))\n";
    let printed = compile("train.py", &main(lists), &Options::default()).unwrap().printed;
    assert_eq!(printed[0].text, "1 0");
    for call in ["[0], repeat=60000000", "[0, 1], repeat=64", "range(1001), range(1001)"] {
        let text = main(&format!("    x = itertools.product({call})\n"));
        let why = compile("train.py", &text, &Options::default()).unwrap_err();
        assert!(why.message.contains("entries of a product"), "{why}");
    }
    let mut classes = String::from("    class A(ValueError):\n        pass\n");
    let mut above = "A".to_owned();
    for level in 0..24 {
        let names: Vec<String> = (0..4).map(|nth| format!("C{level}_{nth}")).collect();
        for name in &names {
            classes += &format!("    class {name}({above}):\n        pass\n");
        }
        above = names.join(", ");
    }
    let raises =
        "    try:\n        raise C23_0('x')\n    except ValueError as e:\n        print(e)\n";
    let compiled = compiled(&main(&(classes + raises)));
    assert_eq!(compiled.printed[0].text, "x");
}

/// As CPython refuses it.
#[test]
fn classes_have_an_order() {
    let text = "import torch.distributed as dist\nclass A:\n    pass\nclass B(A):\n    pass\nclass \
                C(A, B):\n    pass\ndef main():\n    dist.init_process_group('gloo')\nrun(main, \
                world_size=2)\n";
    let why = compile("train.py", text, &Options::default()).unwrap_err();
    assert!(
        why.message.contains("consistent method resolution order (MRO) for bases A, B"),
        "{why}"
    );
}

/// Only the number that `os.getpid()` gave is the process itself.
#[test]
fn another_process_is_not_killed() {
    let text = |pid: &str| {
        format!(
            "import os, signal\nimport torch.distributed as dist\ndef main():\n    \
             dist.init_process_group('gloo')\n    os.kill({pid}, signal.SIGKILL)\nrun(main, \
             world_size=2)\n"
        )
    };
    assert!(compile("train.py", &text("os.getpid()"), &Options::default()).is_ok());
    for pid in ["os.getpid() + 1", "os.cpu_count()", "12345"] {
        let why = compile("train.py", &text(pid), &Options::default()).unwrap_err();
        assert!(why.message.contains("write os.getpid()"), "{pid}: {why}");
    }
}

/// A module that comes with neither Python nor PyTorch is missing, which is reported; one that does is not
/// said to be missing.
#[test]
fn imports_are_tried() {
    let text = "try:\n    import wandb\nexcept ImportError:\n    wandb = None\ntry:\n    import \
                functools\n    import hashlib, \
                heapq, ctypes, inspect\nexcept ImportError:\n    print('no functools')\nimport torch.distributed as \
                dist\ndef main():\n    dist.init_process_group('gloo')\n    print(wandb)\nrun(main, \
                world_size=2)\n";
    let compiled = compiled(text);
    let texts: Vec<&str> = compiled.printed.iter().map(|print| print.text.as_str()).collect();
    assert_eq!(texts, ["None", "None"]);
    let [(2, told)] = &compiled.assumed[..] else { panic!("{:?}", compiled.assumed) };
    assert!(told.contains("ImportError"), "{told}");
}
