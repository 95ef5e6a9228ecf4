//! The clauses of a `try`: their heads, and the statement after the colon of one.

use crate::dialect::scan::Logical;
use crate::dialect::words::first_word;
use std::borrow::Cow;

/// True if a statement is a clause of a `try`.
pub(super) fn is_clause(mask: &str) -> bool {
    let head = mask.trim();
    match first_word(head) {
        word @ ("try" | "finally") => head[word.len()..].trim_start().starts_with(':'),
        "except" => head.ends_with(':') || head.contains(':'),
        _ => false,
    }
}

/// Splits `try: x()` into its head and the statement after the colon, and likewise the `else` of a program
/// that has any `try`.
pub(super) fn parts(statement: &Logical, tries: bool) -> Vec<Cow<'_, Logical>> {
    let head = statement.mask.trim_start();
    let splits = tries && (is_clause(&statement.mask) || first_word(head) == "else");
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
