//! `first, *rest = values` as `first, rest = _starred(values, 1, 0)`, with the number of targets before and
//! after the starred one; the same in `for first, *rest in rows:`.

/// Rewrites it in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    if !mask.contains('*') {
        return;
    }
    let head = mask.trim_start();
    if super::words::first_word(head) == "for" {
        of_loop(text, mask);
        return;
    }
    let Some(equals) = assignment(mask) else { return };
    let from = mask.len() - head.len();
    let Some((star, before, behind)) = starred(&mask[from..equals]) else { return };
    let end = mask.trim_end().len();
    let value = equals + 1 + (mask[equals + 1..].len() - mask[equals + 1..].trim_start().len());
    for of in [&mut *text, &mut *mask] {
        of.insert_str(end, &format!("), {before}, {behind})"));
        of.insert_str(value, "_starred((");
        of.remove(from + star);
    }
}

/// True if a statement assigns to targets with a `*`.
pub(super) fn is_one(mask: &str) -> bool {
    let equals = assignment(mask).filter(|_| mask.contains('*'));
    equals.is_some_and(|equals| starred(&mask[..equals]).is_some())
}

/// `for a, *b in rows:`.
fn of_loop(text: &mut String, mask: &mut String) {
    let Some(word) = mask.find("for ").map(|at| at + "for ".len()) else { return };
    let Some(within) = mask[word..].find(" in ").map(|at| word + at) else { return };
    let Some((star, before, behind)) = starred(&mask[word..within]) else { return };
    let rows = within + " in ".len();
    let Some(end) = mask.trim_end().strip_suffix(':').map(str::len) else { return };
    for of in [&mut *text, &mut *mask] {
        of.insert_str(end, ")]");
        of.insert_str(rows, &format!("[_starred(_row, {before}, {behind}) for _row in ("));
        of.remove(word + star);
    }
}

/// The place of the one `=` of an assignment.
fn assignment(mask: &str) -> Option<usize> {
    let bytes = mask.as_bytes();
    let mut depth = 0_usize;
    let mut found = None;
    for (at, c) in bytes.iter().enumerate() {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b';' | b':' if depth == 0 => return None,
            b'=' if depth == 0 => {
                let part = |c: Option<&u8>| c.is_some_and(|c| b"=<>!+-*/%|&^".contains(c));
                let before = at.checked_sub(1).and_then(|at| bytes.get(at));
                if found.is_some() || part(before) || bytes.get(at + 1) == Some(&b'=') {
                    return None;
                }
                found = Some(at);
            }
            _ => {}
        }
    }
    found
}

/// The place of the star among the targets, and the numbers of targets before and behind that one.
fn starred(targets: &str) -> Option<(usize, usize, usize)> {
    let mut depth = 0_usize;
    let mut star = None;
    let (mut before, mut behind) = (0, 0);
    let mut empty = true;
    let whole = targets.trim();
    let wrapped = whole.starts_with(['(', '[']) && whole.ends_with([')', ']']);
    let level = usize::from(wrapped);
    for (at, c) in targets.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '*' if depth == level && star.is_none() && empty => star = Some(at),
            '*' => return None,
            ',' if depth == level => {
                match star {
                    None => before += 1,
                    Some(_) => behind += 1,
                }
                empty = true;
                continue;
            }
            _ => {}
        }
        let opens = wrapped && depth <= 1 && matches!(c, '(' | '[' | ')' | ']');
        empty &= c.is_whitespace() || opens;
    }
    // A comma at the end has nothing behind it.
    let behind = if empty && behind > 0 { behind - 1 } else { behind };
    star.map(|star| (star, before, behind))
}
