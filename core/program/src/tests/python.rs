//! The parts of Python that programs have besides Starlark, held against CPython 3.11.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};

fn executed(text: &str) -> Result<Compiled, ProgramError> {
    compile("train.py", text, &Options::default())
}

/// The output of a program on one rank.
fn printed(body: &str) -> Vec<String> {
    let text = format!(
        "import math\n\ndef main():\n    dist.init_process_group('gloo')\n{body}\nrun(main, \
         world_size = 1)\n"
    );
    let compiled = executed(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    compiled.printed.into_iter().map(|print| print.text).collect()
}

/// Every expression of `python.txt`, and CPython 3.11's print of it.
#[test]
fn expressions_are_pythons() {
    let cases: Vec<(&str, &str)> = include_str!("expressions.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(" ⇒ "))
        .collect();
    assert!(cases.len() > 60, "{}", cases.len());
    let body: String =
        cases.iter().map(|(expression, _)| format!("    print({expression})\n")).collect();
    for ((expression, expected), text) in cases.iter().zip(printed(&body)) {
        assert_eq!(text, *expected, "{expression}");
    }
}

#[test]
fn shifts_in_place_are_pythons() {
    assert_eq!(printed("    x = 1\n    x <<= 31\n    print(x, x >> 30)\n"), ["2147483648 2"]);
}

/// Statements as training scripts have them.
#[test]
fn statements_are_pythons() {
    let body = r#"
    entries = [3, 1, 2]
    entries.sort(key = lambda entry: -entry)
    print(entries)
    entries.reverse()
    same = entries.copy()
    same.append(4)
    print(entries, same)
    seen = set()
    for step in [2, 0, 2]:
        seen.add(step)
    print(len(seen), 2 in seen, sorted(seen))
    width: int = 6
    def padded(text: str, width: int = 3, *rest, fill: str = ".") -> str:
        return text.ljust(width, fill)
    print(padded("a", width), padded("b"))
    for step in range(0, 6):
        if 0 < step <= 2:
            print(f"step {step:02d} loss {1 / (step + 1):.4f} {2 ** step} {'%d' % step} {[x for x in range(step)]}")
    state = {"step": 0}
    def advance():
        state["step"] += 1
    advance()
    print(state, "one "
          "text")
    assert 0 <= len(entries) < 4, "never"
    first = second = [1]
    second.append(2)
    print(first, first == second)
    print(torch.zeros(3, 2)[-1], torch.zeros(3)[0])
    width_of = 8
    print(f"{'x':>{width_of}}|{width_of=}")
"#;
    assert_eq!(
        printed(body),
        [
            "[3, 2, 1]",
            "[1, 2, 3] [1, 2, 3, 4]",
            "2 True [0, 2]",
            "a..... b..",
            "step 01 loss 0.5000 2 1 [0]",
            "step 02 loss 0.3333 4 2 [0, 1]",
            "{'step': 1} one text",
            "[1, 2] True",
            "tensor([0., 0.]) tensor(0.)",
            "       x|width_of=8",
        ]
    );
}

/// An exception of Python ends the rank that raises it, and no other.
#[test]
fn exceptions_of_the_language_end_their_rank() {
    for (statement, raised) in [
        ("{'a': 1}['b']", "KeyError: 'b'"),
        ("[1][dist.get_rank() + 2]", "IndexError: list index out of range"),
        ("1 / (dist.get_rank() - 1)", "ZeroDivisionError: division by zero"),
        ("7 % (dist.get_rank() - 1)", "ZeroDivisionError: integer division or modulo by zero"),
        ("'%d' % 'x'", "TypeError: %d format: a real number is required, not str"),
        ("one, two = [1, 2, 3]", "ValueError: too many values to unpack (expected 2)"),
        ("[1].remove(2)", "ValueError: list.remove(x): x not in list"),
        ("None.rank", "AttributeError: 'NoneType' object has no attribute 'rank'"),
        ("if True: raise KeyError('k')", "KeyError: 'k'"),
        ("if True: assert 1 > 2, 'no'", "AssertionError: no"),
        ("float('x')", "ValueError: could not convert string to float: 'x'"),
        (
            "'{} {}'.format(1)",
            "IndexError: Replacement index 1 out of range for positional args tuple",
        ),
        ("f'{1.5:d}'", "ValueError: Unknown format code 'd' for object of type 'float'"),
    ] {
        let text = format!(
            "def main():\n    dist.init_process_group('gloo')\n    if dist.get_rank() == 1:\n        \
             {statement}\n    dist.barrier()\n\nrun(main, world_size = 2)\n"
        );
        let compiled = executed(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let [(ranks, error)] = &compiled.raised[..] else { panic!("{:?}", compiled.raised) };
        assert_eq!((ranks[0].0, error.message.as_str()), (1, raised));
    }
}

/// A script that starts its processes itself.
#[test]
fn spawn_starts_the_ranks() {
    let text = r#"
import torch.multiprocessing as mp
import torch.distributed as dist

def worker(rank: int, world_size: int, lr: float):
    dist.init_process_group("gloo", rank = rank, world_size = world_size)
    dist.all_reduce(torch.ones(2))
    print(rank, world_size, lr)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(worker, args = (3, 0.1), nprocs = 3, join = True)
"#;
    let compiled = executed(text).unwrap();
    let texts: Vec<&str> = compiled.printed.iter().map(|print| print.text.as_str()).collect();
    assert_eq!(texts, ["0 3 0.1", "1 3 0.1", "2 3 0.1"]);
}

/// A missing feature is refused with its line, and with a replacement.
#[test]
fn what_is_not_there_says_what_to_write() {
    for (line, help) in [
        ("    nonlocal state", "Keep it in a dict"),
        ("    del state.x", "d.pop(key)"),
        ("    x = np.zeros(3)", "no numpy"),
        ("    y = torch.ones(2).erf()", "lists the methods that tensors have"),
        ("    torch.ones(2).exp_()", "lists the methods that tensors have"),
    ] {
        let text = format!(
            "def main():\n    dist.init_process_group('gloo')\n{line}\n\nrun(main, world_size = 1)\n"
        );
        let error = executed(&text).unwrap_err();
        assert_eq!(error.line, 3, "{line}: {error}");
        let said = error.help.unwrap_or_default();
        assert!(said.contains(help), "{line}: {said}");
    }
}

/// A missing import has no effect until something is done with it.
#[test]
fn what_is_imported_and_not_there_is_refused_where_it_is_used() {
    let head = "import numpy as np, tempfile, argparse\nfrom random import Random\n\
                import torchvision\nimport torchvision.transforms as transforms\n\
                from torch.utils.data import IterableDataset as Loader\n\
                from contextlib import nullcontext\nfrom functools import partial\n\
                from torch.nn.utils import clip_grad_norm_\n";
    let body = "def unused():\n    return np.zeros(3)\n\ndef main():\n    \
                dist.init_process_group('gloo')\n    with nullcontext():\n        \
                dist.barrier()\n    assert np is not None\n    partial(print, 1)(2)\n";
    let run = "\nrun(main, world_size = 1)\n";
    let compiled = executed(&format!("{head}{body}{run}")).unwrap();
    assert_eq!(compiled.printed[0].text, "1 2");
    for (line, said, help) in [
        ("x = 1 + np.pi", "numpy.pi is not known here (line 1 imports it)", "no numpy"),
        ("Random(3)", "random.Random is not known here (line 2", "Random numbers"),
        ("if np.flag: dist.barrier()\n    dist.barrier()", "numpy.flag is not known", "no numpy"),
        ("print(f'{np.pi}')", "numpy.pi is not known", "no numpy"),
        (
            "for x in Loader([1]): print(x)",
            "torch.utils.data.IterableDataset is not",
            "the batches",
        ),
    ] {
        let error = executed(&format!("{head}{body}    {line}\n{run}")).unwrap_err();
        assert!(error.message.starts_with(said), "{line}: {error}");
        assert!(error.line >= 18 && error.column > 4, "{line}: {error}");
        assert!(error.help.as_deref().is_some_and(|own| own.contains(help)), "{line}: {error:?}");
    }
}

/// Prints know which operations come before them.
#[test]
fn prints_come_after_operations() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    print("before")
    dist.barrier()
    print("between")
    dist.all_reduce(torch.ones(1))
    print("after")

run(main, world_size = 2)
"#;
    let compiled = executed(text).unwrap();
    let after: Vec<u32> = compiled.printed.iter().take(3).map(|print| print.after).collect();
    assert_eq!(after, [0, 1, 2]);
    assert!(compiled.printed[1].is_reached(&[1, 0]) && !compiled.printed[2].is_reached(&[1, 0]));
}
