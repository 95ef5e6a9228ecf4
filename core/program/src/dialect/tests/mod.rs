//! Python in, Starlark out, with lines that still point at the original.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod try_statement;

use super::rewrite;
use proptest::prelude::*;

fn rewritten(text: &str) -> String {
    rewrite(text).unwrap().text
}

#[test]
fn what_is_starlark_stays_as_it_is() {
    let text =
        "def f(a, b = 1):\n    # a comment: it's\n    return [a,\n            b]\n\nf(\"is x\")\n";
    assert_eq!(
        rewritten(text),
        "def f(a, b = 1):\n\n    return [a,\n            b]\n\nf(\"is x\")\n"
    );
}

#[test]
fn comparisons_are_calls() {
    let pairs = [
        ("if a == 1:\n    f()\n", "if _same(a, 1):\n    f()\n"),
        ("x = not a.b(c)[1] != -d + e\n", "x = not not _same(a.b(c)[1], -d + e)\n"),
        ("f(k=a is None, l=b is not c)\n", "f(k=_is(a, None), l=not _is(b, c))\n"),
        (
            "f(a == g(b != c) and d not in e)\n",
            "f(_same(a, g(not _same(b, c))) and not _among(d, e))\n",
        ),
        ("for a in b: f()\n", "for a in _through(b): f()\n"),
        (
            "[a for a, b in c if a in d for e in f == g]\n",
            "[a for a, b in _through(c) if _among(a, d) for e in _same(f, g)]\n",
        ),
        ("a = b <= c\n", "a = _given_at_most(b, c)\n"),
        ("a = b <= c or d\n", "a = b <= c or d\n"),
        ("print(a > 2, b)\n", "print(_greater(a, 2), b)\n"),
        ("f(a > 2, b)\n", "f(a > 2, b)\n"),
        ("a = b if c == d else e == f  # ==\n", "a = b if _same(c, d) else _same(e, f)  # ==\n"),
        ("f(\"a == b\", a.is_in, d[a == b : c])\n", "f(\"a == b\", a.is_in, d[_same(a, b) : c])\n"),
    ];
    for (text, expected) in pairs {
        assert_eq!(rewritten(text), expected);
    }
}

#[test]
fn a_column_is_the_originals() {
    let column = |text: &str, of: &str| {
        let rewritten = rewrite(text).unwrap();
        let line = rewritten.text.lines().next().unwrap();
        let at = line.find(of).unwrap_or_else(|| panic!("{line}"));
        rewritten.column(0, line[..at].chars().count())
    };
    assert_eq!(column("if a.b() == c:\n    f()\n", "a.b"), 3);
    assert_eq!(column("if a.b() == c:\n    f()\n", "_same"), 3);
    assert_eq!(column("x = ä and a == c in d or c != 1\n", "c,"), 25);
    assert_eq!(column("x = f(1)\n", "f"), 4);
}

#[test]
fn a_while_is_a_bounded_for() {
    let text = "i = 0\nwhile i < 3 and not done(i):\n  i += 1\nafter()\n";
    assert_eq!(
        rewritten(text),
        "i = 0\nfor _ in range(2147483647):\n  if not (i < 3 and not done(i)): break\n  i = \
         _in_place(\"+\", i, (1))\nafter()\n"
    );
    assert_eq!(rewrite(text).unwrap().origin, [0, 1, 1, 2, 3]);
}

#[test]
fn a_with_enters_and_exits() {
    let text =
        "def main():\n    with a(), b(1, 2) as c:\n        go(c)\n        more()\n    after()\n";
    assert_eq!(
        rewritten(text),
        "def main():\n    _enter(a())\n    c = _enter(b(1, 2))\n    if True:\n        go(c)\n        \
         more()\n    _exit()\n    _exit()\n    after()\n"
    );
    assert_eq!(rewrite(text).unwrap().origin, [0, 1, 1, 1, 2, 3, 1, 1, 4]);
    let leaves = "def f():\n    with a():\n        return 1\n";
    let left = "def f():\n    _enter(a())\n    if True:\n        _left = 1\n        _exit()\n        return \
                _left\n    _exit()\n";
    assert_eq!(rewritten(leaves), left);
    let inside = "with a():\n    for i in x:\n        break\n";
    assert!(rewrite(inside).is_ok());
}

