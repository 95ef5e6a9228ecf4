//! Output to standard output and standard error. Neither is ours: a reader that has gone (`lockstep … |
//! head`) is no reason to panic, and the exit code still gives the verdict.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};

/// Lines on standard error are cut at this length: a stranger's file names can be of any length.
const LONGEST_NOTE: usize = 4000;

/// Writes a text to standard output. Control characters that came from names, plans, programs or archives are
/// written as `\u001b`: none of them reaches the terminal, and JSON stays JSON.
///
/// # Errors
/// Those of [`print()`].
pub(crate) fn text(text: &str) -> io::Result<()> {
    print(harmless(text).as_bytes())
}

/// A text in which control characters, but for line breaks and tabs, are escaped.
fn harmless(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Writes to standard output. A closed pipe counts as written.
///
/// # Errors
/// When the output cannot take it for another reason: a full disk.
pub(crate) fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Writes a line to standard error, as [`text`] does and cut if it is too long; a failure is ignored.
pub(crate) fn note(line: &str) {
    let end = line.char_indices().nth(LONGEST_NOTE).map(|(at, _)| at);
    let (shown, more) = end.map_or((line, ""), |end| (&line[..end], " …"));
    let _ = writeln!(io::stderr(), "{}{more}", harmless(shown));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts_on_a_terminal() {
        let shown = harmless("a\u{1b}[2J\r\u{9b}31mb\n\tc\u{7f}");
        assert_eq!(shown, "a\\u001b[2J\\u000d\\u009b31mb\n\tc\\u007f");
        let json = format!("\"{}\"", harmless("\u{9b}"));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "\u{9b}");
        assert!(matches!(harmless("plain ✓ text\n"), Cow::Borrowed(_)));
    }
}
