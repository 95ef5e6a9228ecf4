//! `x[1:3] = y` as `_assign(x[1:3], (y))`: only a tensor's part takes what is assigned to a slice.

use super::inline::simple;
use super::operand::before;

/// Rewrites it in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    if !mask.contains("] =") && !mask.contains("]=") {
        return;
    }
    for (start, end) in simple(mask).into_iter().rev() {
        let Some(equals) = equals(&mask[..end], start) else { continue };
        let target = mask[..equals].trim_end().len();
        let whole = mask[..target].ends_with(']') && before(mask.as_bytes(), target) == Some(start);
        let open = opened(&mask[start..target]).map_or(target, |at| start + at);
        let inside = &mask[open..target];
        if !whole || !(inside.contains(':') || inside.contains("_slice(")) {
            continue;
        }
        for of in [&mut *text, &mut *mask] {
            of.insert_str(end, "))");
            of.replace_range(target..=equals, ", (");
            of.insert_str(start, "_assign(");
        }
    }
}

/// Where the last bracket of a text was opened.
fn opened(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    text.bytes().rposition(|c| {
        match c {
            b')' | b']' | b'}' => depth += 1,
            b'(' | b'[' | b'{' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// Where the one `=` of an assignment stands.
fn equals(mask: &str, start: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut found = None;
    let bytes = mask.as_bytes();
    for (at, c) in bytes.iter().enumerate().skip(start) {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 => {
                let part = |c: Option<&u8>| c.is_some_and(|c| b"=<>!+-*/%|&^".contains(c));
                let last = at.checked_sub(1).and_then(|at| bytes.get(at));
                let two = part(last) || bytes.get(at + 1) == Some(&b'=');
                if two || found.replace(at).is_some() {
                    return None;
                }
            }
            _ => {}
        }
    }
    found
}
