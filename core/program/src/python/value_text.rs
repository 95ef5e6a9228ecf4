//! Values as Python prints them: Starlark quotes the texts in a list otherwise, and its floats have
//! six digits.

use crate::python::builtin_classes::CLASSES;
use crate::python::float::float_of;
use crate::python::float::repr as float_repr;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

/// Lists in each other that are looked into.
const MAX_DEPTH: usize = 16;

/// `str(value)`.
pub(crate) fn text<'v>(value: Value<'v>, heap: Heap<'v>) -> String {
    match value.unpack_str() {
        Some(text) => text.to_owned(),
        None => within(value, 0, heap).unwrap_or_else(|| value.to_str()),
    }
}

/// `repr(value)`.
pub(crate) fn repr<'v>(value: Value<'v>, heap: Heap<'v>) -> String {
    inner(value, 0, heap)
}

/// Python's text for a value that the interpreter shows differently; `None` for all others.
fn within<'v>(value: Value<'v>, depth: usize, heap: Heap<'v>) -> Option<String> {
    if let Some(float) = float_of(value) {
        return Some(float_repr(float));
    }
    if depth > MAX_DEPTH {
        return None;
    }
    if value.get_type() == "function" {
        let name = value.to_repr();
        let class =
            CLASSES.contains(&name.as_str()) || crate::python::exception_classes::is_class(&name);
        return class.then(|| format!("<class '{name}'>"));
    }
    if let Some(list) = ListRef::from_value(value) {
        return Some(format!("[{}]", all(list.content(), depth, heap)));
    }
    if let Some(tuple) = TupleRef::from_value(value) {
        let comma = if tuple.len() == 1 { "," } else { "" };
        return Some(format!("({}{comma})", all(tuple.content(), depth, heap)));
    }
    if value.get_type() == "set" {
        let items: Vec<_> = value.iterate(heap).ok()?.collect();
        return Some(match items.is_empty() {
            true => "set()".to_owned(),
            false => format!("{{{}}}", all(&items, depth, heap)),
        });
    }
    let mut pairs = Vec::new();
    for (key, value) in DictRef::from_value(value)?.iter() {
        pairs.push(format!("{}: {}", inner(key, depth, heap), inner(value, depth, heap)));
    }
    Some(format!("{{{}}}", pairs.join(", ")))
}

fn all<'v>(values: &[Value<'v>], depth: usize, heap: Heap<'v>) -> String {
    let texts: Vec<String> = values.iter().map(|value| inner(*value, depth, heap)).collect();
    texts.join(", ")
}

fn inner<'v>(value: Value<'v>, depth: usize, heap: Heap<'v>) -> String {
    match value.unpack_str() {
        Some(text) => quoted(text),
        None => within(value, depth + 1, heap).unwrap_or_else(|| value.to_repr()),
    }
}

/// `repr()` of a text.
pub(crate) fn quoted(text: &str) -> String {
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

/// The name of a function where it is defined: `<lambda>` of one without a name, and of a method
/// its name in its class.
pub(crate) fn function_name(of: Value<'_>) -> Option<String> {
    let shown = of.to_repr();
    let name = shown.rsplit('.').next().unwrap_or(&shown);
    let name = name.rsplit("__method__").next().unwrap_or(name);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match name {
        "lambda" => Some("<lambda>".to_owned()),
        _ => (!name.is_empty() && name.chars().all(word)).then(|| name.to_owned()),
    }
}
