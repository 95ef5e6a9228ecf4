//! Statements behind the colon of their block (`if x: raise y`), and `a = b = c`.

/// Rewrites them in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let start = match body(mask) {
        Some(start) => start,
        None => mask.len() - mask.trim_start().len(),
    };
    for word in ["raise", "assert"] {
        let Some(rest) = mask[start..].strip_prefix(word) else { continue };
        let bare = rest.trim().is_empty() && word == "raise";
        if start > 0 && (rest.starts_with(' ') || bare) && body(mask) == Some(start) {
            let end = raised(mask, start + word.len());
            let bare = mask[start + word.len()..end].trim().is_empty();
            for of in [&mut *text, &mut *mask] {
                if bare {
                    of.replace_range(start.., super::inline::AGAIN);
                    continue;
                }
                of.replace_range(end.., ")");
                of.replace_range(start..=start + word.len(), &format!("_{word}("));
            }
            return;
        }
    }
    several(text, mask, start);
}

/// The end of a `raise`'s or `assert`'s own expression: in front of `from error`.
pub(super) fn raised(mask: &str, from: usize) -> usize {
    let end = mask.trim_end().len().max(from);
    mask[from..end].rfind(" from ").map_or(end, |at| from + at)
}

/// The begin and end of each statement of a line, after the head of a block.
pub(super) fn simple(mask: &str) -> Vec<(usize, usize)> {
    let start = body(mask).unwrap_or_else(|| mask.len() - mask.trim_start().len());
    let mut depth = 0usize;
    let mut from = start;
    let mut found = Vec::new();
    for (at, c) in mask.char_indices().filter(|(at, _)| *at >= start) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {
                found.push((from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push((from, mask.len()));
    let bare = |(from, to): (usize, usize)| {
        let part = &mask[from..to];
        let start = from + part.len() - part.trim_start().len();
        (start < to).then(|| (start, from + part.trim_end().len()))
    };
    found.into_iter().filter_map(bare).collect()
}

/// The begin of the text behind the colon of an `if` or its like, on the same line.
pub(super) fn body(mask: &str) -> Option<usize> {
    let head = mask.trim_start();
    let word = super::words::first_word(head);
    if !matches!(word, "if" | "elif" | "else" | "for" | "while") {
        return None;
    }
    let mut depth = 0usize;
    let mut lambda = false;
    for (at, c) in mask.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            'l' if mask[at..].starts_with("lambda ") => lambda = true,
            ':' if depth == 0 && lambda => lambda = false,
            ':' if depth == 0 => {
                let rest = &mask[at + 1..];
                let blank = rest.len() - rest.trim_start_matches(' ').len();
                return (!rest.trim().is_empty()).then_some(at + 1 + blank);
            }
            _ => {}
        }
    }
    None
}

/// The places of an assignment's `=` from `start` on; `None` if another statement follows, or there is an
/// annotation.
pub(super) fn equals(mask: &str, start: usize) -> Option<Vec<usize>> {
    let mut equals = Vec::new();
    let mut depth = 0usize;
    let bytes = mask.as_bytes();
    for (at, c) in bytes.iter().enumerate().skip(start) {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b';' | b':' if depth == 0 => return None,
            b'=' if depth == 0 => {
                let part = |c: Option<&u8>| c.is_some_and(|c| b"=<>!+-*/%|&^:".contains(c));
                let of_two = part(bytes.get(at + 1).filter(|c| **c == b'='))
                    || part(at.checked_sub(1).and_then(|at| bytes.get(at)));
                if !of_two {
                    equals.push(at);
                }
            }
            _ => {}
        }
    }
    Some(equals)
}

/// `a = b = c` as `b = c; a = b`, of names.
fn several(text: &mut String, mask: &mut String, start: usize) {
    let Some(equals) = equals(mask, start) else { return };
    let [.., last] = equals[..] else { return };
    let mut names = Vec::new();
    let mut from = start;
    for at in &equals {
        let name = mask[from..*at].trim();
        let plain = |c: char| c.is_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return;
        }
        names.push(name.to_owned());
        from = at + 1;
    }
    if names.len() < 2 {
        return;
    }
    let Some(first) = names.pop() else { return };
    let end = mask.trim_end().len();
    let more: String = names.iter().map(|name| format!("; {name} = {first}")).collect();
    for of in [&mut *text, &mut *mask] {
        of.insert_str(end, &more);
        of.replace_range(start..last, &format!("{first} "));
    }
}

/// The text of a bare `raise` until the exception that it raises is known.
pub(super) const AGAIN: &str = "_raise_again()";
