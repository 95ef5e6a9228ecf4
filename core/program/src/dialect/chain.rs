//! `0 <= x < n` as `(0 <= x and x < n)`: Starlark compares two at a time.

use super::operand::wrap;

/// Words that end a comparison on either side.
pub(super) const WORDS: [&str; 12] =
    ["and", "or", "not", "if", "else", "for", "in", "lambda", "return", "assert", "while", "elif"];

/// An operator of a comparison, or the edge of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Compares,
    Edge,
    Opens,
    Closes,
}

/// Rewrites chained comparisons in a statement and its mask, which keep equal lengths. The middle operand is
/// evaluated twice, so it may not have side effects.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    // Chains in brackets of each other are found one after the other.
    for _ in 0..64 {
        let Some(chain) = find(mask) else { return };
        let Chain { from, to, second, middle } = chain;
        let part = text[middle.0..middle.1].trim().to_owned();
        let masked = mask[middle.0..middle.1].trim().to_owned();
        text.insert_str(second, &format!(" and {part} "));
        mask.insert_str(second, &format!(" and {masked} "));
        let grown = part.len() + " and  ".len();
        wrap((text, mask), (from, to + grown), "(", ")");
    }
}

struct Chain {
    from: usize,
    to: usize,
    /// The place of the second operator.
    second: usize,
    middle: (usize, usize),
}

fn find(mask: &str) -> Option<Chain> {
    // Per bracket that is open: where the comparison begins, and its operators.
    let mut open: Vec<(usize, Vec<(usize, usize)>)> = vec![(0, Vec::new())];
    let mut at = 0;
    while at <= mask.len() {
        let (token, length) = token(mask, at);
        let edge = matches!(token, Some(Token::Edge | Token::Closes)) || at == mask.len();
        if edge
            && let Some((from, operators)) = open.last()
            && let [first, second, ..] = operators[..]
            && may_repeat(&mask[first.1..second.0])
        {
            let part = |text: &str| text.len() - text.trim_start().len();
            let from = from + part(&mask[*from..]);
            let to = at - (mask[..at].len() - mask[..at].trim_end().len());
            return Some(Chain { from, to, second: second.0, middle: (first.1, second.0) });
        }
        match token {
            Some(Token::Compares) => {
                if let Some((_, operators)) = open.last_mut() {
                    operators.push((at, at + length));
                }
            }
            Some(Token::Edge) => {
                if let Some(last) = open.last_mut() {
                    *last = (at + length, Vec::new());
                }
            }
            Some(Token::Opens) => open.push((at + length, Vec::new())),
            Some(Token::Closes) => {
                open.pop();
                if open.is_empty() {
                    return None;
                }
            }
            None => {}
        }
        at += length;
    }
    None
}

/// True if a part may be evaluated twice: it calls nothing, or only functions without side effects.
fn may_repeat(mask: &str) -> bool {
    const HARMLESS: [&str; 8] =
        ["len", "int", "float", "abs", "min", "max", "get_rank", "get_world_size"];
    let part = |c: char| c.is_alphanumeric() || c == '_';
    mask.match_indices('(').all(|(at, _)| {
        let name = mask[..at].rsplit(|c| !part(c)).next().unwrap_or_default();
        name.is_empty() || HARMLESS.contains(&name)
    })
}

/// The token that begins there, and its length.
fn token(mask: &str, at: usize) -> (Option<Token>, usize) {
    let rest = &mask[at.min(mask.len())..];
    let Some(first) = rest.chars().next() else { return (None, 1) };
    if ["<=", ">=", "==", "!="].iter().any(|operator| rest.starts_with(operator)) {
        return (Some(Token::Compares), 2);
    }
    if ["->", "<<", ">>", "+=", "-=", "*=", "/=", ":="].iter().any(|two| rest.starts_with(two)) {
        return (Some(Token::Edge), 2);
    }
    let part = |c: char| c.is_alphanumeric() || c == '_';
    match first {
        '<' | '>' => (Some(Token::Compares), 1),
        '=' | ',' | ':' | ';' => (Some(Token::Edge), 1),
        '(' | '[' | '{' => (Some(Token::Opens), 1),
        ')' | ']' | '}' => (Some(Token::Closes), 1),
        c if part(c) => {
            let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
            let edge = WORDS.contains(&&rest[..end]);
            (edge.then_some(Token::Edge), end)
        }
        c => (None, c.len_utf8()),
    }
}
