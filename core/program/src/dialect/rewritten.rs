//! A program in Starlark, with the lines of the original that it came from.

use super::column;
use super::scan::Logical;
use crate::bundle::Bundle;

/// A program in Starlark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// The text.
    pub(crate) text: String,
    /// Per line, the line of the original that it came from, counted from 0.
    pub(crate) origin: Vec<u32>,
    /// The original, line by line.
    pub(crate) original: Vec<String>,
    /// The lines of a text of several files as they are shown; empty where they are shown as they stand.
    shown: Vec<u32>,
}

impl Rewritten {
    /// A program of which nothing is rewritten yet.
    pub(super) fn of(original: &str) -> Rewritten {
        Rewritten {
            text: String::with_capacity(original.len() + 64),
            origin: Vec::new(),
            original: original.lines().map(str::to_owned).collect(),
            shown: Vec::new(),
        }
    }

    /// The same without its text, which is about to be rewritten once more, and the lines of the original that the
    /// text came from.
    pub(super) fn begun_anew(self) -> (Rewritten, Vec<u32>) {
        let Rewritten { text, origin, original, shown } = self;
        let text = String::with_capacity(text.len() * 2);
        (Rewritten { text, origin: Vec::new(), original, shown }, origin)
    }

    /// The same, whose original is a text of several files that is shown in another order.
    pub(crate) fn shown_as(self, bundle: &Bundle) -> Rewritten {
        let shown: Vec<u32> =
            (0..self.original.len() as u32).map(|line| bundle.shown_line(line)).collect();
        let origin = self.origin.iter().map(|line| bundle.shown_line(*line)).collect();
        let original = bundle.shown.lines().map(str::to_owned).collect();
        Rewritten { origin, original, shown, ..self }
    }

    /// The line that is shown for a line of the original, both from 1.
    pub(crate) fn shown_line(&self, line: u32) -> u32 {
        let shown = line.checked_sub(1).and_then(|at| self.shown.get(at as usize));
        shown.map_or(line, |shown| shown + 1)
    }

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
