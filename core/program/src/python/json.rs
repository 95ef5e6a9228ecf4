//! Python's `json`: `dumps` and `loads`, with which programs put settings into stores.

use crate::dist::arguments::items;
use crate::process::raised::Raised;
use crate::python::float::{float_of, repr as float_repr};
use crate::python::type_error::{class_of, type_error};
use crate::stores::bytes_of;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};
use std::fmt;

/// Lists and dicts inside of each other.
const MAX_DEPTH: usize = 100;
/// Bytes of a text that is written.
const MAX_BYTES: usize = 1 << 20;

/// Adds `json`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("json", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn dumps<'v>(
        obj: Value<'v>,
        #[starlark(require = named, default = NoneType)] indent: Value<'v>,
        #[starlark(require = named, default = false)] sort_keys: bool,
        #[starlark(require = named, default = NoneType)] separators: Value<'v>,
        #[starlark(require = named, default = true)] ensure_ascii: bool,
    ) -> anyhow::Result<String> {
        let indent = indent.unpack_i32().map(|indent| indent.clamp(0, 16) as usize);
        let texts = items(separators).unwrap_or_default();
        let separator = |at: usize, otherwise: &str| {
            let given = texts.get(at).and_then(|text| text.unpack_str());
            given.unwrap_or(otherwise).to_owned()
        };
        let between = separator(0, if indent.is_some() { "," } else { ", " });
        let colon = separator(1, ": ");
        let mut written =
            Written { text: String::new(), indent, sort_keys, ensure_ascii, between, colon };
        written.value(obj, 0)?;
        Ok(written.text)
    }

    fn loads<'v>(text: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let Some(bytes) = bytes_of(text) else {
            let class = class_of(text);
            let text = format!("the JSON object must be str, bytes or bytearray, not {class}");
            return Err(type_error(text));
        };
        let mut read = serde_json::Deserializer::from_slice(&bytes);
        let value = Read(heap).deserialize(&mut read).and_then(|value| read.end().map(|()| value));
        value.map_err(|error| {
            let text = format!("JSONDecodeError: {error}");
            anyhow::Error::new(Raised { text, help: None })
        })
    }
}

/// A text under writing, as `json.dumps` writes it.
struct Written {
    text: String,
    indent: Option<usize>,
    sort_keys: bool,
    ensure_ascii: bool,
    between: String,
    colon: String,
}

impl Written {
    fn value(&mut self, value: Value<'_>, depth: usize) -> anyhow::Result<()> {
        anyhow::ensure!(
            depth < MAX_DEPTH && self.text.len() < MAX_BYTES,
            "json.dumps writes {MAX_BYTES} bytes and {MAX_DEPTH} lists in each other at most here"
        );
        if let Some(text) = value.unpack_str() {
            self.string(text);
        } else if let Some(entries) = DictRef::from_value(value) {
            let mut entries: Vec<(String, Value<'_>)> =
                entries.iter().map(|(key, value)| (key_of(key), value)).collect();
            if self.sort_keys {
                entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            self.block(('{', '}'), entries, depth, |out, (key, value)| {
                out.string(&key);
                out.text.push_str(&out.colon.clone());
                out.value(value, depth + 1)
            })?;
        } else if let Some(entries) = items(value) {
            self.block(('[', ']'), entries, depth, |out, value| out.value(value, depth + 1))?;
        } else {
            match scalar(value) {
                Some(text) => self.text.push_str(&text),
                None => {
                    let class = class_of(value);
                    // The program raises nothing there: the value is one that only a run gives.
                    anyhow::ensure!(
                        class != "unknown",
                        "what only a run gives has no value here that could be written as JSON: print it instead"
                    );
                    let text = format!("Object of type {class} is not JSON serializable");
                    return Err(type_error(text));
                }
            }
        }
        Ok(())
    }

    fn block<T>(
        &mut self,
        (open, close): (char, char),
        entries: Vec<T>,
        depth: usize,
        mut write: impl FnMut(&mut Written, T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.text.push(open);
        let empty = entries.is_empty();
        for (nth, entry) in entries.into_iter().enumerate() {
            if nth > 0 {
                self.text.push_str(&self.between.clone());
            }
            self.line(depth + 1);
            write(self, entry)?;
        }
        if !empty {
            self.line(depth);
        }
        self.text.push(close);
        Ok(())
    }

    /// A line of its own, where there is an indentation.
    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        self.text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }
}

/// The JSON of a value that is neither a text nor a list nor a dict.
fn scalar(value: Value<'_>) -> Option<String> {
    if value.is_none() {
        return Some("null".to_owned());
    }
    if let Some(float) = float_of(value) {
        return Some(match float {
            _ if float.is_nan() => "NaN".to_owned(),
            f64::INFINITY => "Infinity".to_owned(),
            f64::NEG_INFINITY => "-Infinity".to_owned(),
            float => float_repr(float),
        });
    }
    match (value.unpack_bool(), value.get_type()) {
        (Some(yes), _) => Some(yes.to_string()),
        (None, "int") => Some(value.to_str()),
        _ => None,
    }
}

/// A key, which JSON has as texts only.
fn key_of(key: Value<'_>) -> String {
    let text = key.unpack_str().map(str::to_owned);
    text.or_else(|| scalar(key)).unwrap_or_else(|| key.to_str())
}

/// Reads a text, in the order that it has.
#[derive(Clone, Copy)]
struct Read<'v>(Heap<'v>);

impl<'v, 'de> DeserializeSeed<'de> for Read<'v> {
    type Value = Value<'v>;

    fn deserialize<D: Deserializer<'de>>(self, read: D) -> Result<Value<'v>, D::Error> {
        read.deserialize_any(self)
    }
}

impl<'v, 'de> Visitor<'de> for Read<'v> {
    type Value = Value<'v>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value<'v>, E> {
        Ok(Value::new_none())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value<'v>, E> {
        Ok(Value::new_bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value<'v>, E> {
        Ok(self.0.alloc(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value<'v>, E> {
        Ok(self.0.alloc(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value<'v>, E> {
        Ok(self.0.alloc(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value<'v>, E> {
        Ok(self.0.alloc(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value<'v>, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element_seed(self)? {
            list.push(entry);
        }
        Ok(self.0.alloc(AllocList(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value<'v>, A::Error> {
        let mut dict: Vec<(Value<'v>, Value<'v>)> = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            // serde_json's way to hand over a number as it was written.
            if key == "$serde_json::private::Number" {
                let text: String = entries.next_value()?;
                let number = text.parse::<f64>().map_err(A::Error::custom)?;
                return Ok(self.0.alloc(number));
            }
            dict.push((self.0.alloc(key), entries.next_value_seed(self)?));
        }
        Ok(self.0.alloc(AllocDict(dict)))
    }
}
