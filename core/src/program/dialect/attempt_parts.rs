//! What a `try` is made of: its heads, and the statements whose parts are tried.

use super::first_word;
use super::scan::Logical;
use std::borrow::Cow;

/// Whether a statement is a part of a `try`.
pub(super) fn is_one(mask: &str) -> bool {
    let head = mask.trim();
    match first_word(head) {
        word @ ("try" | "finally") => head[word.len()..].trim_start().starts_with(':'),
        "except" => head.ends_with(':') || head.contains(':'),
        _ => false,
    }
}

/// `try: x()` as its head and what stands behind the colon, and so the `else` of a program that has
/// any `try`.
pub(super) fn parts(statement: &Logical, tries: bool) -> Vec<Cow<'_, Logical>> {
    let head = statement.mask.trim_start();
    let splits = tries && (is_one(&statement.mask) || first_word(head) == "else");
    let colon = splits.then(|| colon(&statement.mask)).flatten();
    let behind = colon.filter(|at| !statement.mask[at + 1..].trim().is_empty());
    let Some(colon) = behind else { return vec![Cow::Borrowed(statement)] };
    let head = Logical {
        text: statement.text[..=colon].to_owned(),
        mask: statement.mask[..=colon].to_owned(),
        ..statement.clone()
    };
    let indent = statement.indent + 4;
    let behind = |of: &str| format!("{:indent$}{}", "", of[colon + 1..].trim_start());
    let rest = Logical {
        indent,
        text: behind(&statement.text),
        mask: behind(&statement.mask),
        ..statement.clone()
    };
    vec![Cow::Owned(head), Cow::Owned(rest)]
}

/// The colon that ends the head of a block.
pub(super) fn colon(mask: &str) -> Option<usize> {
    let mut depth = 0_usize;
    mask.char_indices().find_map(|(at, c)| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    })
}

/// What a statement gives a value to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A name.
    Name,
    /// So many names.
    Names(usize),
    /// What stands in something: `d[key]`, `object.name`. Giving it a value may raise as well.
    Part,
}

/// Where the target of an assignment ends, with its operator, and what it is.
pub(super) fn assigned(mask: &str) -> Option<(usize, Target)> {
    let mut depth = 0_usize;
    let bytes = mask.as_bytes();
    let at = bytes.iter().enumerate().find_map(|(at, c)| {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 => {
                let next = bytes.get(at + 1) == Some(&b'=');
                let before = at.checked_sub(1).and_then(|at| bytes.get(at));
                if !next && !before.is_some_and(|c| b"=<>!".contains(c)) {
                    return Some(at);
                }
            }
            _ => {}
        }
        None
    })?;
    let target = mask[..at].trim();
    let name = |part: &str| part.trim().chars().all(|c| c.is_alphanumeric() || c == '_');
    let names = target.trim_matches(['(', ')']);
    let count = names.split(',').filter(|part| !part.trim().is_empty()).count();
    let target = match names.contains(',') {
        _ if target.contains(['[', '.']) => Target::Part,
        true if names.split(',').all(name) => Target::Names(count),
        _ => Target::Name,
    };
    Some((at + 1, target))
}
