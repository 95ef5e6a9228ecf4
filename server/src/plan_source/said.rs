//! What the ranks of a program say: what they print and raise, and what was taken of what it leaves
//! open.

use crate::terminal;
use lockstep_core::diagnosis::rank_list;
use lockstep_core::program::{Printed, ProgramError};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Trace;
use lockstep_core::words::counted;

/// Lines that ranks print, as far as they are shown.
const MAX_PRINTED: usize = 100;

/// What the ranks of a program say; nothing where a plan comes from something else.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The program's name.
    pub(super) name: String,
    pub(super) printed: Vec<Printed>,
    pub(super) raised: Vec<(Vec<GlobalRank>, ProgramError)>,
    pub(super) assumed: Vec<(u32, String)>,
}

impl Said {
    /// Says it on standard error: of what ranks print, what they come to in a trace of the plan, or,
    /// without one, all that they would.
    pub(crate) fn tell(&self, trace: Option<&Trace>) {
        let name = &self.name;
        let ended = trace.map(Trace::ended_ops);
        let reached = |print: &&Printed| ended.as_ref().is_none_or(|ops| print.is_reached(ops));
        let printed: Vec<&Printed> = self.printed.iter().filter(reached).collect();
        // A rank ends by what it raises, which is the last that it does.
        let plan = trace.and_then(|trace| trace.header.plan.as_ref());
        let raises = |rank: &GlobalRank| match (plan.and_then(|plan| plan.program(*rank)), &ended) {
            (Some(program), Some(ended)) => ended
                .get(rank.index())
                .is_some_and(|ended| *ended as usize + 1 >= program.ops.len()),
            _ => true,
        };
        if !printed.is_empty() {
            terminal::note(match trace {
                Some(_) => "what the ranks print:",
                None => "what the ranks print as far as nothing keeps them waiting:",
            });
        }
        for Printed { rank, line, text, .. } in printed.iter().take(MAX_PRINTED) {
            terminal::note(&format!("[rank {rank}, {name}:{line}] {text}"));
        }
        if let Some(more) = printed.len().checked_sub(MAX_PRINTED).filter(|more| *more > 0) {
            terminal::note(&format!("… and {more} more lines that ranks print"));
        }
        if let Some(held) = self.printed.len().checked_sub(printed.len()).filter(|held| *held > 0) {
            let lines = counted(held, "line");
            terminal::note(&format!("not printed: {lines} behind calls that never complete"));
        }
        for (line, text) in &self.assumed {
            terminal::note(&format!("[{name}:{line}] {text}"));
        }
        for (ranks, error) in &self.raised {
            let (line, help) = (error.line, error.help.as_deref());
            let help = help.map(|help| format!(" ({help})")).unwrap_or_default();
            let ranks: Vec<GlobalRank> = ranks.iter().copied().filter(raises).collect();
            if ranks.is_empty() {
                continue;
            }
            let ranks = rank_list(&ranks);
            terminal::note(&format!(
                "[rank {ranks}, {name}:{line}] raises {}{help}",
                error.message
            ));
        }
    }
}
