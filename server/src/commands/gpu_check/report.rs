//! The report: as JSON for programs, as Markdown for people.

use serde::Serialize;
use std::fmt::Write as _;

/// All that was found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    /// The version of lockstep.
    version: &'static str,
    /// The device that the check ran on, as traces name it.
    pub(super) device: String,
    /// GPUs that ranks had for themselves: 8, 4, 2 or 1.
    pub(super) gpus: u32,
    pub(super) checks: Vec<Check>,
    pub(super) times: Vec<Time>,
    /// The checks that were left out, and why.
    pub(super) notes: Vec<String>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Passed,
    Failed,
    /// This machine has no such way, and need not have it.
    Absent,
}

/// One check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) way: String,
    pub(super) ranks: u32,
    pub(super) what: String,
    pub(super) state: State,
    pub(super) says: String,
    /// Seconds since the check before ended.
    pub(super) seconds: f64,
}

/// Times of one size.
#[derive(Debug, Serialize)]
pub(super) struct Time {
    pub(super) way: String,
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    /// Microseconds of an all_reduce, ours.
    pub(super) ours_us: Option<f64>,
    /// Microseconds of torch.distributed's.
    pub(super) torch_us: Option<f64>,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            schema: "lockstep.gpu-check/1",
            version: env!("CARGO_PKG_VERSION"),
            device: String::new(),
            gpus: 0,
            checks: Vec::new(),
            times: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Time {
    /// nccl-tests' bus bandwidth of an all_reduce, in GB/s.
    fn busbw(&self) -> Option<f64> {
        let n = f64::from(self.ranks);
        let us = self.ours_us.filter(|us| *us > 0.0)?;
        Some(self.bytes as f64 / us / 1e3 * 2.0 * (n - 1.0) / n)
    }
}

impl Report {
    /// True if a check failed.
    pub(super) fn has_failures(&self) -> bool {
        self.checks.iter().any(|check| check.state == State::Failed)
    }

    pub(super) fn to_markdown(&self) -> String {
        let count = |state| self.checks.iter().filter(|check| check.state == state).count();
        let mut text = format!(
            "# lockstep gpu-check\n\nlockstep {} on {}; GPUs that ranks had for themselves: {}.\n\n\
             {} checks passed, {} failed, {} are of ways that this machine does not have.\n",
            self.version,
            self.device,
            self.gpus,
            count(State::Passed),
            count(State::Failed),
            count(State::Absent),
        );
        let mut way = "";
        for check in &self.checks {
            if check.way != way {
                way = &check.way;
                let _ = write!(text, "\n## {way}\n\n| ranks | check | | what it says |\n");
                text.push_str("| --- | --- | --- | --- |\n");
            }
            let state = match check.state {
                State::Passed => "passed",
                State::Failed => "**failed**",
                State::Absent => "absent",
            };
            let says = check.says.replace('\n', " ").replace('|', "\\|");
            let _ = writeln!(text, "| {} | {} | {state} | {says} |", check.ranks, check.what);
        }
        if !self.times.is_empty() {
            text.push_str(
                "\n## Times of all_reduce\n\nfloat32, in place; as nccl-tests: 5 calls to warm up, \
                 then the mean of 20, on the device.\n\n\
                 | way | ranks | bytes | ours, µs | busbw, GB/s | torch.distributed, µs |\n\
                 | --- | --- | --- | --- | --- | --- |\n",
            );
        }
        let number =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        for time in &self.times {
            let (ours, torch, busbw) = (number(time.ours_us), number(time.torch_us), time.busbw());
            let (way, ranks, bytes) = (&time.way, time.ranks, time.bytes);
            let busbw = number(busbw);
            let _ = writeln!(text, "| {way} | {ranks} | {bytes} | {ours} | {busbw} | {torch} |");
        }
        if !self.notes.is_empty() {
            text.push_str("\n## Not done\n\n");
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {}", note.replace('\n', " "));
        }
        text
    }
}
