//! Values as Python prints them: Starlark quotes the texts in a list otherwise.

use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;

/// Lists in each other that are looked into.
const MAX_DEPTH: usize = 16;

/// `str(value)`.
pub(super) fn text(value: Value<'_>) -> String {
    match value.unpack_str() {
        Some(text) => text.to_owned(),
        None => within(value, 0).unwrap_or_else(|| value.to_str()),
    }
}

/// What holds others, in Python's words; nothing for what holds none.
fn within(value: Value<'_>, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(list) = ListRef::from_value(value) {
        return Some(format!("[{}]", all(list.content(), depth)));
    }
    if let Some(tuple) = TupleRef::from_value(value) {
        let comma = if tuple.len() == 1 { "," } else { "" };
        return Some(format!("({}{comma})", all(tuple.content(), depth)));
    }
    let mut pairs = Vec::new();
    for (key, value) in DictRef::from_value(value)?.iter() {
        pairs.push(format!("{}: {}", inner(key, depth), inner(value, depth)));
    }
    Some(format!("{{{}}}", pairs.join(", ")))
}

fn all(values: &[Value<'_>], depth: usize) -> String {
    let texts: Vec<String> = values.iter().map(|value| inner(*value, depth)).collect();
    texts.join(", ")
}

fn inner(value: Value<'_>, depth: usize) -> String {
    match value.unpack_str() {
        Some(text) => quoted(text),
        None => within(value, depth + 1).unwrap_or_else(|| value.to_repr()),
    }
}

/// `repr()` of a text.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}
