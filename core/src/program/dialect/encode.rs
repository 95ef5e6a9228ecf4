//! `text.encode()` as a call: Starlark's texts have no such method, for it has no bytes.

/// Rewrites them in a statement and its mask, which stay of one length. In the mask, strings are
/// runs of one character.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find(".encode(")) {
        let dot = at + found;
        let open = dot + ".encode(".len();
        at = open;
        let Some(start) = primary(mask.as_bytes(), dot) else { continue };
        let comma = if mask[open..].trim_start().starts_with(')') { "" } else { ", " };
        for of in [&mut *text, &mut *mask] {
            of.replace_range(dot..open, comma);
            of.insert_str(start, "_encode(");
        }
        at = dot + "_encode(".len() + comma.len();
    }
}

/// Where what stands before `end` begins: names, calls, subscripts and strings.
fn primary(mask: &[u8], end: usize) -> Option<usize> {
    let word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_' || *c >= 0x80;
    let mut at = end;
    loop {
        let before = mask.get(..at)?;
        match before.last()? {
            b')' | b']' | b'}' => {
                let mut depth = 0usize;
                let open = before.iter().rposition(|c| {
                    match c {
                        b')' | b']' | b'}' => depth += 1,
                        b'(' | b'[' | b'{' => depth -= 1,
                        _ => {}
                    }
                    depth == 0
                });
                at = open?;
                // What is called or subscripted stands before it.
                let called = mask.get(..at)?.last();
                if called.is_none_or(|c| !(word(c) || matches!(c, b')' | b']' | 1))) {
                    return Some(at);
                }
                continue;
            }
            1 => at = before.iter().rposition(|c| *c != 1).map_or(0, |last| last + 1),
            c if word(c) => at = before.iter().rposition(|c| !word(c)).map_or(0, |last| last + 1),
            _ => return None,
        }
        match mask.get(..at)?.last() {
            Some(b'.') => at -= 1,
            _ => return Some(at),
        }
    }
}
