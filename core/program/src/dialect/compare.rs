//! `a == b` as `_same(a, b)`, `a is b` as `_is(a, b)`, `a in b` as `_among(b, a)`, and their opposites. The
//! interpreter asks a literal, or the left side, whether it equals the other side, and a number or a text of
//! Starlark's misjudges values that it does not know. A value that is known only when a program runs must be
//! able to say so on either side.

use super::chain::WORDS;

/// The comparison that a call is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Same,
    Is,
    Among,
    /// An operator that stays as it is, unless its result is used directly: `(a < b).sum()`.
    Other(&'static str),
}

/// An operator and its place.
#[derive(Clone, Copy, Debug)]
struct Found {
    operator: Operator,
    negated: bool,
    from: usize,
    to: usize,
}

/// The part between two edges.
#[derive(Clone, Debug)]
struct Part {
    from: usize,
    /// True if the next `in` belongs to a `for`.
    of_for: bool,
    /// True if the part is the argument of a print.
    printed: bool,
    found: Vec<Found>,
}

impl Part {
    fn at(from: usize) -> Part {
        Part { from, of_for: false, printed: false, found: Vec::new() }
    }
}

/// One place of a text that changes.
struct Edit {
    at: usize,
    taken: usize,
    put: &'static str,
}

/// Rewrites them in a statement and its mask, which stay of one length; `all` says that classes of the
/// program say which of two is less.
pub(super) fn rewrite(text: &mut String, mask: &mut String, all: bool) {
    let mut edits = Vec::new();
    let mut open = vec![Part::at(0)];
    let mut at = 0;
    while at < mask.len() {
        let (token, length) = token(mask, at);
        let Some(part) = open.last_mut() else { return };
        match token {
            Token::Compares(operator, negated) => match (operator, part.of_for) {
                (Operator::Among, true) => *part = Part::at(at + length),
                _ => part.found.push(Found { operator, negated, from: at, to: at + length }),
            },
            Token::Edge => {
                edits.extend(call(mask, part, at, all));
                let of_for = part.of_for || mask[at..].starts_with("for");
                *part = Part { of_for, printed: part.printed, ..Part::at(at + length) };
            }
            Token::Opens => {
                let front = &mask[..at];
                let printed = mask[at..].starts_with('(')
                    && front.strip_suffix("print").is_some_and(|front| !front.ends_with(named));
                open.push(Part { printed, ..Part::at(at + length) });
            }
            Token::Closes => {
                edits.extend(call(mask, part, at, all));
                open.pop();
            }
            Token::Nothing => {}
        }
        at += length;
    }
    if let [part] = &open[..] {
        edits.extend(call(mask, part, mask.len(), all));
    }
    edits.sort_by_key(|edit| edit.at);
    for edit in edits.into_iter().rev() {
        for of in [&mut *text, &mut *mask] {
            of.replace_range(edit.at..edit.at + edit.taken, edit.put);
        }
    }
}

fn named(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.')
}

/// The edits that make a call of the comparison that ends there; none if there is no comparison, or more than
/// one.
fn call(mask: &str, part: &Part, end: usize, all: bool) -> Vec<Edit> {
    let [Found { operator, negated, from, to }] = part.found[..] else { return Vec::new() };
    let blank = |text: &str| text.len() - text.trim_start().len();
    let start = part.from + blank(&mask[part.from..from]);
    let right = to + blank(&mask[to..end]);
    // A comparison in parentheses of its own, behind which a method stands.
    let alone = mask[..part.from].ends_with('(')
        && mask[end..].trim_start().starts_with(").")
        && !mask[..part.from - 1].ends_with(|c: char| c.is_alphanumeric() || "_)]".contains(c));
    // `mask = x > 2`, and nothing more.
    let given = end == mask.len()
        && mask[..part.from].ends_with('=')
        && !mask[..part.from - 1].ends_with(['=', '<', '>', '!'])
        && !mask[..part.from].contains(['(', '[', '{', ':']);
    let stored = given && !alone && !part.printed;
    let alone = alone || part.printed || given;
    let end = mask[..end].trim_end().len();
    if start >= from || right >= end {
        return Vec::new();
    }
    let put = match (operator, negated) {
        (Operator::Same, true) if alone => "_differs(",
        // A name may hold an answer that nobody knows yet.
        (Operator::Other("<"), _) if stored => "_given_less(",
        (Operator::Other(">"), _) if stored => "_given_greater(",
        (Operator::Other("<="), _) if stored => "_given_at_most(",
        (Operator::Other(">="), _) if stored => "_given_at_least(",
        (Operator::Other("<"), _) if alone || all => "_less(",
        (Operator::Other(">"), _) if alone || all => "_greater(",
        (Operator::Other("<="), _) if alone || all => "_at_most(",
        (Operator::Other(">="), _) if alone || all => "_at_least(",
        (Operator::Same, false) => "_same(",
        (Operator::Same, true) => "not _same(",
        (Operator::Is, false) => "_is(",
        (Operator::Is, true) => "not _is(",
        (Operator::Among, false) => "_among(",
        (Operator::Among, true) => "not _among(",
        (Operator::Other(_), _) => return Vec::new(),
    };
    let left = mask[..from].trim_end().len();
    vec![
        Edit { at: start, taken: 0, put },
        Edit { at: left, taken: right - left, put: ", " },
        Edit { at: end, taken: 0, put: ")" },
    ]
}

enum Token {
    /// An operator of a comparison, and whether it is the opposite.
    Compares(Operator, bool),
    /// An end of a comparison.
    Edge,
    Opens,
    Closes,
    Nothing,
}

/// The token that begins there, and its length.
fn token(mask: &str, at: usize) -> (Token, usize) {
    let rest = &mask[at..];
    let two = rest.get(..2).unwrap_or_default();
    match two {
        "==" => return (Token::Compares(Operator::Same, false), 2),
        "!=" => return (Token::Compares(Operator::Same, true), 2),
        "<=" => return (Token::Compares(Operator::Other("<="), false), 2),
        ">=" => return (Token::Compares(Operator::Other(">="), false), 2),
        "<<" | ">>" | "//" | "**" => return (Token::Nothing, 2),
        "->" | "+=" | "-=" | "*=" | "/=" | "%=" | "|=" | "&=" | "^=" | ":=" => {
            return (Token::Edge, 2);
        }
        _ => {}
    }
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let Some(first) = rest.chars().next() else { return (Token::Nothing, 1) };
    match first {
        '<' => (Token::Compares(Operator::Other("<"), false), 1),
        '>' => (Token::Compares(Operator::Other(">"), false), 1),
        '=' | ',' | ':' | ';' => (Token::Edge, 1),
        '(' | '[' | '{' => (Token::Opens, 1),
        ')' | ']' | '}' => (Token::Closes, 1),
        c if part(c) => {
            let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
            let after = rest[end..].trim_start();
            let next = &after[..after.find(|c| !part(c)).unwrap_or(after.len())];
            let both = rest.len() - after.len() + next.len();
            match (&rest[..end], next) {
                // An attribute of such a name is not a keyword.
                _ if mask[..at].ends_with('.') => (Token::Nothing, end),
                ("is", "not") => (Token::Compares(Operator::Is, true), both),
                ("is", _) => (Token::Compares(Operator::Is, false), end),
                ("not", "in") => (Token::Compares(Operator::Among, true), both),
                ("in", _) => (Token::Compares(Operator::Among, false), end),
                (word, _) if WORDS.contains(&word) => (Token::Edge, end),
                _ => (Token::Nothing, end),
            }
        }
        c => (Token::Nothing, c.len_utf8()),
    }
}
