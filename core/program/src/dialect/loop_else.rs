//! `for … else` and `while … else`: each `break` of such a loop notes in its process that it left the loop,
//! and the `else` asks for the note. Line numbers do not change.

use crate::dialect::scan::{self, Logical};
use crate::dialect::words::first_word;
use std::borrow::Cow;

/// Rewrites the loops of a program that have an `else`.
pub(super) fn rewrite(text: &str) -> Cow<'_, str> {
    if !text.contains("else") {
        return Cow::Borrowed(text);
    }
    let Ok(mut statements) = scan::scan(text) else { return Cow::Borrowed(text) };
    let mut changed: Vec<usize> = Vec::new();
    for at in 0..statements.len() {
        let Some(head) = loop_of(&statements, at) else { continue };
        let name = statements.get(head).map_or(0, |head| head.first);
        for own in breaks_of(&statements, head, at).into_iter().chain([at]) {
            let Some(statement) = statements.get_mut(own) else { continue };
            if own == at {
                put(statement, "else", &format!("if not _broke({name})"));
            } else {
                put(statement, "break", &format!("_breaks({name}); break"));
            }
            changed.push(own);
        }
    }
    if changed.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for own in changed.iter().filter_map(|at| statements.get(*at)) {
        for (line, text) in lines.iter_mut().skip(own.first).zip(own.text.split('\n')) {
            text.clone_into(line);
        }
    }
    Cow::Owned(lines.join("\n") + "\n")
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces a whole word of a statement everywhere; of `else` the one that opens a block.
fn put(own: &mut Logical, name: &str, with: &str) {
    let places: Vec<usize> = own.mask.match_indices(name).map(|(at, _)| at).collect();
    for at in places.into_iter().rev() {
        let (front, behind) = (&own.mask[..at], &own.mask[at + name.len()..]);
        let opens = name != "else" || front.trim().is_empty();
        if !opens || front.ends_with(word) || behind.starts_with(word) {
            continue;
        }
        for of in [&mut own.text, &mut own.mask] {
            of.replace_range(at..at + name.len(), with);
        }
    }
}

/// The loop that an `else` belongs to, if it is one of a loop.
fn loop_of(statements: &[Logical], at: usize) -> Option<usize> {
    let own = statements.get(at)?;
    let head = own.mask.trim_start();
    if first_word(head) != "else" || !head["else".len()..].trim_start().starts_with(':') {
        return None;
    }
    let before = statements.get(..at)?;
    let opener = before.iter().rposition(|one| one.indent <= own.indent)?;
    let one = before.get(opener).filter(|one| one.indent == own.indent)?;
    ["for", "while"].contains(&first_word(one.mask.trim_start())).then_some(opener)
}

/// The statements between a loop and its `else` that hold a `break` of it.
fn breaks_of(statements: &[Logical], head: usize, end: usize) -> Vec<usize> {
    // The loops and functions that a statement stands in, by how far in they stand.
    let mut inner: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for (at, own) in statements.iter().enumerate().take(end).skip(head + 1) {
        inner.retain(|indent| *indent < own.indent);
        let opens = ["for", "while", "def"].contains(&first_word(own.mask.trim_start()));
        if inner.is_empty() && !opens && own.mask.contains("break") {
            found.push(at);
        }
        if opens {
            inner.push(own.indent);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn an_else_of_a_loop_asks_whether_it_was_left() {
        let text = "for i in x:\n    if i: break\n    for j in y:\n        break\n    else:\n        \
                    break\nelse:\n    z = 1 if a else 2\n";
        let made = "for i in x:\n    if i: _breaks(0); break\n    for j in y:\n        _breaks(2); \
                    break\n    if not _broke(2):\n        _breaks(0); break\nif not _broke(0):\n    \
                    z = 1 if a else 2\n";
        assert_eq!(rewrite(text), made);
        for stays in ["if x:\n    break\nelse:\n    y\n", "try:\n    x\nexcept: y\nelse:\n    z\n"]
        {
            assert_eq!(rewrite(stays), stays);
        }
    }
}
