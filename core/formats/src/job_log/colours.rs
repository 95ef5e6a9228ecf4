//! The codes with which programs colour their output on a terminal.

use std::borrow::Cow;

/// A line without the codes by which a terminal changes colours.
pub fn without_colours(line: &str) -> Cow<'_, str> {
    if !line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, code)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        // `ESC [ 31 m`: parameters, and a letter that ends them.
        let behind = code.strip_prefix('[').unwrap_or(code);
        let ends = behind.find(|c: char| c.is_ascii_alphabetic());
        rest = ends.and_then(|at| behind.get(at + 1..)).unwrap_or_default();
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}
