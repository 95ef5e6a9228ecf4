//! Lines with an error that is not one of PyTorch's messages: memory that ran out, a full disk, an error that
//! a log quotes. They blame no rank, and keep a job from being called healthy.

use std::collections::BTreeSet;

/// The most error lines that are kept.
const MOST: usize = 8;

/// The most characters of a line that are kept.
const SHOWN: usize = 160;

/// The words for errors in a line, from Python, CUDA, NCCL, C++, kernels and launchers.
const WORDS: [&str; 24] = [
    "out of memory",
    "OutOfMemoryError",
    "No space left on device",
    "CUDA error",
    "CUDA failure",
    "Segmentation fault",
    "Bus error",
    "core dumped",
    "terminate called",
    "unhandled system error",
    "unhandled cuda error",
    "remote process exited or there was a network error",
    "Connection reset by peer",
    "Connection refused",
    "Connection closed by peer",
    "Broken pipe",
    "oom-kill",
    "Killed process",
    "Uncorrectable",
    "NVRM: Xid",
    "IBV_WC_",
    "Traceback (most recent call last)",
    "imed out",
    "Aborted",
];

/// A line that holds an error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorLine {
    /// Its number in the log, from 1.
    pub line: u64,
    /// The rank that wrote it, if the line's prefix names one.
    pub rank: Option<u64>,
    /// The line, shortened.
    pub text: String,
}

/// The error lines of a log that is being read.
#[derive(Debug, Default)]
pub(super) struct ErrorLines {
    found: Vec<ErrorLine>,
    seen: BTreeSet<String>,
}

impl ErrorLines {
    /// Takes a line without its prefix.
    pub(super) fn take(&mut self, line: u64, rank: Option<u64>, text: &str) {
        if self.found.len() >= MOST || !is_error(text) {
            return;
        }
        let text: String = text.trim().chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        if self.seen.insert(text.clone()) {
            self.found.push(ErrorLine { line, rank, text });
        }
    }

    /// Those but for the lines of which a message is made.
    pub(super) fn found(self, told: &BTreeSet<u64>) -> Vec<ErrorLine> {
        self.found.into_iter().filter(|it| !told.contains(&it.line)).collect()
    }
}

/// True of a line that holds an error, or whose level is one.
fn is_error(text: &str) -> bool {
    let lower = text.as_bytes();
    // Most lines hold none of these letters in a row.
    if !lower.iter().any(|byte| matches!(byte, b'E' | b'e' | b'o' | b'O' | b'k' | b'B' | b'A')) {
        return false;
    }
    // Values that are called so: `error_rate=0.1`, `0 errors`.
    let named = |word: &str| {
        let name = word.trim_matches(|c: char| !c.is_alphanumeric());
        let ends =
            ["Error", "Exception"].iter().any(|end| name.len() > end.len() && name.ends_with(end));
        ends && word.ends_with(':')
    };
    let level = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        matches!(word, "ERROR" | "CRITICAL" | "FATAL")
    };
    WORDS.iter().any(|what| text.contains(what))
        || text.split_whitespace().any(named)
        || text.split_whitespace().take(6).any(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_known_from_values_of_that_name() {
        for line in [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "OSError: [Errno 28] No space left on device: ckpt.pt",
            "2026-01-01 00:00:00 ERROR trainer step failed",
            "[E515 18:36:47] x: RuntimeError: boom",
            "/bin/sh: line 1: 77 Segmentation fault",
        ] {
            assert!(is_error(line), "{line}");
        }
        for line in [
            "step 4 error_rate=0.1",
            "0 errors",
            "mean squared error: 0.2",
            "done",
            "no Errors here",
        ] {
            assert!(!is_error(line), "{line}");
        }
    }
}
