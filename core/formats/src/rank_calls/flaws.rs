//! The flaws of a file of which all that could be read is used.

use lockstep_core::words::counted;

/// The flaws of one rank's file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Flaws {
    /// The sentence that says where the file ends or breaks, of one that could not be read to its end.
    pub(crate) broken: Option<String>,
    /// Calls and computations that end before they begin.
    pub(crate) backwards: Backwards,
    /// True if there were more computations than are kept.
    pub(crate) has_more_computations: bool,
}

/// Times that run backwards: how many, and the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Backwards {
    count: u64,
    first: String,
}

impl Backwards {
    /// Counts one, by a clause that says of which it is: `all_reduce #3 ends 2.000 ms before it begins`.
    pub(crate) fn add(&mut self, clause: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = clause();
        }
        self.count += 1;
    }

    /// A sentence about the times of a file; `None` if all are in order.
    pub(crate) fn note(&self, file: &str) -> Option<String> {
        let others = match self.count {
            0 => return None,
            1 => String::new(),
            count => format!(", and {} of the same kind", counted(count - 1, "time")),
        };
        Some(format!(
            "The times in {file} run backwards: {}{others}. Nothing is left out: no time passes there. The clock was set \
             back, or the file was changed; record again while nothing sets the clock.",
            self.first
        ))
    }
}

/// The clause about a call or computation that ends before it begins.
pub(crate) fn ends_before_it_begins(what: &str, by_ns: f64) -> String {
    format!("{what} ends {:.3} ms before it begins", by_ns / 1e6)
}

impl Flaws {
    /// Sentences about the file, of which `calls` calls were read.
    pub(crate) fn notes(&self, file: &str, calls: usize) -> Vec<String> {
        let broken = self.broken.as_ref().map(|sentence| {
            format!(
                "{sentence}. Before that it holds {}, which are used.",
                counted(calls as u64, "call")
            )
        });
        let more = self.has_more_computations.then(|| {
            format!(
                "{file} holds more computations than are kept: later ones count as idle time. Profile fewer steps."
            )
        });
        broken.into_iter().chain(self.backwards.note(file)).chain(more).collect()
    }
}
