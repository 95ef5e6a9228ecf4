//! `if (n := f()) > 2:` as `n = f()` on a line in front of it; in a comprehension's condition as another
//! `for` of one turn: `[y for x in z for y in [f(x)] if y]`.

use super::inline::body;
use super::operand::{closing, opening};
use super::scan::Logical;
use super::words::first_word;
use lockstep_scenarios::program::ProgramError;

/// The assignments to write before a statement with `:=`, and the statement without them; `None` if it has no
/// `:=`.
///
/// # Errors
/// The named value may not be evaluated at all, or only later.
pub(super) fn hoisted(
    statement: &Logical,
) -> Result<Option<(Vec<Logical>, Logical)>, ProgramError> {
    if !statement.mask.contains(":=") {
        return Ok(None);
    }
    let mut own = statement.clone();
    let mut front = Vec::new();
    let refused = || {
        let why =
            "what this `:=` gives a value to may not be reached: the order is not followed here";
        Err(ProgramError::at(statement.first, 0, why)
            .with_help("Give the name its value on a line of its own, in front of this one."))
    };
    // From behind, so that what stands in another one's value is still there; the order is that in front.
    while let Some(operator) = own.mask.find(":=") {
        let Some(found) = Found::at(&own.mask, operator) else { return refused() };
        let name = own.mask[found.start..operator].trim().to_owned();
        let cut = |of: &str| of[operator + 2..found.end].trim().to_owned();
        let (value, masked) = (cut(&own.text), cut(&own.mask));
        if let Some((from, condition)) = comprehension(&own.mask, found.start) {
            let Some(condition) = condition else { return refused() };
            if found.start < from {
                return refused();
            }
            for (of, value) in [(&mut own.text, &value), (&mut own.mask, &masked)] {
                of.replace_range(found.start..found.end, &name);
                of.insert_str(condition, &format!("for {name} in [{value}] "));
            }
            continue;
        }
        let head = own.mask.trim_start();
        let behind = body(&own.mask).is_some_and(|body| found.start >= body);
        if first_word(head) == "elif" || behind || !is_reached(&own.mask[..found.start]) {
            return refused();
        }
        let put = |value: &str| format!("{:1$}{name} = {value}", "", own.indent);
        let (text, mask) = (put(&value), put(&masked));
        front.push(Logical { text, mask, ..statement.clone() });
        for of in [&mut own.text, &mut own.mask] {
            of.replace_range(found.start..found.end, &name);
        }
    }
    Ok(Some((front, own)))
}

/// The places of a name and its value.
struct Found {
    start: usize,
    end: usize,
}

impl Found {
    fn at(mask: &str, operator: usize) -> Option<Found> {
        let front = mask[..operator].trim_end();
        let length = front.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').count();
        let start = front.char_indices().rev().nth(length.checked_sub(1)?).map(|(at, _)| at)?;
        let mut depth = 0_usize;
        for (at, c) in mask.char_indices().filter(|(at, _)| *at >= operator + 2) {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' if depth == 0 => return Some(Found { start, end: at }),
                ')' | ']' | '}' => depth -= 1,
                ',' | ':' if depth == 0 => return Some(Found { start, end: at }),
                _ => {}
            }
        }
        Some(Found { start, end: mask.trim_end().len() })
    }
}

/// True if a text contains a name as a whole word.
fn has_word(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

/// True if the expression after this text is always evaluated.
fn is_reached(front: &str) -> bool {
    let inner = front.trim_start();
    let rest = &inner[first_word(inner).len()..];
    !["and", "or", "if", "else", "lambda"].iter().any(|name| has_word(rest, name))
}

/// The bracket of the comprehension around a place, and the start of the condition around it.
fn comprehension(mask: &str, at: usize) -> Option<(usize, Option<usize>)> {
    let mut before = at;
    loop {
        // The bracket that is open there.
        let text = format!("{})", &mask[..before]);
        let open = opening(text.as_bytes())?;
        if !mask.get(open..=open).is_some_and(|c| "([{".contains(c)) || open >= before {
            return None;
        }
        let close = closing(mask.as_bytes(), open)?;
        let level = flat(&mask[open + 1..close]);
        if has_word(&level, "for") {
            let place = level.get(..at - open - 1)?;
            let condition = place.rfind(" if ").map(|found| open + 1 + found + 1);
            return Some((open, condition));
        }
        before = open;
    }
}

/// A text with the contents of its brackets blanked out, of the same length.
fn flat(text: &str) -> String {
    let mut depth = 0_usize;
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        let closes = matches!(c, ')' | ']' | '}');
        depth = depth.saturating_sub(usize::from(closes));
        match depth {
            0 => made.push(c),
            _ => made.extend(std::iter::repeat_n('.', c.len_utf8())),
        }
        depth += usize::from(matches!(c, '(' | '[' | '{'));
    }
    made
}
