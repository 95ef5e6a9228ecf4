//! The begin and end of an operand. In the mask, strings are runs of one character.

/// The character that masks strings.
pub(super) const STRING: u8 = 1;

fn word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c >= 0x80
}

/// The begin of the operand before `end`: names, calls, subscripts and strings.
pub(super) fn before(mask: &[u8], end: usize) -> Option<usize> {
    let mut at = end;
    loop {
        let before = mask.get(..at)?;
        match *before.last()? {
            b')' | b']' | b'}' => {
                at = opening(before)?;
                // A call or subscript has a value before it.
                let called = mask.get(..at)?.last();
                if called.is_none_or(|c| !(word(*c) || matches!(*c, b')' | b']' | STRING))) {
                    return Some(at);
                }
                continue;
            }
            STRING => at = before.iter().rposition(|c| *c != STRING).map_or(0, |last| last + 1),
            c if word(c) => {
                at = before.iter().rposition(|c| !word(*c)).map_or(0, |last| last + 1);
                at = mantissa(before, at).unwrap_or(at);
            }
            _ => return None,
        }
        match mask.get(..at)?.last() {
            Some(b'.') => at -= 1,
            _ => return Some(at),
        }
    }
}

/// The begin of the number whose exponent is at this place: the `1` of `1e-3` for its `3`.
fn mantissa(mask: &[u8], at: usize) -> Option<usize> {
    let exponent = mask.get(at)?.is_ascii_digit();
    let [front @ .., b'e' | b'E', b'+' | b'-'] = mask.get(..at)? else { return None };
    let start = front.iter().rposition(|c| !word(*c)).map_or(0, |last| last + 1);
    let own = front.get(start..)?;
    let number = own.first()?.is_ascii_digit() && !own.starts_with(b"0x");
    (exponent && number).then_some(start)
}

/// The place where the bracket was opened that the text ends with.
pub(super) fn opening(text: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    text.iter().rposition(|c| {
        match c {
            b')' | b']' | b'}' => depth += 1,
            b'(' | b'[' | b'{' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// The place where the bracket that is open at `from` is closed.
pub(super) fn closing(mask: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in mask.iter().enumerate().skip(from) {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The end of the operand behind an operator: a sign, and names, calls, subscripts, numbers and strings.
pub(super) fn after(mask: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while mask.get(at).is_some_and(|c| c.is_ascii_whitespace() || matches!(c, b'-' | b'+' | b'~')) {
        at += 1;
    }
    let first = *mask.get(at)?;
    at = match first {
        b'(' | b'[' | b'{' => closing(mask, at)? + 1,
        STRING => at + run(mask, at, |c| c == STRING),
        c if word(c) => {
            let number = c.is_ascii_digit();
            let part = |c| word(c) || (number && c == b'.');
            let end = at + run(mask, at, part);
            // `1e-3`.
            match mantissa(mask, end + 1) {
                Some(_) if matches!(mask.get(end), Some(b'+' | b'-')) => {
                    end + 1 + run(mask, end + 1, part)
                }
                _ => end,
            }
        }
        _ => return None,
    };
    loop {
        at = match mask.get(at) {
            Some(b'.') => at + 1 + run(mask, at + 1, word),
            Some(b'(' | b'[') => closing(mask, at)? + 1,
            _ => return Some(at),
        };
    }
}

fn run(mask: &[u8], from: usize, is: impl Fn(u8) -> bool) -> usize {
    mask.iter().skip(from).take_while(|c| is(**c)).count()
}

/// Replaces a part of a statement with a call around it. In the mask, the texts in front and behind are
/// copied as they are.
pub(super) fn wrap(
    (text, mask): (&mut String, &mut String),
    (from, to): (usize, usize),
    before: &str,
    after: &str,
) {
    for of in [text, mask] {
        of.insert_str(to, after);
        of.insert_str(from, before);
    }
}
