//! `b"…"` and `int(…)` as calls: Starlark has no bytes, and its `int` knows none.

/// Rewrites them in a statement and its mask, which stay of one length. In the mask, strings are
/// runs of one character.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find("int(")) {
        let start = at + found;
        at = start + "int(".len();
        // `int()` is 0.
        let empty = mask[at..].trim_start().starts_with(')');
        if !mask[..start].ends_with(word) && !empty {
            text.insert(start, '_');
            mask.insert(start, '_');
            at += 1;
        }
    }
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find(['b', 'B'])) {
        let start = at + found;
        at = start + 1;
        let quotes = matches!(text.as_bytes().get(at), Some(b'"' | b'\''));
        let string = mask.as_bytes().get(at) == Some(&1);
        if mask[..start].ends_with(word) || !quotes || !string {
            continue;
        }
        let Some(end) = closing(&text[at..]).map(|length| at + length) else { continue };
        text.insert(end, ')');
        mask.insert(end, ')');
        text.replace_range(start..at, "_bytes(");
        mask.replace_range(start..at, "_bytes(");
        at = end + "_bytes".len();
    }
}

/// The length of the string that begins here.
fn closing(text: &str) -> Option<usize> {
    let quote = match text {
        _ if text.starts_with("\"\"\"") => "\"\"\"",
        _ if text.starts_with("'''") => "'''",
        _ => text.get(..1)?,
    };
    let mut at = quote.len();
    loop {
        let rest = text.get(at..)?;
        if rest.starts_with(quote) {
            return Some(at + quote.len());
        }
        let next = rest.chars().next()?;
        at += next.len_utf8();
        if next == '\\' {
            at += text.get(at..)?.chars().next()?.len_utf8();
        }
    }
}
