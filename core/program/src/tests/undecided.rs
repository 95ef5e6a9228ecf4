//! Values that are known only when a program runs decide nothing in silence.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_scenarios::program::{Limits, Options};

/// Rank 0 of three receives from any source, once at once and once in the background; then this is the
/// condition of an `if`, in line 8.
fn asked(condition: &str) -> Result<Vec<String>, String> {
    let text = format!(
        "def main():\n    dist.init_process_group(\"gloo\")\n    x = torch.zeros(4)\n    \
         r = dist.get_rank()\n    if r == 0:\n        src = dist.recv(x)\n        \
         w = dist.irecv(x)\n        if {condition}:\n            print(\"yes\"); compute(\"a\", us = 1)\n        else:\n            \
         print(\"no\"); compute(\"b\", us = 1)\n        dist.recv(x)\n    else:\n        dist.send(x, dst = 0)\n        \
         dist.send(x, dst = 0)\n    dist.barrier()\nrun(main, world_size = 3)\n"
    );
    let options = Options { limits: Limits::default(), ..Options::default() };
    match compile("asked.py", &text, &options) {
        Ok(compiled) => Ok(compiled.printed.into_iter().map(|print| print.text).collect()),
        Err(error) => Err(error.message),
    }
}

#[test]
fn whom_a_tensor_came_from_is_not_compared() {
    let conditions = [
        "src == 1",
        "1 == src",
        "src != 1",
        "r == src",
        "src in [1, 2]",
        "src not in (1, 3)",
        "src is None",
        "1 < src",
        "src - 1 == 0",
        "[src] == [1]",
        "(1, src) == (1, 1)",
        "not src",
        "[1, 2].index(src) == 0",
        "[1, 1].count(src) == 1",
        "{1: 5}.get(src) == 5",
        "bool(src)",
        "1 if src == 1 else 0",
        "[x for x in [1] if x == src]",
        "0 <= src == 1",
    ];
    for condition in conditions {
        let refused = asked(condition).unwrap_err();
        assert!(
            refused.contains("Name the source: dist.recv(tensor, src)"),
            "{condition}: {refused}"
        );
    }
    for text in ["str(src) == \"1\"", "f\"{src}\" == \"1\"", "\"%d\" % src in [\"1\"]"] {
        let refused = asked(text).unwrap_err();
        assert!(refused.contains("something in this text"), "{text}: {refused}");
    }
    assert_eq!(asked("isinstance(src, int)"), Ok(vec!["yes".to_owned()]));
}

#[test]
fn whether_a_work_has_completed_is_not_compared() {
    for condition in ["w.is_completed()", "w.is_completed() == True", "w.is_completed() is False"] {
        let refused = asked(condition).unwrap_err();
        assert!(refused.starts_with("is_completed() before wait()"), "{condition}: {refused}");
    }
}

#[test]
fn what_a_tensor_holds_is_not_compared() {
    let conditions = [
        "x[0] == 1",
        "1 == x[0]",
        "x == 1",
        "x != 0",
        "x[0] > 1",
        "x[0] in [1, 2]",
        "x[0].item() == 1",
        "int(x[0]) == 1",
        "float(x[0]) > 1",
        "x[0]",
        "not x[0]",
        "bool(x[0])",
    ];
    for condition in conditions {
        let refused = asked(condition).unwrap_err();
        assert!(refused.starts_with("a tensor's values are not known"), "{condition}: {refused}");
    }
}

#[test]
fn what_is_known_is_compared_as_python_does() {
    let yes = [
        "x is not None",
        "x != None",
        "x.shape == (4,)",
        "(4,) == x.shape",
        "x.dtype == torch.float32",
        "x.dtype in (torch.float16, torch.float32)",
        "x.numel() == 4 and len(x) == 4",
        "r in [0, 1]",
        "r not in (1, 2)",
        "\"a\" in \"cat\"",
        "\"b\" in {\"b\": 1}",
        "[1, [2]] == [1, [2]]",
        "b\"x\" == b\"x\"",
        "1 == 1.0",
        "not r != 0",
        "[i for i in [1, 2] if i != 1 if i in (2, 3)] == [2]",
        "(lambda a, b = 1 == 1: a == b)(True)",
        "{k: k == 1 for k in [1]} == {1: True}",
        "r is 0",
        "0 <= r == 0",
        "None is None",
        "\"==\" == '=='",
        "r == 0 if True else r == 1",
        "{1, 2} == {2, 1}",
        "1 << 2 == 4",
        "r ==\\\n            0",
    ];
    for condition in yes {
        assert_eq!(asked(condition), Ok(vec!["yes".to_owned()]), "{condition}");
    }
    for condition in
        ["r == 1", "x is None", "x.shape != (4,)", "r in (1,)", "1 == \"1\"", "b\"x\" == \"x\""]
    {
        assert_eq!(asked(condition), Ok(vec!["no".to_owned()]), "{condition}");
    }
}

/// A group of two has one rank that can send.
#[test]
fn of_two_ranks_the_sender_is_the_other() {
    let text = "def main():\n    dist.init_process_group(\"gloo\")\n    x = torch.zeros(4)\n    \
                pair = dist.new_group([1, 2])\n    if dist.get_rank() == 2:\n        \
                print(dist.recv(x, group = pair) == 1)\n    elif dist.get_rank() == 1:\n        \
                dist.send(x, dst = 2, group = pair)\nrun(main, world_size = 3)\n";
    let compiled = compile("pair.py", text, &Options::default()).unwrap();
    let printed: Vec<_> = compiled.printed.iter().map(|print| print.text.as_str()).collect();
    assert_eq!(printed, ["True"]);
}
