//! The text arguments of protocol 0: Python's string literals and `raw-unicode-escape`.

/// The text between the quotes of a Python string literal, unescaped; `None` if it is malformed. Bytes above
/// 127 stand for the characters of the same number (Latin-1), which is a way that `pickle` has to read Python
/// 2's pickles.
pub(super) fn unquote(line: &[u8]) -> Option<String> {
    let (&quote, rest) = line.trim_ascii().split_first()?;
    let (&last, inner) = rest.split_last()?;
    if !matches!(quote, b'\'' | b'"') || last != quote {
        return None;
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(char::from(byte));
            continue;
        }
        out.push(match rest.next()? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'x' => char::from(u8::try_from(hex(&mut rest, 2)?).ok()?),
            other => char::from(other),
        });
    }
    Some(out)
}

/// `raw-unicode-escape`: only `\uXXXX` and `\UXXXXXXXX` are escapes; `None` if one is malformed.
pub(super) fn raw_unicode(line: &[u8]) -> Option<String> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        let digits = match (byte, rest.peek()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                out.push(char::from(byte));
                continue;
            }
        };
        rest.next();
        // Half a surrogate pair is no character of its own.
        out.push(char::from_u32(hex(&mut rest, digits)?).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Some(out)
}

fn hex(bytes: &mut impl Iterator<Item = u8>, digits: u32) -> Option<u32> {
    let mut value = 0;
    for _ in 0..digits {
        value = value * 16 + char::from(bytes.next()?).to_digit(16)?;
    }
    Some(value)
}
