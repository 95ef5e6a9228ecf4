//! What torchrun says of the processes that it started: which of them ended first and how, and how many
//! there are.

use super::{Said, after, number};

/// Where in torchrun's summary of a failed job a log is.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Whom the lines are about.
    about: Option<u64>,
    /// True behind `Root Cause (first observed failure)`.
    root: bool,
    /// True if others failed, too.
    others: bool,
}

impl Summary {
    /// Whom the lines are about, as long as they are.
    pub(super) fn about(&self) -> Option<u64> {
        self.about
    }

    /// Takes a line.
    pub(super) fn take(&mut self, line: &str, say: &mut dyn FnMut(u64, Said)) {
        // It ends the other ranks by SIGTERM itself, and users end all of them by SIGINT.
        let signal = |rest: &str| number(rest).filter(|signal| !matches!(signal, 0 | 2 | 15));
        if let Some(rest) = after(line, "failed (exitcode: -")
            && let Some(rank) = after(rest, "local_rank: ").and_then(number)
            && let Some(signal) = signal(rest)
        {
            say(rank, Said::Killed { signal, local: true });
        }
        let trimmed = line.trim();
        if trimmed.starts_with("Root Cause (first observed failure)") {
            self.root = true;
        } else if trimmed.starts_with("=====") {
            *self = Summary::default();
        }
        match trimmed.split_once(':').map(|(name, value)| (name.trim_end(), value.trim())) {
            Some(("rank", value)) if value.contains("(local_rank:") => self.about = number(value),
            Some(("exitcode", value)) => {
                let Some(rank) = self.about else { return };
                match value.strip_prefix('-') {
                    Some(value) => {
                        if let Some(signal) = signal(value) {
                            say(rank, Said::Killed { signal, local: false });
                        }
                    }
                    None => {
                        let Some(status) = number(value).filter(|it| *it > 0) else { return };
                        match self.root {
                            true => say(rank, Said::Exited { status, alone: !self.others }),
                            false => self.others = true,
                        }
                    }
                }
            }
            _ => {}
        }
    }
}
