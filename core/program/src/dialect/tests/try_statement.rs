//! `try` in Starlark's words.

use super::super::rewrite;
use proptest::prelude::*;

#[test]
fn what_is_tried_is_tried_part_by_part() {
    let text = "def f(x):\n    try:\n        y = g(x)\n        if y:\n            return y\n    \
                except ValueError as e:\n        print(e)\n        raise\n    finally:\n        h()\n";
    let written = rewrite(text).unwrap();
    let expected = "def f(x):
    _try_0 = _trying()
    _try_1 = _trying()
    if True:
        if _try_1.goes: _tried = _attempt(_try_1, lambda: (g(x)))
        if _try_1.goes: y = _tried
        if _try_1.goes and _attempt(_try_1, lambda: (y)):
            if _try_1.goes: _left = _attempt(_try_1, lambda: (y))
            if _try_1.goes:
                h()
                return _left
    if _catches(_try_1, lambda: (ValueError)):
        e = _try_1.error
        if _try_0.goes: _attempt(_try_0, lambda: (print(e)))
        if _try_0.goes: _attempt(_try_0, lambda: (_reraise(_try_1)))
    if _try_0.goes: _attempt(_try_0, lambda: _again(_try_1))
    if True:
        h()
    _again(_try_0)
";
    assert_eq!(written.text, expected);
    assert_eq!(written.origin, [0, 1, 1, 1, 2, 2, 3, 4, 4, 9, 4, 5, 5, 6, 7, 1, 8, 9, 1]);
}

#[test]
fn loops_end_where_something_has_raised() {
    let text = "try: import x\nexcept: pass\nfor i in range(3):\n    try:\n        for j in a: f(j)\n    \
                except (A, B):\n        continue\n    else:\n        break\n";
    let written = rewrite(text).unwrap().text;
    for part in [
        "if _catches(_try_0, None):\n    pass\n",
        "        for j in _each(_try_1, lambda: (_through(a))):\n            if _try_1.goes: \
         _attempt(_try_1, lambda: (f(j)))\n            if not _try_1.goes: break\n",
        "    if _catches(_try_1, lambda: ((A, B))):\n        if True:\n            \
         _handled(_try_1)\n            continue\n    elif _try_1.goes:\n        break\n    _again(_try_1)\n",
    ] {
        assert!(written.contains(part), "{written}");
    }
    let alone = rewrite("x = 1\nexcept ValueError:\n    pass\n").unwrap_err();
    assert_eq!((alone.line, alone.message.as_str()), (2, "there is no `try` for this `except`"));
}

proptest! {
    /// Whatever is tried, and however it is cut off.
    #[test]
    fn every_line_of_a_try_has_an_origin(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("try:\n"), Just("try: a()\n"), Just(" try:\n"), Just(" x = a\n"), Just("  b(\n"),
                Just(")"), Just("except:\n"), Just("except A as e:\n"), Just(" except (A, B): pass\n"),
                Just("finally:\n"), Just(" finally:\n"), Just("else:\n"), Just(" return x; y\n"),
                Just("for i in x:\n"), Just(" break\n"), Just(" raise\n"), Just("if \u{e9}:\n"),
                Just("  d[\u{e9}], c = '\u{e9}'\n"), Just(" import q\n"), Just("except x[:] \u{e9}\n"),
            ],
            0..24,
        )
    ) {
        let text = parts.concat();
        if let Ok(out) = rewrite(&text) {
            prop_assert_eq!(out.text.lines().count(), out.origin.len());
            let lines = text.lines().count() as u32;
            prop_assert!(out.origin.iter().all(|line| *line < lines.max(1)));
        }
    }
}

/// Tries that would take more memory than they may, or a deep stack, are refused.
#[test]
fn tries_are_bounded() {
    let nested: String = (0..200).map(|at| format!("{:at$}try:\n", "")).collect();
    let why = rewrite(&(nested + &format!("{:200}x()\n", ""))).unwrap_err().message;
    assert!(why.contains("nested too deep"), "{why}");
    let lines = "        a()\n".repeat(2000);
    let returns = "        if b: return c\n".repeat(2000);
    let text = format!("def f():\n    try:\n{returns}    finally:\n{lines}");
    let why = rewrite(&text).unwrap_err().message;
    assert!(why.contains("too long"), "{why}");
}
