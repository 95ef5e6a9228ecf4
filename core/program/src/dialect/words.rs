//! Words of a statement.

/// The word that a text begins with; empty if it begins with something else.
pub(super) fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}
