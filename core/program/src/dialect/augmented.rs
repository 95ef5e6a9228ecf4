//! `x += y`, which changes a tensor in place and gives everything else a new value, as `x = _in_place("+", x,
//! y)`; a list is extended in place as well. A part of a tensor is not assigned anew. Attributes of
//! parameters and objects (`p.grad`, `self.sum`) are distinguished in the run.

use super::inline::simple;
use super::operand::before;

/// Rewrites it in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    for range in simple(mask).into_iter().rev() {
        one(text, mask, range);
    }
}

fn one(text: &mut String, mask: &mut String, (start, end): (usize, usize)) {
    let Some((at, operator)) = operator(&mask[..end], start) else { return };
    let left = mask[..at].trim_end().len();
    if before(mask.as_bytes(), left) != Some(start) {
        return;
    }
    let (target, target_mask) = (text[start..left].to_owned(), mask[start..left].to_owned());
    // The result of a call cannot be assigned to.
    if target_mask.ends_with(')') {
        return;
    }
    let slice = target_mask.ends_with(']') && {
        let open = target_mask.rfind('[').unwrap_or(0);
        target_mask[open..].contains(':')
    };
    // A key that is worked out by a call is worked out once.
    if target_mask.ends_with(']') && target_mask.contains('(') && !slice {
        return;
    }
    let attribute = !target_mask.ends_with(']') && target_mask.contains('.');
    let assigned = !slice;
    let value = at + operator.len() + 1;
    if attribute && let Some(dot) = target_mask.rfind('.') {
        let (of, name) = (target[..dot].trim_end(), target[dot + 1..].trim_start());
        let of_mask = &target_mask[..of.len()];
        let new =
            format!("_augment({of}, \"{name}\", \"{operator}\", ({}))", text[value..end].trim());
        let hidden = "\u{1}".repeat(name.len() + 2);
        let own = mask[value..end].get(..).map_or("", str::trim_start);
        let trimmed = text[value..end].trim();
        let own = own.get(..trimmed.len()).unwrap_or(own);
        let quoted = "\u{1}".repeat(operator.len() + 2);
        let masked = format!("_augment({of_mask}, {hidden}, {quoted}, ({own}))");
        text.replace_range(start..end, &new);
        mask.replace_range(start..end, &masked);
        return;
    }
    let call = |target: &str, value: &str, quote: char| {
        let (first, last) = match assigned {
            true => (format!("{target} = "), ""),
            false => (String::new(), ", True"),
        };
        let value = value.trim();
        format!("{first}_in_place({quote}{operator}{quote}, {target}, ({value}){last})")
    };
    let new = call(&target, &text[value..end], '"');
    let masked = call(&target_mask, &mask[value..end], '\u{1}')
        .replace(&format!("\u{1}{operator}\u{1}"), &"\u{1}".repeat(operator.len() + 2));
    text.replace_range(start..end, &new);
    mask.replace_range(start..end, &masked);
}

/// The place of the one `+=` or its like of a statement.
fn operator(mask: &str, start: usize) -> Option<(usize, &'static str)> {
    let mut depth = 0usize;
    let bytes = mask.as_bytes();
    for (at, c) in bytes.iter().enumerate().skip(start) {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 => return None,
            b'+' | b'-' | b'*' | b'/' | b'<' if depth == 0 && bytes.get(at + 1) == Some(&b'=') => {
                let doubled = at.checked_sub(1).and_then(|at| bytes.get(at)) == Some(c);
                return match (c, doubled) {
                    (b'+', false) => Some((at, "+")),
                    (b'-', false) => Some((at, "-")),
                    (b'*', false) => Some((at, "*")),
                    (b'/', false) => Some((at, "/")),
                    // The interpreter has no `**=`, and its `<<=` wraps around.
                    (b'*', true) => Some((at - 1, "**")),
                    (b'<', true) => Some((at - 1, "<<")),
                    _ => None,
                }
                .filter(|(at, _)| *at > start);
            }
            _ => {}
        }
    }
    None
}
