//! The targets that an assignment gives values to: names, parts of something, and several in each other.

use std::ops::Range;

/// The target that a statement gives a value to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A name.
    Name,
    /// A part of something: `d[key]`, `object.name`. Giving it a value may raise as well.
    Part,
    /// Several targets: their nesting, and the range of each.
    Several(String, Vec<Range<usize>>),
    /// An augmented target, whose old value takes part: `x //= y`, with where the operator begins.
    Augmented(usize),
}

/// Targets in each other that are looked through.
const MAX_DEPTH: usize = 32;

/// The end of an assignment's target, with its operator, and the kind of target.
pub(super) fn assigned(mask: &str) -> Option<(usize, Target)> {
    let mut depth = 0_usize;
    let bytes = mask.as_bytes();
    let at = bytes.iter().enumerate().find_map(|(at, c)| {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'=' if depth == 0 => {
                let next = bytes.get(at + 1) == Some(&b'=');
                let before = at.checked_sub(1).and_then(|at| bytes.get(at));
                let shifts = mask[..at].ends_with("<<") || mask[..at].ends_with(">>");
                if !next && (shifts || !before.is_some_and(|c| b"=<>!".contains(c))) {
                    return Some(at);
                }
            }
            _ => {}
        }
        None
    })?;
    let left = mask[..at].trim_end_matches(|c: char| "+-*/%@&|^<>".contains(c));
    if left.len() < at {
        return Some((at + 1, Target::Augmented(left.len())));
    }
    let mut places = Vec::new();
    let shape = shape(mask, 0..at, 0, &mut places);
    let target = match &places[..] {
        _ if shape != "0" => Target::Several(shape, places),
        [one] if is_part(&mask[one.clone()]) => Target::Part,
        _ => Target::Name,
    };
    Some((at + 1, target))
}

/// True if assigning to a target may raise: the target is an item or an attribute.
pub(super) fn is_part(target: &str) -> bool {
    target.contains(['[', '.'])
}

/// The nesting of targets: 0 is one target, another number is so many side by side, and brackets hold each
/// nested group. Adds the range of each target to `places`.
fn shape(mask: &str, of: Range<usize>, depth: usize, places: &mut Vec<Range<usize>>) -> String {
    let text = &mask[of.clone()];
    let from = of.start + text.len() - text.trim_start().len();
    let inner = from..from + text.trim().len();
    let own = &mask[inner.clone()];
    let whole = own.starts_with(['(', '[']) && closes(own) == Some(own.len() - 1);
    let within = if whole { inner.start + 1..inner.end - 1 } else { inner.clone() };
    let mut parts = commas(mask, within.clone());
    let alone = parts.len() == 1;
    if depth >= MAX_DEPTH || (alone && !whole) {
        places.push(inner);
        return "0".to_owned();
    }
    // `(a)` is `a`, but `[a]` is one of one.
    if alone && own.starts_with('(') {
        return shape(mask, within, depth + 1, places);
    }
    // Behind the last comma there may be nothing.
    parts.retain(|part| !mask[part.clone()].trim().is_empty());
    let each = parts.into_iter().map(|part| shape(mask, part, depth + 1, places));
    let each: Vec<String> = each.collect();
    match each.iter().all(|one| one == "0") && !each.is_empty() {
        true => each.len().to_string(),
        false => format!("({},)", each.join(", ")).replace("(,)", "()"),
    }
}

/// The place where the bracket closes that a text begins with.
fn closes(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.bytes().position(|c| {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// The parts of a text between its commas.
fn commas(mask: &str, of: Range<usize>) -> Vec<Range<usize>> {
    let mut depth = 0_usize;
    let mut from = of.start;
    let mut parts = Vec::new();
    for (at, c) in mask[of.clone()].bytes().enumerate() {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(from..of.start + at);
                from = of.start + at + 1;
            }
            _ => {}
        }
    }
    parts.push(from..of.end);
    parts
}
