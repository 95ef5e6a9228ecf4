//! Values of foreign JSON, of which a bounded part is kept.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value of which little is kept, whatever a stranger wrote there. Versions write numbers as such
/// or as texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Small {
    #[default]
    Nothing,
    Number(f64),
    Text(String),
    /// Its first elements.
    List(Vec<Small>),
}

/// The most elements of a list that are kept.
pub(crate) const KEPT: usize = 64;

/// The most characters of a text that are kept.
const KEPT_TEXT: usize = 1 << 20;

impl Small {
    pub(crate) fn text(&self) -> &str {
        match self {
            Small::Text(text) => text,
            _ => "",
        }
    }

    pub(crate) fn real(&self) -> Option<f64> {
        match self {
            Small::Number(number) => Some(*number),
            Small::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// A whole number; `None` if the value is not one, or below 0.
    pub(crate) fn whole(&self) -> Option<u64> {
        const EXACT: f64 = (1u64 << 53) as f64;
        let number = self.real().filter(|number| (0.0..=EXACT).contains(number))?;
        ((number as u64) as f64 == number).then_some(number as u64)
    }

    pub(crate) fn list(&self) -> &[Small] {
        match self {
            Small::List(list) => list,
            _ => &[],
        }
    }

    pub(crate) fn at(&self, at: usize) -> &Small {
        self.list().get(at).unwrap_or(&Small::Nothing)
    }
}

impl<'de> Deserialize<'de> for Small {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Small, D::Error> {
        deserializer.deserialize_any(SmallVisitor)
    }
}

struct SmallVisitor;

impl<'de> Visitor<'de> for SmallVisitor {
    type Value = Small;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Small, E> {
        Ok(Small::Nothing)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Small, E> {
        Ok(Small::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Small, E> {
        Ok(Small::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Small, E> {
        Ok(Small::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Small, E> {
        let end = (0..=text.len().min(KEPT_TEXT)).rev().find(|end| text.is_char_boundary(*end));
        Ok(Small::Text(text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Small, E> {
        Ok(Small::Nothing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Small, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < KEPT {
            match list.next_element()? {
                Some(element) => kept.push(element),
                None => return Ok(Small::List(kept)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Small::List(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Small, A::Error> {
        let Some(first) = map.next_key::<String>()? else { return Ok(Small::Nothing) };
        if first == NUMBER_KEY {
            let number: String = map.next_value()?;
            return Ok(number.parse().map_or(Small::Nothing, Small::Number));
        }
        map.next_value::<IgnoredAny>()?;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Small::Nothing)
    }
}

/// The key under which serde_json hands numbers on where some crate of the program asks for its
/// feature `arbitrary_precision`, as Starlark does: a map of this one entry.
const NUMBER_KEY: &str = "$serde_json::private::Number";
