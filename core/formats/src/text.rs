//! Texts among the files: their encodings, and how they differ from JSON and binary files.
//!
//! PowerShell's `>` writes UTF-16, and others put a mark before UTF-8. Only a byte order mark shows this, and
//! no dump, archive or profile begins with one.

use std::borrow::Cow;

/// True if bytes begin like an object, or a list of objects: a log begins with `[rank0]:` or `[Gloo]` as
/// often.
pub(crate) fn begins_as_json(bytes: &[u8]) -> bool {
    match bytes.trim_ascii_start() {
        [b'{', ..] => true,
        [b'[', rest @ ..] => {
            matches!(rest.trim_ascii_start().first(), None | Some(b'{' | b']'))
        }
        _ => false,
    }
}

/// True for bytes that begin like a text, which only pickles of protocol 0 do as well.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    let start = bytes.get(..bytes.len().min(64)).unwrap_or_default();
    start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// The bytes of a text with a byte order mark in UTF-8, without the mark; all others as they are.
pub fn in_utf8(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => Cow::Borrowed(rest),
        [0xFF, 0xFE, rest @ ..] => Cow::Owned(from_units(rest, u16::from_le_bytes)),
        [0xFE, 0xFF, rest @ ..] => Cow::Owned(from_units(rest, u16::from_be_bytes)),
        _ => Cow::Borrowed(bytes),
    }
}

/// A half unit at the end is left out: the text was cut off there.
fn from_units(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let (units, _) = bytes.as_chunks::<2>();
    let chars = char::decode_utf16(units.iter().map(|pair| unit(*pair)));
    let chars = chars.map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER));
    chars.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, mark: [u8; 2], bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        mark.into_iter().chain(text.encode_utf16().flat_map(bytes)).collect()
    }

    #[test]
    fn a_mark_tells_the_encoding() {
        let text = "[rank1]: Fehler für 🚀\r\n";
        let little = utf16(text, [0xFF, 0xFE], u16::to_le_bytes);
        let big = utf16(text, [0xFE, 0xFF], u16::to_be_bytes);
        let marked = [&[0xEF, 0xBB, 0xBF], text.as_bytes()].concat();
        for bytes in [little.as_slice(), &big, &marked, text.as_bytes()] {
            assert_eq!(&*in_utf8(bytes), text.as_bytes());
        }
        // Cut off within a unit, and half of a pair.
        assert_eq!(&*in_utf8(&[0xFF, 0xFE, b'a', 0, b'b']), b"a");
        assert_eq!(&*in_utf8(&[0xFF, 0xFE, 0x3D, 0xD8]), "\u{FFFD}".as_bytes());
    }
}
