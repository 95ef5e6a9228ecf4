//! `mesh["dp", "cp"]` as `mesh[("dp", "cp")]`: the same to Python, and Starlark asks a value for one
//! index only.

use super::operand::closing;

/// Words after which a bracket begins a list, not an index.
const NO_VALUES: [&str; 9] = ["in", "return", "and", "or", "not", "if", "else", "is", "lambda"];

/// Types: `dict[str, int]` of an annotation is one already.
const TYPES: [&str; 6] = ["dict", "tuple", "set", "list", "type", "Callable"];

/// Rewrites them in a statement and its mask, which stay of one length. A part of a tensor
/// (`x[1:2, 3]`) becomes `x[(_slice(1, 2, None), 3)]`.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    slices(text, mask);
    let mut open: Vec<Bracket> = Vec::new();
    let mut tuples: Vec<(usize, usize)> = Vec::new();
    for (at, c) in mask.char_indices() {
        match c {
            '(' | '[' | '{' => {
                let subscript = c == '[' && is_value(&mask[..at]);
                open.push(Bracket { at, subscript, comma: false, colon: false });
            }
            ')' | ']' | '}' => {
                if let Some(Bracket { at: from, subscript: true, comma: true, colon: false }) =
                    open.pop()
                {
                    tuples.push((from, at));
                }
            }
            ',' | ':' => {
                if let Some(bracket) = open.last_mut() {
                    bracket.comma |= c == ',';
                    bracket.colon |= c == ':';
                }
            }
            _ => {}
        }
    }
    let ends = tuples.into_iter().flat_map(|(from, to)| [(from + 1, '('), (to, ')')]);
    let mut ends: Vec<(usize, char)> = ends.collect();
    // From behind, so that what was found before stays where it is.
    ends.sort_unstable();
    for (at, bracket) in ends.into_iter().rev() {
        text.insert(at, bracket);
        mask.insert(at, bracket);
    }
}

/// The slices of indices that have several parts, from behind.
fn slices(text: &mut String, mask: &mut String) {
    let mut before = mask.len();
    while let Some(open) = mask.get(..before).and_then(|rest| rest.rfind('[')) {
        before = open;
        let Some(close) = closing(mask.as_bytes(), open) else { continue };
        let parts = parts(&mask[open + 1..close], ',');
        let several = parts.len() > 1 && is_value(&mask[..open]);
        let colon = |part: &&(usize, usize)| {
            let inside = &mask[open + 1 + part.0..open + 1 + part.1];
            several && self::parts(inside, ':').len() > 1 && !inside.contains("lambda")
        };
        let cut: Vec<(usize, usize)> = parts.iter().filter(colon).copied().collect();
        for part in cut.iter().rev() {
            let (from, to) = (open + 1 + part.0, open + 1 + part.1);
            let inside = self::parts(&mask[from..to], ':');
            for of in [&mut *text, &mut *mask] {
                let mut bounds: Vec<String> = inside
                    .iter()
                    .map(|(start, end)| of[from + start..from + end].trim().to_owned())
                    .map(|bound| if bound.is_empty() { "None".to_owned() } else { bound })
                    .collect();
                bounds.resize(3, "None".to_owned());
                of.replace_range(from..to, &format!("_slice({})", bounds.join(", ")));
            }
        }
    }
}

/// The parts between the separators that are outside of all brackets.
fn parts(mask: &str, separator: char) -> Vec<(usize, usize)> {
    let mut depth = 0usize;
    let mut from = 0;
    let mut found = Vec::new();
    for (at, c) in mask.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            c if c == separator && depth == 0 => {
                found.push((from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push((from, mask.len()));
    found
}

struct Bracket {
    at: usize,
    /// True if the bracket follows a value.
    subscript: bool,
    comma: bool,
    colon: bool,
}

/// True if a text ends with a value: a name, or something in brackets.
fn is_value(before: &str) -> bool {
    if before.ends_with([')', ']']) {
        return true;
    }
    let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    !name.is_empty() && !NO_VALUES.contains(&name) && !TYPES.contains(&name)
}
