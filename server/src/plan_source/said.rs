//! The output of a program's ranks: the lines that they print and raise, and the assumptions about parts that
//! the program leaves open.

use crate::terminal;
use lockstep_core::plan::{Fault, Plan, leaves_at_once};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome};
use lockstep_core::words::counted;
use lockstep_core::words::rank_list;
use lockstep_scenarios::program::{Printed, ProgramError};
use std::collections::BTreeMap;

/// Lines that ranks print, as far as they are shown.
const MAX_PRINTED: usize = 100;

/// The output of a program's ranks; empty if a plan does not come from a program.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The program's name.
    pub(super) name: String,
    pub(super) printed: Vec<Printed>,
    pub(super) raised: Vec<(Vec<GlobalRank>, ProgramError)>,
    pub(super) assumed: Vec<(u32, String)>,
    /// True if all printed lines are shown.
    pub(super) all: bool,
}

impl Said {
    /// The output in a run of the program's plan with faults, which can be operations of their own.
    pub(crate) fn with_faults(mut self, plan: &Plan, faults: &[Fault]) -> Said {
        let place = plan.places_with_faults(faults);
        self.printed.iter_mut().for_each(|print| print.after = place(print.rank, print.after));
        self
    }

    /// Prints the output on standard error: the lines that ranks reach in a run of the plan, or, without its
    /// calls, all lines.
    pub(crate) fn tell(&self, log: Option<&CallLog>) {
        self.lines(log).iter().for_each(|line| terminal::note(line));
    }

    fn lines(&self, log: Option<&CallLog>) -> Vec<String> {
        let name = &self.name;
        let mut lines = Vec::new();
        let ended = log.map(CallLog::ended_ops);
        let reached = |print: &&Printed| ended.as_ref().is_none_or(|ops| print.is_reached(ops));
        let printed: Vec<&Printed> = self.printed.iter().filter(reached).collect();
        if !printed.is_empty() {
            lines.push(match log {
                Some(_) => "what the ranks print:".to_owned(),
                None => "what the ranks print as far as nothing keeps them waiting:".to_owned(),
            });
        }
        let most = if self.all { usize::MAX } else { MAX_PRINTED };
        let mut shares = shares(&printed, most);
        let mut more = 0u64;
        for Printed { rank, line, text, .. } in &printed {
            match shares.get_mut(rank).and_then(|left| Some((left.checked_sub(1)?, left))) {
                Some((fewer, left)) => {
                    *left = fewer;
                    lines.push(format!("[rank {rank}, {name}:{line}] {text}"));
                }
                None => more += 1,
            }
        }
        if more > 0 {
            let more = counted(more, "more line");
            lines.push(format!("… and {more} that ranks print; --all-output shows all"));
        }
        if let Some(held) = self.printed.len().checked_sub(printed.len()).filter(|held| *held > 0) {
            let held = counted(held, "line");
            let outcome = log.map(|log| &log.outcome);
            lines.push(format!("not printed: {held} behind {}", last_place(outcome)));
        }
        for (line, text) in &self.assumed {
            lines.push(format!("[{name}:{line}] {text}"));
        }
        // A rank ends by what it raises, which is the last that it does.
        let plan = log.and_then(|log| log.plan.as_deref());
        let raises = |rank: &GlobalRank| match (plan.and_then(|plan| plan.program(*rank)), &ended) {
            (Some(program), Some(ended)) => ended
                .get(rank.index())
                .is_some_and(|ended| *ended as usize + 1 >= program.ops.len()),
            _ => true,
        };
        for (ranks, error) in &self.raised {
            let help = error.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
            let ranks: Vec<GlobalRank> = ranks.iter().copied().filter(raises).collect();
            if !ranks.is_empty() {
                let (ranks, line) = (rank_list(&ranks), error.line);
                let ends = if leaves_at_once(&error.message) { "ends by" } else { "raises" };
                let message = &error.message;
                lines.push(format!("[rank {ranks}, {name}:{line}] {ends} {message}{help}"));
            }
        }
        lines
    }
}

/// The place that a rank does not get past in a run with this end.
fn last_place(end: Option<&Outcome>) -> &'static str {
    match end {
        Some(Outcome::Cancelled) => "where the run was cancelled",
        Some(Outcome::TimedOut | Outcome::RankStopped { .. }) => "what never ends",
        Some(Outcome::Completed | Outcome::RankDied { .. } | Outcome::Failed { .. })
        | Some(Outcome::Unknown)
        | None => "where the run ended",
    }
}