#[test]
fn imports_name_what_is_there() {
    let text = "import torch\nimport torch.distributed as dist\nimport numpy as np\n\
                from torch.nn.parallel import DistributedDataParallel as DDP\n\
                from torch.distributed import (\n    get_rank as rank,\n    barrier,\n)\n";
    assert_eq!(
        rewritten(text),
        "\n\nnp = _imported(None, \"\", \"numpy\")\n\nrank = _imported(torch.distributed, \"get_rank\", \
         \"torch.distributed.get_rank\"); barrier = _imported(torch.distributed, \"barrier\", \
         \"torch.distributed.barrier\")\n\n\n\n"
    );
    let text =
        "from torch.utils.data import DataLoader as Loader\nimport tempfile, os\nimport a.b\n";
    assert_eq!(
        rewritten(text),
        "Loader = _imported(torch, \"utils.data.DataLoader\", \"torch.utils.data.DataLoader\")\n\
         \na = _imported(None, \"\", \"a\")\n"
    );
}

#[test]
fn is_raise_assert_and_f_strings() {
    let text = "if x is not None and y is None:\n    raise ValueError(f\"no {x.y!r} of {n + 1:>3}\")\n\
                assert a == b, \"why\"  # said\n";
    assert_eq!(
        rewritten(text),
        "if not _is(x, None) and _is(y, None):\n    _raise(ValueError(_fstring(\"no \", (x.y, \"!r\"), \" of \", \
         (n + 1, \">3\"), )))\n_assert(_same(a, b), \"why\")\n"
    );
    assert_eq!(rewritten("f'{{x}} {a[1]=}'\n"), "_fstring('{x} ', \"a[1]=\", (a[1], \"!r\"), )\n");
}

#[test]
fn decorators_are_called_behind_their_functions() {
    let text =
        "@a.b()\n@c\ndef f(x):\n    return x\n\ndef g():\n    @c\n    def h(): pass\n    h()\n";
    let written = rewrite(text).unwrap();
    assert_eq!(
        written.text,
        "\n\ndef f(x):\n    return x\n\nf = _decorated(c, f)\nf = _decorated(a.b(), f)\ndef g():\n\n    \
         def h(): pass\n    h = _decorated(c, h)\n    h()\n"
    );
    assert_eq!(written.origin, [0, 1, 2, 3, 4, 1, 0, 5, 6, 7, 6, 8]);
}

#[test]
fn what_has_no_counterpart_is_refused_where_it_stands() {
    for (text, line) in [
        ("x = 1\nclass A:\n    x.y()\n", 2),
        ("try:\n    x()\n", 1),
        ("x = \"open\n", 1),
        ("x = (1,\n\n", 1),
        ("x = 1)\n", 1),
        ("\n\n\tx = 1\n", 3),
        ("with a(): b()\n", 1),
    ] {
        assert_eq!(rewrite(text).unwrap_err().line, line, "{text}");
    }
}

#[test]
fn nesting_is_bounded() {
    for deep in [
        format!("x = {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("x = 1{}", "+1".repeat(100_000)),
        format!("x = {}1", "not ".repeat(100_000)),
        format!("x = a{}", ".b".repeat(100_000)),
        (0..100).map(|n| format!("{:n$}if True:\n", "")).collect::<String>(),
    ] {
        assert!(rewrite(&deep).is_err());
    }
    let flat = format!("x = [{}]\n", "1 + 1,\n".repeat(10_000));
    assert!(rewrite(&flat).is_ok());
}

proptest! {
    /// Whatever the text is, there is an origin for every line, and it is a line of the text.
    #[test]
    fn every_line_has_an_origin(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("with a:\n"), Just("while b:\n"), Just(" c\n"), Just("  d(\n"), Just("f'{x}'\n"),
                Just("\"\"\"\n"), Just("import a\n"), Just(" import b as c\n"), Just("raise x\n"),
                Just("("), Just(")"), Just("'"), Just("#"), Just("\\\n"), Just("\u{e9}"), Just("f\"{"),
                Just(" is not "), Just(":"), Just(","), Just("\n"), Just("assert b"), Just("else:\n"),
            ],
            0..24,
        )
    ) {
        let text = parts.concat();
        if let Ok(out) = rewrite(&text) {
            prop_assert_eq!(out.text.lines().count(), out.origin.len());
            let lines = text.lines().count() as u32;
            prop_assert!(out.origin.iter().all(|line| *line < lines.max(1)));
            prop_assert!(out.origin.windows(2).all(|pair| pair[0] <= pair[1] + 64));
        }
    }
}

