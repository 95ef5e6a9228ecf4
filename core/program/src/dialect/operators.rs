//! Calls for Python's operators that Starlark lacks: `"…" % x`, `x ** y`, texts beside each other,
//! `x << y` past 32 bits; and `1_000`.

use super::operand::{STRING, after, before, wrap};

/// Rewrites them in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    numbers(text, mask);
    beside(text, mask);
    percent(text, mask);
    powers(text, mask);
    products(text, mask);
    shifts(text, mask);
    counted(text, mask);
}

/// The operators that bind closer than a shift, or are left of one that is evaluated first; the longer ones
/// first.
const BEFORE_SHIFT: [&str; 7] = ["//", ">>", "*", "/", "%", "+", "-"];

/// `a << b` as `_shifted(a, b)`, from the left; `a + b << c * d` is `(a + b) << (c * d)`.
fn shifts(text: &mut String, mask: &mut String) {
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find("<<")) {
        let operator = at + found;
        at = operator + 2;
        let left = mask[..operator].trim_end().len();
        let Some(mut start) = before(mask.as_bytes(), left) else { continue };
        loop {
            let front = mask[..start].trim_end();
            start = match joined(mask, start, &BEFORE_SHIFT) {
                Some(from) => from,
                None if front.ends_with(['+', '-', '~']) => front.len() - 1,
                None => break,
            };
        }
        // `a <<= b` has no operand there.
        let Some(mut to) = after(mask.as_bytes(), at) else { continue };
        while let Some(next) = joining(mask, to) {
            to = next;
        }
        for of in [&mut *text, &mut *mask] {
            of.replace_range(operator..at, ", ");
        }
        wrap((text, mask), (start, to), "_shifted(", ")");
    }
}

/// The end of an operand that is joined, closer than a shift, to the one that ends there.
fn joining(mask: &str, end: usize) -> Option<usize> {
    let rest = mask[end..].trim_start();
    let operator =
        BEFORE_SHIFT.iter().filter(|it| **it != ">>").find(|it| rest.starts_with(**it))?;
    after(mask.as_bytes(), mask.len() - rest.len() + operator.len())
}

/// `a @ b` as `_matmul(a, b)`, from the left.
fn products(text: &mut String, mask: &mut String) {
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find('@')) {
        let operator = at + found;
        at = operator + 1;
        let left = mask[..operator].trim_end().len();
        let Some(mut start) = before(mask.as_bytes(), left) else { continue };
        // `a * b @ c` is `(a * b) @ c`.
        while let Some(from) = joined(mask, start, &["//", "*", "/", "%"]) {
            start = from;
        }
        // `a @= b` has no shorter word.
        let Some(to) = after(mask.as_bytes(), operator + 1) else { continue };
        text.replace_range(operator..operator + 1, ", ");
        mask.replace_range(operator..operator + 1, ", ");
        wrap((text, mask), (start, to + 1), "_matmul(", ")");
    }
}

/// The begin of an operand that one of the operators joins to the one that begins there.
fn joined(mask: &str, start: usize, operators: &[&str]) -> Option<usize> {
    let front = mask[..start].trim_end();
    let front = operators.iter().find_map(|operator| front.strip_suffix(operator))?.trim_end();
    let value = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '}');
    if !front.ends_with(value) {
        return None;
    }
    let from = before(front.as_bytes(), front.len()).filter(|from| *from < start)?;
    // An operator after `return` is a sign.
    (!WORDS.contains(&&front[from..])).then_some(from)
}

/// Words in front of a value that are none themselves.
const WORDS: [&str; 12] =
    ["and", "assert", "elif", "else", "if", "in", "is", "not", "or", "return", "while", "yield"];

/// Writes truth values in sums as numbers: `(a > b) + 1` as `_counted((a > b)) + 1`, and `True`
/// beside an operator as 1.
fn counted(text: &mut String, mask: &mut String) {
    let arithmetic = |c: char| matches!(c, '+' | '-' | '*' | '/');
    // True if an operator there joins two values.
    let joins = |front: &str, behind: &str| {
        let (front, behind) = (front.trim_end(), behind.trim_start());
        let value = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '}');
        let of_left = front.ends_with(arithmetic)
            && front.trim_end_matches(arithmetic).trim_end().ends_with(value)
            && !front.ends_with("**");
        let of_right = behind.starts_with(arithmetic)
            && !behind.starts_with("**")
            && behind.get(1..2) != Some("=");
        // `-True`.
        let sign = front.ends_with(['-', '+', '~']);
        sign || of_left || of_right
    };
    for (name, number) in [("True", "1"), ("False", "0")] {
        let places: Vec<usize> = mask.match_indices(name).map(|(at, _)| at).collect();
        for at in places.into_iter().rev() {
            let (front, behind) = (&mask[..at], &mask[at + name.len()..]);
            let word = |c: char| c.is_alphanumeric() || c == '_';
            if front.ends_with(word) || behind.starts_with(word) || !joins(front, behind) {
                continue;
            }
            for of in [&mut *text, &mut *mask] {
                of.replace_range(at..at + name.len(), number);
            }
        }
    }
    let mut end = mask.len();
    while let Some(open) = mask.get(..end).and_then(|rest| rest.rfind('(')) {
        end = open;
        let Some(close) = super::operand::closing(mask.as_bytes(), open) else { continue };
        let inside = &mask[open + 1..close];
        let called = mask[..open].ends_with(|c: char| c.is_alphanumeric() || "_)]".contains(c));
        if called || !compares(inside) || !joins(&mask[..open], &mask[close + 1..]) {
            continue;
        }
        wrap((text, mask), (open, close + 1), "_counted(", ")");
    }
}