/// The number of first lines that each rank may print within `most`: equal shares, and the lines that one
/// rank does not need go to the others.
fn shares(printed: &[&Printed], most: usize) -> BTreeMap<GlobalRank, usize> {
    let mut wanted: BTreeMap<GlobalRank, usize> = BTreeMap::new();
    for print in printed {
        *wanted.entry(print.rank).or_default() += 1;
    }
    let mut modest: Vec<(usize, GlobalRank)> =
        wanted.iter().map(|(rank, lines)| (*lines, *rank)).collect();
    modest.sort_unstable();
    let (mut left, mut ranks) = (most, modest.len());
    for (lines, rank) in modest {
        // Rounded up: where there are fewer lines than ranks, some have one.
        let share = lines.min(left.div_ceil(ranks));
        (left, ranks) = (left - share, ranks - 1);
        wanted.insert(rank, share);
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::watch::Unwatched;
    use lockstep_program::compile;
    use lockstep_scenarios::program::{Compiled, Options};
    use lockstep_sim::{SimConfig, simulate_calls};
    use std::sync::Arc;

    fn calls_of(plan: Plan) -> CallLog {
        simulate_calls(Arc::new(plan), &SimConfig::default(), &mut Unwatched).unwrap().calls
    }

    /// Lines behind a call that never completes are neither printed nor raised: behind the call on gloo,
    /// behind a synchronize on NCCL.
    #[test]
    fn only_what_is_reached_is_said() {
        let text = r#"
def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print("first")
        dist.barrier()
        print("never")
        raise ValueError("never")
    print("last")

run(main, world_size = 2)
"#;
        let nccl = text.replace("gloo", "nccl").replace(
            "        dist.barrier()\n",
            "        dist.all_reduce(torch.ones(1))\n        print(\"queued\")\n        \
             torch.cuda.synchronize()\n",
        );
        for (text, printed) in [(text, vec!["first"]), (nccl.as_str(), vec!["first", "queued"])] {
            let compiled = compile("train.py", text, &Options::default()).unwrap();
            let Compiled { plan, printed: prints, raised, assumed, .. } = compiled;
            let log = calls_of(plan);
            let name = "train.py".to_owned();
            let said = Said { name, printed: prints, raised, assumed, all: false };
            let lines = said.lines(Some(&log));
            let of = |rank: u32| -> Vec<&str> {
                let of = format!("[rank {rank}, ");
                let own = lines.iter().filter(|line| line.starts_with(&of));
                own.filter_map(|line| line.split_once("] ")).map(|(_, text)| text).collect()
            };
            assert_eq!((of(0), of(1)), (printed, vec!["last"]), "{lines:?}");
            assert_eq!(lines.last().unwrap(), "not printed: 1 line behind what never ends");
            assert_eq!(said.lines(None).len(), lines.len() + 1, "{lines:?}");
        }
    }

    /// A fault may be an operation of its own; lines behind an operation that the fault stopped are not
    /// printed.
    #[test]
    fn a_fault_moves_what_is_reached() {
        let text = r#"
def main():
    dist.init_process_group("gloo")
    print("first")
    dist.barrier()
    print("second")
    dist.barrier()
    print("third")

run(main, world_size = 2)
"#;
        let end = "what never ends";
        for (fault, printed, end) in [
            ("delay:rank=1,call=2,by_ms=5", [3, 3], ""),
            ("stop:rank=1,call=2", [2, 2], end),
            ("drop:rank=1,call=2", [2, 3], end),
            ("kill:rank=1,call=2", [2, 2], "where the run ended"),
        ] {
            let compiled = compile("train.py", text, &Options::default()).unwrap();
            let Compiled { plan, printed: prints, raised, assumed, .. } = compiled;
            let faults: Vec<Fault> = vec![fault.parse().unwrap()];
            let name = "train.py".to_owned();
            let said = Said { name, printed: prints, raised, assumed, all: false };
            let said = said.with_faults(&plan, &faults);
            let plan = plan.with_simulated_faults(&faults).unwrap();
            let mut log = calls_of(plan);
            let lines = said.lines(Some(&log));
            let of = |rank| {
                let of = format!("[rank {rank}, ");
                lines.iter().filter(|line| line.starts_with(&of)).count()
            };
            assert_eq!([of(0), of(1)], printed, "{fault}: {lines:?}");
            let held = lines.iter().find(|line| line.starts_with("not printed")).cloned();
            assert!(held.as_ref().map_or(end.is_empty(), |held| held.ends_with(end)), "{held:?}");
            // A run of it that somebody ends there is not one that never would.
            if let Some(held) = held {
                log.outcome = Outcome::Cancelled;
                let cancelled = said.lines(Some(&log));
                assert!(!cancelled.contains(&held) && cancelled.len() == lines.len());
            }
        }
    }

    /// Eight ranks that print 20 lines each and one that prints five: the hundred are shared, and all are
    /// there on request.
    #[test]
    fn the_lines_that_are_shown_are_shared_among_the_ranks() {
        let text = r#"
def main():
    dist.init_process_group("gloo")
    for i in range(5 if dist.get_rank() == 3 else 20):
        print(i)

run(main, world_size = 9)
"#;
        let compiled = compile("train.py", text, &Options::default()).unwrap();
        let Compiled { printed, raised, assumed, .. } = compiled;
        let name = "train.py".to_owned();
        let mut said = Said { name, printed, raised, assumed, all: false };
        let count = |said: &Said| -> Vec<usize> {
            let lines = said.lines(None);
            let of = |rank| {
                lines.iter().filter(|line| line.starts_with(&format!("[rank {rank},"))).count()
            };
            (0..9).map(of).collect()
        };
        assert_eq!(count(&said), [12, 12, 12, 5, 12, 12, 12, 12, 11]);
        let last = said.lines(None).pop().unwrap();
        assert!(last.starts_with("… and 65 more lines that ranks print"), "{last}");
        said.all = true;
        assert_eq!(count(&said), [20, 20, 20, 5, 20, 20, 20, 20, 20]);
        assert_eq!(said.lines(None).len(), 166);
    }
}
