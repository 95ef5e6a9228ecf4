//! `[*a, b]` as a call that makes the list, `{a, b}` and `set(…)` as a call that makes a set in Python's order, and `f(x for x in y)` as
//! `f([x for x in y])`: Starlark has neither.

use super::operand::{closing, wrap};

/// Rewrites them in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    generators(text, mask);
    sets(text, mask);
    several_stars(text, mask);
    spread(text, mask);
}

/// `f(x, *a, *b, c, k=1)` as `f(x, *[*a, *b, c], k=1)`: Starlark has one starred argument, and nothing by place
/// behind it.
fn several_stars(text: &mut String, mask: &mut String) {
    let mut before = mask.len();
    while let Some(open) = mask.get(..before).and_then(|rest| rest.rfind('(')) {
        before = open;
        if !is_called(&mask[..open]) || mask[..open].trim_start().starts_with("def ") {
            continue;
        }
        let Some(close) = closing(mask.as_bytes(), open) else { continue };
        let inside = &mask[open + 1..close];
        let mut ends: Vec<usize> =
            top_level(inside).filter(|(_, c)| *c == ',').map(|(at, _)| at).collect();
        ends.push(inside.len());
        let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
        let by_place: Vec<(usize, usize, bool)> = starts
            .zip(&ends)
            .map(|(from, end)| {
                let blank = inside[from..*end].len() - inside[from..*end].trim_start().len();
                (from + blank, *end)
            })
            .take_while(|(from, end)| {
                let part = &inside[*from..*end];
                let name =
                    part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
                let rest = part[name..].trim_start();
                let named = name > 0 && rest.starts_with('=') && !rest.starts_with("==");
                !part.trim().is_empty() && !part.starts_with("**") && !named
            })
            .map(|(from, end)| (from, end, inside[from..end].starts_with('*')))
            .collect();
        let Some(first) = by_place.iter().position(|(.., star)| *star) else { continue };
        let (Some((from, ..)), Some((_, to, _))) = (by_place.get(first), by_place.last()) else {
            continue;
        };
        if first + 1 == by_place.len() {
            continue;
        }
        let (from, to) = (open + 1 + from, open + 1 + to);
        for of in [&mut *text, &mut *mask] {
            of.insert(to, ']');
            of.insert_str(from, "*[");
        }
    }
}

/// `[*a, b]` as `_spread([(True, a), (False, b)])`.
fn spread(text: &mut String, mask: &mut String) {
    let mut before = mask.len();
    while let Some(open) = mask.get(..before).and_then(|rest| rest.rfind('[')) {
        before = open;
        let Some(close) = closing(mask.as_bytes(), open) else { continue };
        let inside = &mask[open + 1..close];
        let mut ends: Vec<usize> =
            top_level(inside).filter(|(_, c)| *c == ',').map(|(at, _)| at).collect();
        ends.push(inside.len());
        let mut from = 0;
        let mut entries = Vec::new();
        for end in ends {
            let entry = &inside[from..end];
            let blank = entry.len() - entry.trim_start().len();
            if !entry.trim().is_empty() {
                let star = entry[blank..].starts_with('*') && !entry[blank..].starts_with("**");
                entries.push((open + 1 + from + blank, open + 1 + end, star));
            }
            from = end + 1;
        }
        // `[a, *b] = …` and `for [a, *b] in …` are targets.
        let behind = mask[close + 1..].trim_start();
        let assigned = behind.starts_with('=') && !behind.starts_with("==");
        let looped = behind.starts_with("in ") && mask[..open].trim_end().ends_with("for");
        if assigned || looped || !entries.iter().any(|(.., star)| *star) {
            continue;
        }
        for of in [&mut *text, &mut *mask] {
            of.insert(close + 1, ')');
            for (from, to, star) in entries.iter().rev() {
                of.insert(*to, ')');
                match star {
                    true => of.replace_range(*from..=*from, "(True, "),
                    false => of.insert_str(*from, "(False, "),
                }
            }
            of.insert_str(open, "_spread(");
        }
    }
}

/// Rewrites generators from the end, so that inner ones come before outer ones.
fn generators(text: &mut String, mask: &mut String) {
    let mut before = mask.len();
    while let Some(open) = mask.get(..before).and_then(|rest| rest.rfind('(')) {
        before = open;
        let Some(close) = closing(mask.as_bytes(), open) else { continue };
        if top_level(&mask[open + 1..close]).any(|(at, c)| {
            let inside = &mask[open + 1..close];
            c == 'f' && is_word(inside, at, "for")
        }) {
            wrap((text, mask), (open + 1, close), "[", "]");
            // An argument's is gone through once, where it is taken.
            if !is_called(&mask[..open]) {
                text.insert_str(open, "_iter");
                mask.insert_str(open, "_iter");
            }
        }
    }
}

/// True if a bracket after this text calls or indexes something.
fn is_called(before: &str) -> bool {
    let before = before.trim_end();
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let word = &before[before.trim_end_matches(part).len()..];
    const KEYWORDS: [&str; 8] = ["in", "return", "and", "or", "not", "if", "else", "lambda"];
    before.ends_with([')', ']']) || (!word.is_empty() && !KEYWORDS.contains(&word))
}

fn sets(text: &mut String, mask: &mut String) {
    let mut before = mask.len();
    while let Some(open) = mask.get(..before).and_then(|rest| rest.rfind('{')) {
        before = open;
        let Some(close) = closing(mask.as_bytes(), open) else { continue };
        let inside = &mask[open + 1..close];
        let dict = top_level(inside)
            .any(|(at, c)| c == ':' || (c == '*' && inside[at..].starts_with("**")));
        if dict || inside.trim().is_empty() {
            continue;
        }
        for of in [&mut *text, &mut *mask] {
            of.replace_range(close..=close, "])");
            of.replace_range(open..=open, "_set([");
        }
    }
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find("set(")) {
        let start = at + found;
        at = start + "set(".len();
        let other = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        if mask[..start].ends_with(other) || mask[..start].ends_with("def ") {
            continue;
        }
        for of in [&mut *text, &mut *mask] {
            of.replace_range(start..at, "_set(");
        }
        at = start + "_set(".len();
    }
}

/// The characters outside of all inner brackets.
fn top_level(mask: &str) -> impl Iterator<Item = (usize, char)> {
    let mut depth = 0usize;
    mask.char_indices().filter(move |(_, c)| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    })
}

fn is_word(mask: &str, at: usize, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let alone = !mask[..at].ends_with(part) && mask[at..].starts_with(word);
    alone && !mask[at + word.len()..].starts_with(part)
}