/// True if a text is a comparison outside of all brackets.
fn compares(inside: &str) -> bool {
    let mut depth = 0_usize;
    let flat: String = inside
        .chars()
        .filter(|c| {
            let closes = matches!(c, ')' | ']' | '}');
            depth = depth.saturating_sub(usize::from(closes));
            let shown = depth == 0;
            depth += usize::from(matches!(c, '(' | '[' | '{'));
            shown
        })
        .collect();
    let has = |words: &[&str]| words.iter().any(|word| flat.contains(word));
    has(&["==", "!=", "<", ">", " in ", "not ", " and ", " or "])
        && !has(&["<<", ">>", " for ", ",", " if ", "lambda", ":"])
}

/// `1_000` without its lines.
fn numbers(text: &mut String, mask: &mut String) {
    let mut at = 1;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find('_')) {
        let start = at + found;
        at = start + 1;
        let bytes = mask.as_bytes();
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if !digit(start - 1) || !digit(start + 1) {
            continue;
        }
        let word = bytes[..start].iter().rposition(|c| !c.is_ascii_alphanumeric() && *c != b'_');
        let first = bytes.get(word.map_or(0, |word| word + 1));
        if first.is_some_and(u8::is_ascii_digit) {
            text.remove(start);
            mask.remove(start);
            at = start;
        }
    }
}

/// `"a" "b"` as `("a" + "b")`.
fn beside(text: &mut String, mask: &mut String) {
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find('\u{1}')) {
        let start = at + found;
        let mut ends = Vec::new();
        let mut end = start;
        loop {
            let bytes = mask.as_bytes();
            end += bytes[end..].iter().take_while(|c| **c == STRING).count();
            ends.push(end);
            let blank = bytes[end..].iter().take_while(|c| c.is_ascii_whitespace()).count();
            let raw = usize::from(
                matches!(bytes.get(end + blank), Some(b'r' | b'R'))
                    && bytes.get(end + blank + 1) == Some(&STRING),
            );
            if blank == 0 || bytes.get(end + blank + raw) != Some(&STRING) {
                break;
            }
            end += blank + raw;
        }
        at = end;
        let last = ends.pop().unwrap_or(end);
        if ends.is_empty() {
            continue;
        }
        // The letter in front of a raw text belongs to it.
        let start = start - usize::from(mask[..start].ends_with(['r', 'R']));
        let grown = ends.len() * " +".len();
        for end in ends.into_iter().rev() {
            for of in [&mut *text, &mut *mask] {
                of.insert_str(end, " +");
            }
        }
        wrap((text, mask), (start, last + grown), "(", ")");
        at = last + grown + 2;
    }
}

/// `"…" % values` as a call, which knows Python's formats.
fn percent(text: &mut String, mask: &mut String) {
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find('%')) {
        let operator = at + found;
        at = operator + 1;
        let left = mask[..operator].trim_end().len();
        let Some(start) = before(mask.as_bytes(), left) else { continue };
        // A string, or strings that are joined.
        let strings = mask[start..left].bytes().all(|c| {
            c == STRING || c.is_ascii_whitespace() || matches!(c, b'(' | b')' | b'+' | b'r' | b'R')
        });
        let Some(end) = after(mask.as_bytes(), operator + 1) else { continue };
        let literal = strings && mask[start..left].contains('\u{1}');
        if !literal && !is_format(mask, (start, left), (operator + 1, end)) {
            continue;
        }
        text.replace_range(operator..operator + 1, ",");
        mask.replace_range(operator..operator + 1, ",");
        wrap((text, mask), (start, end), "_percent(", ")");
        at = start + "_percent(".len();
    }
}

/// True if the left side of `%` may be a format string: it is a single name, and the right side is a tuple, a
/// text or a name. With a number on either side, `%` is a remainder.
fn is_format(mask: &str, (start, left): (usize, usize), (from, to): (usize, usize)) -> bool {
    let name = mask[start..left].chars().all(|c| c.is_alphanumeric() || "_.".contains(c))
        && !mask[start..].starts_with(|c: char| c.is_ascii_digit());
    let before = mask[..start].trim_end();
    // `-x % y` and `a * x % y` have more than the name on the left.
    let alone = before.is_empty()
        || before.ends_with(['(', '[', '{', ',', '=', ':', '+'])
        || ["return", "in", "and", "or", "not", "else", "if"].iter().any(|w| before.ends_with(w));
    let right = mask[from..to].trim();
    let tuple = right.starts_with('(') && right.contains(',');
    let named = right.starts_with(|c: char| c.is_alphabetic() || c == '_');
    name && alone && (tuple || named || right.starts_with('\u{1}'))
}

/// `x ** y` as `pow(x, y)`, from behind: `2 ** 3 ** 2` is `2 ** 9`.
fn powers(text: &mut String, mask: &mut String) {
    let mut end = mask.len();
    while let Some(operator) = mask.get(..end).and_then(|rest| rest.rfind("**")) {
        end = operator;
        let left = mask[..operator].trim_end().len();
        // `f(**options)`, `lambda **options: …`, `x **= 2`.
        let assigns = mask[operator + 2..].starts_with('=');
        let Some(start) = before(mask.as_bytes(), left) else { continue };
        if assigns || &mask[start..left] == "lambda" {
            continue;
        }
        let Some(to) = after(mask.as_bytes(), operator + 2) else { continue };
        text.replace_range(operator..operator + 2, ", ");
        mask.replace_range(operator..operator + 2, ", ");
        wrap((text, mask), (start, to), "pow(", ")");
        end = end.min(mask.len());
    }
}
