//! `1 - x` and `2 / x`, whose right operand alone may be a tensor, as `_reflected("-", 1, x)`: the
//! interpreter's numbers know nothing of tensors.

use super::operand::{after, wrap};

/// Rewrites operators in a statement and its mask, which keep equal lengths: from the end, so that the right
/// operand is rewritten first.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let mut end = mask.len();
    while let Some(at) = mask.get(..end).and_then(|rest| rest.rfind(['-', '/'])) {
        end = at;
        one(text, mask, at);
    }
}

fn one(text: &mut String, mask: &mut String, at: usize) {
    let bytes = mask.as_bytes();
    let operator = bytes[at];
    let beside = |at: Option<usize>| at.and_then(|at| bytes.get(at)).copied();
    // `x -= 1`, `x // 2`, `-> None`.
    if matches!(beside(Some(at + 1)), Some(b'=' | b'/' | b'>'))
        || beside(at.checked_sub(1)) == Some(b'/')
    {
        return;
    }
    let left = mask[..at].trim_end();
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let start = left.trim_end_matches(number).len();
    let digits = &mask[start..left.len()];
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return;
    }
    // Nothing that binds stronger, or as strong, may stand in front.
    let before = mask[..start].trim_end();
    let word = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    let opens = before.is_empty()
        || before.ends_with(['(', '[', '{', ',', '=', ':', ';'])
        || matches!(word, "return" | "in" | "and" | "or" | "not" | "if" | "else" | "print")
        || (operator == b'/' && before.ends_with(['+', '-']));
    // `x2` and `1e-3` are one word.
    let joined = before.len() == start && {
        let sign = before.strip_suffix(['+', '-']).unwrap_or(before);
        before.ends_with(|c: char| c.is_alphanumeric() || c == '_') || sign.ends_with(['e', 'E'])
    };
    if !opens || joined {
        return;
    }
    let Some(mut end) = after(bytes, at + 1) else { return };
    let first = mask[at + 1..end].trim_start();
    if first.starts_with(|c: char| c.is_ascii_digit() || c == '\u{1}') {
        return;
    }
    // A product belongs to the subtrahend.
    let multiplied = |of: char| operator == b'-' && matches!(of, '*' | '/' | '%');
    loop {
        let rest = &mask[end..];
        let blank = rest.len() - rest.trim_start_matches(' ').len();
        let Some(next) = rest[blank..].chars().next().filter(|c| multiplied(*c)) else { break };
        let twice = rest[blank + 1..].starts_with(next);
        match after(bytes, end + blank + 1 + usize::from(twice)) {
            Some(further) => end = further,
            None => return,
        }
    }
    let (head, masked) = match operator {
        b'-' => ("_reflected(\"-\", ", "_reflected(\u{1}\u{1}\u{1}, "),
        _ => ("_reflected(\"/\", ", "_reflected(\u{1}\u{1}\u{1}, "),
    };
    for of in [&mut *text, &mut *mask] {
        of.replace_range(at..=at, ",");
    }
    wrap((text, mask), (start, end), "", ")");
    text.insert_str(start, head);
    mask.insert_str(start, masked);
}

#[cfg(test)]
mod tests {
    use super::super::rewrite;

    #[test]
    fn a_number_in_front_may_meet_a_tensor() {
        for (python, starlark) in [
            ("y = 1 - x", "y = _reflected(\"-\", 1 , x)"),
            ("y = 2.5 / x.sum() * 3", "y = _reflected(\"/\", 2.5 , x.sum()) * 3"),
            ("f(1 - x * 2 + 1)", "f(_reflected(\"-\", 1 , x * 2) + 1)"),
            ("y = a + 2 / x", "y = a + _reflected(\"/\", 2 , x)"),
            ("y = 1 - 2 / x", "y = _reflected(\"-\", 1 , _reflected(\"/\", 2 , x))"),
            ("y = (1 - a) * x", "y = (_reflected(\"-\", 1 , a)) * x"),
            // Starlark's own.
            ("y = a + 1 - x", "y = a + 1 - x"),
            ("y = a * 2 / x", "y = a * 2 / x"),
            ("y = a - 1", "y = a - 1"),
            ("y = 3 - 1", "y = 3 - 1"),
            ("y = 7 // x", "y = 7 // x"),
            ("y = x2 - z", "y = x2 - z"),
            ("y = 1e-3 / z", "y = 1e-3 / z"),
            ("y = a_1 / z", "y = a_1 / z"),
            ("y = range(-1, -x)", "y = range(-1, -x)"),
        ] {
            assert_eq!(rewrite(&format!("{python}\n")).unwrap().text, format!("{starlark}\n"));
        }
    }
}