/// An index of several names is a tuple; lists, calls and parts of tensors are left alone.
#[test]
fn an_index_of_several_is_a_tuple() {
    for (from, to) in [
        ("m[\"a\", \"b\"]\n", "m[(\"a\", \"b\")]\n"),
        ("f(m)[0, x[1, 2]][3]\n", "f(m)[(0, x[(1, 2)])][3]\n"),
        ("x = [1, 2]\n", "x = [1, 2]\n"),
        ("for i in [1, 2]:\n    g([i, i], d[i])\n", "for i in [1, 2]:\n    g([i, i], d[i])\n"),
        ("return[1, 2]\n", "return[1, 2]\n"),
        ("t[1:2, 3]\n", "t[(_slice(1, 2, None), 3)]\n"),
        ("t[f(1, 2)]\n", "t[f(1, 2)]\n"),
        ("m[\n    \"a\",\n    \"b\"\n]\n", "m[(\n    \"a\",\n    \"b\"\n)]\n"),
        ("def f(x: dict[str, int]):\n    g(x)\n", "def f(x                ):\n    g(x)\n"),
        ("m[\"a, b\"]\n", "m[\"a, b\"]\n"),
    ] {
        assert_eq!(rewritten(from), to);
    }
}

/// Expressions that Python has and Starlark has not become calls.
#[test]
fn expressions_of_python_are_calls() {
    for (from, to) in [
        ("x = a ** -b ** 2\n", "x = pow(a ,  -pow(b ,  2))\n"),
        ("x = 1 << 31\n", "x = _shifted(1 ,  31)\n"),
        ("x = a << b << (c - 1)\n", "x = _shifted(_shifted(a ,  b) ,  (c - 1))\n"),
        ("x = 2 * a << b + 1\n", "x = _shifted(2 * a ,  b + 1)\n"),
        ("return -1 << 3\n", "return _shifted(-1 ,  3)\n"),
        ("f(*a << b)\n", "f(*_shifted(a ,  b))\n"),
        ("f(x, *a, *b, y, k=1)\n", "f(x, k=1, *_spread([(True, a), (True, b), (False, y)]))\n"),
        ("x = a >> 1 << b >> 2\n", "x = _shifted(a >> 1 ,  b) >> 2\n"),
        ("x <<= 2\n", "x = _in_place(\"<<\", x, (2))\n"),
        ("f(*a, **b)\n", "f(*a, **b)\n"),
        ("x = \"%d\" % n % 2\n", "x = _percent(\"%d\" , n) % 2\n"),
        ("x = n % 2\n", "x = n % 2\n"),
        ("x = (\"a\"\n     \"b\")\n", "x = ((\"a\" +\n     \"b\"))\n"),
        ("x = \"\"\"a\n\"b\" \"\"\"\n", "x = \"\"\"a\n\"b\" \"\"\"\n"),
        ("x = {1, f(2)}\n", "x = _set([1, f(2)])\n"),
        ("x = {1: {2}, 3: {}}\n", "x = {1: _set([2]), 3: {}}\n"),
        ("f(a for a in b)\n", "f([a for a in _through(b)])\n"),
        ("if 0 < a <= b and c:\n    g()\n", "if (0 < a  and a <= b) and c:\n    g()\n"),
        ("x = a < f(b) < c\n", "x = a < f(b) < c\n"),
        ("x = 1_000 + a_1\n", "x = 1000 + a_1\n"),
        (
            "def f(a: int = 3, *b: str) -> None:\n    pass\n",
            "def f(a      = 3, *b     )        :\n    pass\n",
        ),
        ("x: int = 3\n", "x      = 3\n"),
        ("a = b = c\n", "b = c; a = b\n"),
        ("a = f(b=c)\n", "a = f(b=c)\n"),
        ("if a: raise b\n", "if a: _raise(b)\n"),
        ("else: assert b, c\n", "else: _assert(b, c)\n"),
        ("f(1, *a, b = 2, **c)\n", "f(1, b = 2, *a, **c)\n"),
        ("a.sort(key = b)\n", "_method(\"sort\", a, key = b)\n"),
        ("x = type(a).__name__\n", "x = _name(type(a))\n"),
        (
            "f'{sum(a for a in b):>{w}}'\n",
            "_fstring((sum([a for a in _through(b)]), \">\" + str(w) + \"\"), )\n",
        ),
    ] {
        assert_eq!(rewritten(from), to);
    }
}
