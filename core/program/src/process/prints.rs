//! The output of a process: a line counts as printed when it ends.

use crate::process::state::Process;

/// The most characters that are kept of a print.
const MAX_CHARS: usize = 2000;
/// The most prints of a process that are kept.
const MAX_PRINTS: usize = 1000;

impl Process<'_> {
    /// Prints a text: each line that ends is a print of its own, and an open line is held until it ends, as
    /// when several `print(…, end=" ")` make one line.
    pub(crate) fn print(&mut self, text: &str) {
        if !self.is_rank() || self.unheard > 0 {
            return;
        }
        self.unfinished.push_str(text);
        // A line is a print's own: only its last newline ends it.
        if let Some((lines, rest)) = self.unfinished.rsplit_once('\n') {
            let (lines, rest) = (lines.to_owned(), rest.to_owned());
            self.printed_line(&lines);
            self.unfinished = rest;
        }
    }

    /// Prints the rest that has no end of the line yet.
    pub(crate) fn print_rest(&mut self) {
        let rest = std::mem::take(&mut self.unfinished);
        if !rest.is_empty() {
            self.printed_line(&rest);
        }
    }

    fn printed_line(&mut self, text: &str) {
        if self.printed.len() < MAX_PRINTS {
            let after = self.ops() as u32;
            let mut kept: String = text.chars().take(MAX_CHARS).collect();
            if kept.len() < text.len() {
                let left = text.chars().count() - MAX_CHARS;
                kept.push_str(&format!("… ({left} more characters)"));
            }
            let text = kept;
            self.printed.push((self.line, text, after));
        }
    }
}
