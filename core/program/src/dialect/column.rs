//! Maps columns of a rewritten line to the line that it came from: insertions for the interpreter
//! move the rest of a line.

/// Functions that are written around existing code, and so begin where it begins.
const AROUND: [&str; 9] = [
    "_same(",
    "_is(",
    "_among(",
    "_differs(",
    "_less(",
    "_greater(",
    "_at_most(",
    "_at_least(",
    "_truth(",
];

/// The column of the same word in the original, counted from 0 in characters; the column itself
/// where there is no such word.
pub(crate) fn of(rewritten: &str, column: usize, original: &str) -> usize {
    if rewritten == original {
        return column;
    }
    let mut at = rewritten.char_indices().nth(column).map_or(rewritten.len(), |(at, _)| at);
    while let Some(around) = AROUND.iter().find(|around| rewritten[at..].starts_with(**around)) {
        at += around.len();
    }
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let rest = &rewritten[at..];
    let word = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
    if word.is_empty() {
        return column;
    }
    let before = places(rewritten, word).filter(|place| *place < at).count();
    let found = places(original, word).nth(before);
    found.map_or(column, |found| original[..found].chars().count())
}

/// The first byte of a word in a text.
pub(crate) fn first(text: &str, word: &str) -> Option<usize> {
    places(text, word).next()
}

/// The places of a word in a text.
fn places<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !text[..*at].ends_with(part) && !text[*at + word.len()..].starts_with(part)
    })
}
