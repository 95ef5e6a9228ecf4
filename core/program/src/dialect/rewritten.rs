//! A program in Starlark, with the lines of the original that it came from.

use super::column;
use super::scan::Logical;

/// A program in Starlark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// The text.
    pub(crate) text: String,
    /// Per line, the line of the original that it came from, counted from 0.
    pub(crate) origin: Vec<u32>,
    /// The original, line by line.
    pub(crate) original: Vec<String>,
}

impl Rewritten {
    /// The column in the original line of a column in a line of the text: both lines and columns
    /// are counted from 0, the columns in characters.
    pub(crate) fn column(&self, line: usize, column: usize) -> usize {
        let rewritten = self.text.lines().nth(line);
        let original = self.origin.get(line).and_then(|line| self.original.get(*line as usize));
        match (rewritten, original) {
            (Some(rewritten), Some(original)) => column::of(rewritten, column, original),
            _ => column,
        }
    }

    pub(crate) fn line(&mut self, text: &str, from: usize) {
        self.text.push_str(text);
        self.text.push('\n');
        self.origin.push(from as u32);
    }

    /// Several lines, which come from lines of the original one after the other.
    pub(super) fn lines(&mut self, text: &str, statement: &Logical) {
        for (offset, line) in text.split('\n').enumerate() {
            self.line(line, (statement.first + offset).min(statement.last));
        }
    }
}
