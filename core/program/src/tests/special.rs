//! Python's implicit calls on a program's own objects: the refused ones, and those at which a rank ends. The
//! calls that are followed are in `ordinary/own.py`.

#![allow(clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_scenarios::program::Options;

const CLASSES: &str = "import sys\nimport torch.distributed as dist\nclass Own:\n    def __init__(self, says):\n\
    \x20       self.says = says\n    def __enter__(self):\n        return self\n    def __exit__(self, kind, \
    error, trace):\n        print(kind.__name__ if kind else None)\n        return self.says\n    def \
    __len__(self):\n        return 0\ndist.init_process_group('gloo')\n";

/// The first line after those classes.
const FIRST: u32 = 14;

fn of(
    text: &str,
) -> Result<lockstep_scenarios::program::Compiled, lockstep_scenarios::program::ProgramError> {
    let options = Options { world_size: Some(2), ..Options::default() };
    compile("train.py", &format!("{CLASSES}{text}"), &options)
}

#[test]
fn what_an_exit_swallows_is_refused() {
    for text in [
        "with Own(True):\n    raise ValueError('x')\n",
        "try:\n    with Own(1):\n        raise ValueError('x')\nexcept BaseException:\n    print('no')\n",
    ] {
        let refused = of(text).map_err(|error| error.message);
        assert!(refused.as_ref().is_err_and(|why| why.contains("swallows")), "{refused:?}");
    }
}

#[test]
fn an_exit_is_called_where_nobody_catches() {
    for (text, raised, printed) in [
        ("with Own(False):\n    raise ValueError('x')\n", Some("ValueError: x"), "ValueError"),
        ("with Own(None):\n    sys.exit(3)\n", Some("SystemExit: 3"), "SystemExit"),
        ("with Own(False):\n    sys.exit(0)\n", None, "SystemExit"),
    ] {
        let compiled = of(text).unwrap_or_else(|error| panic!("{error}"));
        let told = compiled.raised.iter().map(|(_, error)| (error.line, error.message.as_str()));
        assert_eq!(told.collect::<Vec<_>>(), Vec::from_iter(raised.map(|text| (FIRST + 1, text))));
        let texts: Vec<&str> = compiled.printed.iter().map(|print| print.text.as_str()).collect();
        assert_eq!(texts, [printed, printed]);
    }
}

#[test]
fn objects_that_are_not_asked_decide_nothing() {
    for text in ["x = Own(1) or 2\nprint(x)\n", "if Own(1):\n    dist.barrier()\n"] {
        let refused = of(text).map_err(|error| error.message);
        assert!(refused.as_ref().is_err_and(|why| why.contains("__len__")), "{refused:?}");
    }
    let empty = "own = Own(1)\nif own:\n    print('full')\n";
    assert!(of(empty).is_ok_and(|compiled| compiled.printed.is_empty()));
    let any = of("own = Own(1)\nprint(any([own]))\n").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(any.printed.first().map(|print| print.text.as_str()), Some("False"));
}

#[test]
fn what_leaves_a_with_block_through_a_finally_is_refused() {
    let text = "def f():\n    with Own(0):\n        try:\n            return 1\n        finally:\n            \
                print('f')\nf()\n";
    let refused = of(text).map_err(|error| error.line);
    assert_eq!(refused.err(), Some(FIRST + 3));
    let within = text.replace("with Own(0)", "if True");
    assert!(of(&within).is_ok());
}
