//! f-strings: `f"rank {rank}: {loss:.3f}"` becomes `_fstring("rank ", ((rank),), ": ", (loss, ".3f"))`, so a
//! value cannot be mistaken for its format.

use super::scan::Logical;
use crate::dialect::asked_methods::Asks;
use lockstep_scenarios::program::ProgramError;

/// Writes an expression in Starlark's words. An f-string holds expressions, which may hold f-strings.
pub(super) type Write = fn(&str, Asks) -> String;

/// The statement without f-strings, and its mask.
///
/// # Errors
/// When a brace of an f-string is not closed.
pub(super) fn rewrite(statement: &Logical, write: Write) -> Result<(String, String), ProgramError> {
    let (source, source_mask) = (&statement.text, &statement.mask);
    let mut text = String::with_capacity(source.len());
    let mut mask = String::with_capacity(source.len());
    let mut at = 0;
    while let Some(found) = source_mask[at..].find(['f', 'F']) {
        let start = at + found;
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let bytes = source.as_bytes();
        let raw = matches!(bytes.get(start + 1), Some(b'r' | b'R'));
        let quote_at = start + 1 + usize::from(raw);
        let is_string = matches!(bytes.get(quote_at), Some(b'"' | b'\''))
            && source_mask.as_bytes().get(quote_at) == Some(&1)
            && !source_mask[..start].ends_with(word);
        if !is_string {
            text.push_str(&source[at..=start]);
            mask.push_str(&source_mask[at..=start]);
            at = start + 1;
            continue;
        }
        text.push_str(&source[at..start]);
        mask.push_str(&source_mask[at..start]);
        let body = &source[quote_at..];
        let quote = match body {
            _ if body.starts_with("\"\"\"") => "\"\"\"",
            _ if body.starts_with("'''") => "'''",
            _ => &body[..1],
        };
        let (call, taken) = parts(&body[quote.len()..], quote, statement, write)?;
        text.push_str(&call);
        mask.extend(std::iter::repeat_n('\u{1}', call.len()));
        at = quote_at + quote.len() + taken;
    }
    text.push_str(&source[at..]);
    mask.push_str(&source_mask[at..]);
    Ok((text, mask))
}

/// The call for the text after an opening quote, and the length of that text.
fn parts(
    body: &str,
    quote: &str,
    statement: &Logical,
    write: Write,
) -> Result<(String, usize), ProgramError> {
    let error = |why: &str| ProgramError::at(statement.first, 0, why);
    let mut call = String::from("_fstring(");
    let mut literal = String::new();
    let mut rest = body;
    let flush = |call: &mut String, literal: &mut String| {
        if !literal.is_empty() {
            call.push_str(&format!("{quote}{literal}{quote}, "));
            literal.clear();
        }
    };
    loop {
        let Some(next) = rest.chars().next() else {
            return Err(error("an f-string is not closed"));
        };
        match rest {
            _ if rest.starts_with(quote) => {
                flush(&mut call, &mut literal);
                call.push(')');
                return Ok((call, body.len() - rest.len() + quote.len()));
            }
            _ if rest.starts_with("{{") || rest.starts_with("}}") => {
                literal.push(next);
                rest = &rest[2..];
            }
            _ if next == '\\' => {
                let taken = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                literal.push_str(&rest[..taken]);
                rest = &rest[taken..];
            }
            _ if next == '{' => {
                flush(&mut call, &mut literal);
                let end = closing(&rest[1..]).ok_or_else(|| error("an f-string has an open {"))?;
                call.push_str(&value(&rest[1..1 + end], statement.asks, write));
                call.push_str(", ");
                rest = &rest[end + 2..];
            }
            _ => {
                literal.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
}

/// The place where the brace that opened before `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// `x`, `x!r`, `x:.3f` or `x=` as an argument of the call.
fn value(inner: &str, asks: Asks, write: Write) -> String {
    let mut depth = 0;
    let mut end = inner.len();
    for (at, c) in inner.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ':' if depth == 0 => {
                end = at;
                break;
            }
            '!' if depth == 0 && !inner[at + 1..].starts_with('=') => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let (expression, format) = inner.split_at(end);
    let shown = expression.trim_end();
    let compared = ["==", "!=", "<=", ">="].iter().any(|op| shown.ends_with(op));
    if let Some(named) = shown.strip_suffix('=').filter(|_| !compared) {
        // The text stands as it was written, blanks and all.
        return format!("{:?}, ({}, \"!r\")", expression, write(named.trim(), asks));
    }
    match format {
        "" => format!("(({}),)", write(expression.trim(), asks)),
        format => {
            let format = format.strip_prefix(':').unwrap_or(format);
            format!("({}, {})", write(expression.trim(), asks), specification(format, asks, write))
        }
    }
}

/// A format, which may hold expressions of its own: `{x:>{width}}`.
fn specification(format: &str, asks: Asks, write: Write) -> String {
    let mut parts = Vec::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        let Some(end) = closing(after) else { break };
        parts.push(format!("{before:?}"));
        parts.push(format!("str({})", write(after[..end].trim(), asks)));
        rest = &after[end + 1..];
    }
    parts.push(format!("{rest:?}"));
    parts.join(" + ")
}
