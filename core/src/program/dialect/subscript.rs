//! `mesh["dp", "cp"]` as `mesh[("dp", "cp")]`: the same to Python, and Starlark asks a value for one
//! index only.

/// Words after which a bracket begins a list, not an index.
const NO_VALUES: [&str; 9] = ["in", "return", "and", "or", "not", "if", "else", "is", "lambda"];

/// Types: `dict[str, int]` of an annotation is one already.
const TYPES: [&str; 6] = ["dict", "tuple", "set", "list", "type", "Callable"];

/// Rewrites them in a statement and its mask, which stay of one length. Parts of a tensor
/// (`x[1:2, 3]`) are left as they are.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
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

struct Bracket {
    at: usize,
    /// Whether it follows a value.
    subscript: bool,
    comma: bool,
    colon: bool,
}

/// Whether a text ends with a value: a name, or something in brackets.
fn is_value(before: &str) -> bool {
    if before.ends_with([')', ']']) {
        return true;
    }
    let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    !name.is_empty() && !NO_VALUES.contains(&name) && !TYPES.contains(&name)
}
