//! `a + b` as `_operate("+", a, b)`, in programs whose classes define operators (`__add__` and its like): the
//! interpreter's operators call no methods.

use super::operand::{after, before, wrap};

/// The methods in a program that show that its classes define arithmetic operators.
const SUMS: [&str; 18] = [
    "add",
    "radd",
    "iadd",
    "sub",
    "rsub",
    "isub",
    "mul",
    "rmul",
    "imul",
    "truediv",
    "rtruediv",
    "itruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
    "pow",
    "neg",
];
const ORDERS: [&str; 4] = ["lt", "le", "gt", "ge"];

/// Words that no value ends with.
const NO_VALUES: [&str; 12] =
    ["return", "in", "and", "or", "not", "if", "else", "elif", "lambda", "is", "assert", "yield"];

/// True if a program, after its classes were rewritten, defines one of these methods.
fn has(text: &str, names: &[&str]) -> bool {
    names.iter().any(|name| text.contains(&format!("__method____{name}__(")))
}

/// True if the program's classes define arithmetic operators.
pub(super) fn sums(text: &str) -> bool {
    has(text, &SUMS)
}

/// True if the program's classes define comparisons.
pub(super) fn orders(text: &str) -> bool {
    has(text, &ORDERS)
}

/// Rewrites operators in a statement and its mask, which keep equal lengths: those that bind stronger first,
/// and each kind from the left.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    negated(text, mask);
    for operators in [&["//", "*", "/", "%"][..], &["+", "-"]] {
        let mut at = 0;
        while at < mask.len() {
            let found = mask
                .get(at..)
                .and_then(|rest| operators.iter().find(|own| rest.starts_with(**own)));
            at = match found {
                Some(operator) => at + one(text, mask, at, operator),
                None => at + mask[at..].chars().next().map_or(1, char::len_utf8),
            };
        }
    }
}

/// True if the text before an operator ends with a value, so that the operator joins two values.
fn joins(mask: &str, at: usize) -> bool {
    let front = mask[..at].trim_end();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let last = front.rsplit(|c| !word(c)).next().unwrap_or_default();
    // `1e-3` is a number.
    let exponent = mask[..at].ends_with(['e', 'E'])
        && last.starts_with(|c: char| c.is_ascii_digit())
        && !last.starts_with("0x");
    let value = front.ends_with(|c: char| word(c) || matches!(c, ')' | ']' | '}' | '\u{1}'));
    value && !exponent && !NO_VALUES.contains(&last)
}

/// Rewrites the operator there; returns how far the search goes on.
fn one(text: &mut String, mask: &mut String, at: usize, operator: &str) -> usize {
    let behind = &mask[at + operator.len()..];
    // `x += y`, `-> None`, `f(**named)`.
    if behind.starts_with(['=', '>']) || (operator == "*" && behind.starts_with('*')) {
        return operator.len() + 1;
    }
    if !joins(mask, at) {
        return operator.len();
    }
    let bytes = mask.as_bytes();
    let ends = before(bytes, mask[..at].trim_end().len()).zip(after(bytes, at + operator.len()));
    let Some((mut start, end)) = ends else { return operator.len() };
    // A sign belongs to what stands behind it.
    let sign = mask[..start].trim_end();
    if sign.ends_with(['-', '+', '~']) && !joins(mask, sign.len() - 1) {
        start = sign.len() - 1;
    }
    for of in [&mut *text, &mut *mask] {
        of.replace_range(at..at + operator.len(), ", ");
    }
    let end = end + 2 - operator.len();
    let head = format!("_operate(\"{operator}\", ");
    let masked = head.replace(&format!("\"{operator}\""), &"\u{1}".repeat(operator.len() + 2));
    wrap((text, mask), (start, end), "", ")");
    text.insert_str(start, &head);
    mask.insert_str(start, &masked);
    head.len() + 2
}

/// `-a` as `_negated(a)`.
fn negated(text: &mut String, mask: &mut String) {
    let mut end = mask.len();
    while let Some(at) = mask.get(..end).and_then(|rest| rest.rfind('-')) {
        end = at;
        let behind = mask[at + 1..].trim_start();
        let value = behind.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '(');
        if !value || joins(mask, at) || mask[..at].ends_with(['e', 'E']) {
            continue;
        }
        let Some(to) = after(mask.as_bytes(), at + 1) else { continue };
        for of in [&mut *text, &mut *mask] {
            of.insert(to, ')');
            of.replace_range(at..=at, "_negated(");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan;

    #[test]
    fn operators_become_calls() {
        for (python, starlark) in [
            ("x = a + b", "x = _operate(\"+\", a ,  b)"),
            (
                "x = a + b * c - 1",
                "x = _operate(\"-\", _operate(\"+\", a ,  _operate(\"*\", b ,  c)) ,  1)",
            ),
            ("f(*a, **b, c=-1e-3)", "f(*a, **b, c=-1e-3)"),
            ("x = 2.5e-3 * 1e+2", "x = _operate(\"*\", 2.5e-3 ,  1e+2)"),
            ("x = -a + (b - c)", "x = _operate(\"+\", _negated(a) ,  (_operate(\"-\", b ,  c)))"),
            ("x = n % 2 + 1", "x = _operate(\"+\", _operate(\"%\", n ,  2) ,  1)"),
            (
                "x = 10 - 2 * n % 3",
                "x = _operate(\"-\", 10 ,  _operate(\"%\", _operate(\"*\", 2 ,  n) ,  3))",
            ),
            ("x %= 2", "x %= 2"),
            ("x += a // 2", "x += _operate(\"//\", a ,  2)"),
            ("return -a[0] / f(b)", "return _operate(\"/\", _negated(a[0]) ,  f(b))"),
            (
                "y = [-1, x - 1, lambda: -x]",
                "y = [-1, _operate(\"-\", x ,  1), lambda: _negated(x)]",
            ),
        ] {
            let own = scan::scan(python).unwrap().remove(0);
            let (mut text, mut mask) = (own.text, own.mask);
            super::rewrite(&mut text, &mut mask);
            assert_eq!(text.len(), mask.len(), "{python}");
            assert_eq!(text, starlark);
        }
    }
}
