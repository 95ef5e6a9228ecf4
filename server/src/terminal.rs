//! What is said on standard output and standard error. Neither is ours: a reader that has gone
//! (`lockstep … | head`) is no reason to panic, and the exit code still tells the verdict.

use std::io::{self, ErrorKind, Write};

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

/// Writes a line to standard error; nobody can be told when that fails.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
