//! `f(*args, a = 1)` as `f(a = 1, *args)`: Starlark has named arguments first.

use super::operand::closing;

/// Rewrites them in a statement and its mask, which stay as long as they are.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let mut before = mask.len();
    while let Some(open) = mask.get(..before).and_then(|rest| rest.rfind('(')) {
        before = open;
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']');
        let called = mask[..open].ends_with(part);
        if !called || mask[..open].trim_start().starts_with("def ") {
            continue;
        }
        let Some(close) = closing(mask.as_bytes(), open) else { continue };
        let Some(order) = order(&mask[open + 1..close]) else { continue };
        for of in [&mut *text, &mut *mask] {
            let inside = &of[open + 1..close];
            let parts: Vec<&str> = order.iter().map(|(from, to)| &inside[*from..*to]).collect();
            let joined = parts.join(",");
            if joined.len() == close - open - 1 {
                of.replace_range(open + 1..close, &joined);
            }
        }
    }
}

/// The arguments in another order, where that is needed.
fn order(mask: &str) -> Option<Vec<(usize, usize)>> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0usize, 0);
    for (at, c) in mask.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push((from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push((from, mask.len()));
    let starred = |part: &(usize, usize)| {
        let part = mask[part.0..part.1].trim_start();
        part.starts_with('*') && !part.starts_with("**")
    };
    let named = |part: &(usize, usize)| {
        let part = mask[part.0..part.1].trim_start();
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        let rest = part[end..].trim_start();
        end > 0 && rest.starts_with('=') && !rest.starts_with("==")
    };
    let star = parts.iter().position(starred)?;
    if !parts.get(star + 1..)?.iter().any(named) {
        return None;
    }
    let (after, rest): (Vec<_>, Vec<_>) =
        parts[star..].iter().copied().partition(|part| named(part));
    Some(parts[..star].iter().copied().chain(after).chain(rest).collect())
}
