//! The words of torchrun about the processes that it started: which of them ended first and how,
//! and how many there are.

use super::line_words::{after, number};
use super::statement::{By, Said};
use std::collections::BTreeSet;

/// More processes than this no machine runs.
const MOST_PROCESSES: usize = 1 << 12;

/// The position of a log in torchrun's summary of a failed job.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// The rank that the lines are about.
    about: Option<u64>,
    /// True behind `Root Cause (first observed failure)`.
    root: bool,
    /// True if others failed, too.
    others: bool,
    /// The processes that it ended or that failed, in the attempt that the summary describes.
    processes: BTreeSet<u64>,
    /// True behind the line that says how an attempt ended.
    ended: bool,
}

impl Summary {
    /// The rank that the current lines are about.
    pub(super) fn about(&self) -> Option<u64> {
        self.about
    }

    /// The number of processes it has ended, and of those that failed, in the last attempt: as many
    /// ranks there are at least. Who did not fail was still there.
    pub(super) fn processes(&self) -> u32 {
        u32::try_from(self.processes.len()).unwrap_or(0)
    }

    /// Counts the process that a line mentions.
    fn count(&mut self, line: &str) {
        let closing = after(line, "Sending process ").filter(|it| it.contains(" closing signal "));
        let failed = line.contains("failed (exitcode: ") || line.contains("exitcode  : ");
        let process = match (closing, failed) {
            (Some(rest), _) => number(rest),
            (None, true) => after(line, "(pid: ").and_then(number),
            (None, false) => None,
        };
        if let Some(process) = process {
            if closing.is_some() && self.ended {
                // The next attempt's.
                self.processes.clear();
                self.ended = false;
            }
            self.ended |= line.contains("failed (exitcode: ");
            if self.processes.len() < MOST_PROCESSES {
                self.processes.insert(process);
            }
        }
    }

    /// Takes a line.
    pub(super) fn take(&mut self, line: &str, say: &mut dyn FnMut(u64, Said)) {
        self.count(line);
        // It ends the other ranks by SIGTERM itself, and users end all of them by SIGINT.
        let signal = |rest: &str| number(rest).filter(|signal| !matches!(signal, 0 | 2 | 15));
        if let Some(rest) = after(line, "failed (exitcode: -")
            && let Some(rank) = after(rest, "local_rank: ").and_then(number)
            && let Some(signal) = signal(rest)
        {
            say(rank, Said::Killed { signal, by: By::TorchrunLocal });
        }
        let trimmed = line.trim();
        if trimmed.starts_with("Root Cause (first observed failure)") {
            self.root = true;
        } else if trimmed.starts_with("=====") {
            (self.about, self.root, self.others) = (None, false, false);
        }
        match trimmed.split_once(':').map(|(name, value)| (name.trim_end(), value.trim())) {
            Some(("rank", value)) if value.contains("(local_rank:") => self.about = number(value),
            Some(("exitcode", value)) => {
                let Some(rank) = self.about else { return };
                match value.strip_prefix('-') {
                    Some(value) => match signal(value) {
                        Some(signal) => say(rank, Said::Killed { signal, by: By::Torchrun }),
                        None if number(value) == Some(15) => say(rank, Said::Terminated),
                        None => {}
                    },
                    None => {
                        let Some(status) = number(value).filter(|it| *it > 0) else { return };
                        match self.root {
                            true => say(
                                rank,
                                Said::Exited { status, alone: !self.others, by: By::Torchrun },
                            ),
                            false => self.others = true,
                        }
                    }
                }
            }
            _ => {}
        }
    }
}
