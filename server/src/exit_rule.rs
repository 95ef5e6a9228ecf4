//! The exit code that a verdict leads to, and the option that lets an inconclusive one pass.

use lockstep_diagnosis::Verdict;

/// The exit code for an inconclusive verdict, the same in `diagnose`, `sim`, `run` and `explore`.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct ExitRule {
    /// Exit with 0 instead of 3 where nothing was found, but not all was seen
    #[arg(long)]
    accept_inconclusive: bool,
}

impl ExitRule {
    /// 0 healthy, 1 findings, 2 unusable, 3 inconclusive (0 where that is accepted).
    pub(crate) fn code(self, verdict: Verdict) -> u8 {
        match verdict {
            Verdict::Inconclusive if self.accept_inconclusive => 0,
            verdict => verdict.exit_code(),
        }
    }

    /// The exit code of a simulation or run, which fails if it did not complete.
    pub(crate) fn code_of_run(self, verdict: Verdict, completed: bool) -> u8 {
        match verdict {
            Verdict::Healthy => u8::from(!completed),
            verdict => self.code(verdict),
        }
    }
}
