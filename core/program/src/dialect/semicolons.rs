//! `import torch; import os`, `import torch; x = 1`: several statements in a line, of which
//! one is written in other words.

use super::scan::Logical;
use super::starred;
use std::borrow::Cow;

/// Words of statements that are written anew as a whole.
const ANEW: [&str; 4] = ["import", "from", "raise", "assert"];

/// The statements of a line, each as one of its own where that matters; the line itself elsewhere.
pub(super) fn parts(statement: &Logical) -> Vec<Cow<'_, Logical>> {
    let whole = || vec![Cow::Borrowed(statement)];
    let Some(cuts) = cuts(&statement.mask) else { return whole() };
    let starts = cuts.iter().map(|cut| cut + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(starts).collect();
    let ends = cuts.iter().copied().chain([statement.mask.len()]);
    let ranges: Vec<(usize, usize)> = starts.into_iter().zip(ends).collect();
    let word = |(from, to): &(usize, usize)| {
        super::words::first_word(statement.mask[*from..*to].trim_start())
    };
    let anew = ranges.iter().any(|range| {
        let word = word(range);
        let called = statement.mask[range.0..range.1].trim_start()[word.len()..].starts_with('(');
        (ANEW.contains(&word) && !called) || starred::is_one(&statement.mask[range.0..range.1])
    });
    if ranges.len() < 2 || !anew {
        return whole();
    }
    let part = |(from, to): (usize, usize)| {
        let bare = &statement.mask[from..to];
        let from = from + bare.len() - bare.trim_start().len();
        let indented = |of: &str| format!("{:1$}{2}", "", statement.indent, &of[from..to]);
        (from < to).then(|| {
            Cow::Owned(Logical {
                text: indented(&statement.text),
                mask: indented(&statement.mask),
                ..statement.clone()
            })
        })
    };
    ranges.into_iter().filter_map(part).collect()
}

/// The places of its semicolons; `None` for a line that begins a block.
fn cuts(mask: &str) -> Option<Vec<usize>> {
    if !mask.contains(';') {
        return None;
    }
    let mut cuts = Vec::new();
    let mut depth = 0_usize;
    let mut lambda = false;
    for (at, c) in mask.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            'l' if mask[at..].starts_with("lambda") => lambda = true,
            ':' if depth == 0 && lambda => lambda = false,
            // An annotation has its colon behind a name, a block its one behind a word.
            ':' if depth == 0 => {
                let head = super::words::first_word(mask.trim_start());
                let opens = ["if", "elif", "else", "for", "while", "with", "def"].contains(&head);
                if opens && cuts.is_empty() {
                    return None;
                }
            }
            ';' if depth == 0 => cuts.push(at),
            _ => {}
        }
    }
    Some(cuts)
}
