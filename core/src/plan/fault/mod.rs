//! Faults: problems that are injected into a job on purpose, to see their symptoms and which tools find them.
//!
//! A fault is one short text, the same on the command line, in the API and on the page: `kill:rank=1,call=3`.
//! A fault that a program alone can show (a call that is late, left out or of another size) is written into
//! the rank's program, where the simulator and every executor find it. A fault that only an operating system
//! can cause (kill, stop) is left to the executor, and the simulator shows its effect on the other ranks.
//! Every fault leaves an operation in the program that names it, so nobody can take its consequences for a
//! genuine problem.

mod inject;
mod text;

use super::{PlanError, SignalKind};
use crate::rank::GlobalRank;
use crate::words::counted;
pub use inject::{Injected, Signal};

/// The most faults that one run takes.
pub const MAX_FAULTS: usize = 64;

/// Something that is done to one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The rank that the fault affects.
    pub rank: GlobalRank,
    /// When.
    pub when: Moment,
    /// The kind of fault.
    pub what: FaultKind,
}

/// When a fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Before the rank's n-th call, counted from 1 over all groups and in the order of its program
    /// (`call=3`). For a dropped or resized call, that one.
    Call(u32),
    /// Milliseconds after the start (`after_ms=250`).
    AfterMs(u64),
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// SIGKILL: the process is gone without notice.
    Kill,
    /// SIGSTOP, and SIGCONT after that time, in milliseconds, if one is given.
    Stop {
        /// The time in milliseconds until it continues; for ever if absent.
        for_ms: Option<u64>,
    },
    /// The rank comes so much later to the call, in milliseconds.
    Delay {
        /// The delay, in milliseconds.
        by_ms: u64,
    },
    /// The rank leaves the call out.
    Drop,
    /// The rank makes the call with another number of elements.
    Resize {
        /// Elements of that call.
        count: u64,
    },
}

impl FaultKind {
    /// Its word in the text of a fault: `kill`.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Stop { .. } => "stop",
            FaultKind::Delay { .. } => "delay",
            FaultKind::Drop => "drop",
            FaultKind::Resize { .. } => "resize",
        }
    }
}

/// The reason that a fault cannot be read or injected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// A text that is no fault.
    #[error(
        "{text:?} is no fault: {why}. Faults are kill:rank=1,call=3, stop:rank=1,call=3,for_ms=200, \
         delay:rank=1,call=3,by_ms=50, drop:rank=1,call=3 and resize:rank=1,call=3,count=8; kill \
         and stop also take after_ms=100 in place of call"
    )]
    Text {
        /// The text.
        text: String,
        /// The problem, in words.
        why: String,
    },
    /// A rank that the plan does not have.
    #[error("fault {fault}: the plan has ranks 0 to {last}")]
    NoSuchRank {
        /// The fault.
        fault: Fault,
        /// The plan's last rank.
        last: u32,
    },
    /// A call that the rank does not make.
    #[error("fault {fault}: rank {} makes {}", .fault.rank, counted(*.calls, "call"))]
    NoSuchCall {
        /// The fault.
        fault: Fault,
        /// The number of calls that the rank makes.
        calls: u32,
    },
    /// A call that has no size of its own.
    #[error("fault {fault}: {call} has no number of elements that could be another")]
    NoSize {
        /// The fault.
        fault: Fault,
        /// The call's name.
        call: String,
    },
    /// A moment of wall time in a simulation, which has none.
    #[error("fault {fault}: a simulation has no wall time; name a call")]
    WallTime {
        /// The fault.
        fault: Fault,
    },
    /// More than [`MAX_FAULTS`].
    #[error("{0} faults; a run takes at most {MAX_FAULTS}")]
    TooMany(usize),
    /// The plan cannot be run with it.
    #[error("with this fault the plan cannot be run: {0}")]
    Plan(#[from] PlanError),
}

impl FaultKind {
    /// The signal that it is, if it is one.
    fn signal(self) -> Option<SignalKind> {
        match self {
            FaultKind::Kill => Some(SignalKind::Kill),
            FaultKind::Stop { for_ms } => Some(SignalKind::Stop { for_ms }),
            FaultKind::Delay { .. } | FaultKind::Drop | FaultKind::Resize { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::dtype::Dtype;
    use crate::group::{BackendName, GroupId};
    use crate::plan::{Action, Call, Fill, Plan, PlanBuilder};
    use crate::reduce::ReduceOp;
    use proptest::prelude::*;

    fn plan() -> Plan {
        let mut plan = PlanBuilder::new("p", 3, BackendName::Host).unwrap();
        let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        plan.every_rank(|_, program| {
            let first = program.async_op().collective(GroupId::WORLD, sum, 8, None, Some(tensor));
            program.wait(first);
            program.collective(GroupId::WORLD, sum, 8, None, Some(tensor));
            program.barrier(GroupId::WORLD);
        })
        .unwrap()
    }

    fn faults(texts: &[&str]) -> Vec<Fault> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn names(plan: &Plan, rank: u32) -> Vec<&str> {
        let ops = &plan.program(GlobalRank(rank)).unwrap().ops;
        ops.iter().map(|op| op.action.name()).collect()
    }

    #[test]
    fn a_fault_changes_its_rank_only() {
        let plan = plan();
        let injected = plan
            .with_faults(&faults(&[
                "delay:rank=1,call=1,by_ms=5",
                "kill:rank=1,call=3",
                "stop:rank=1,call=1,for_ms=9",
                "stop:rank=2,after_ms=7",
            ]))
            .unwrap();
        assert_eq!(
            names(&injected.plan, 1),
            ["injected delay", "SIGSTOP", "all_reduce", "wait", "all_reduce", "SIGKILL", "barrier"]
        );
        assert_eq!(names(&injected.plan, 0), names(&plan, 0));
        let Action::Wait { op, .. } = injected.plan.program(GlobalRank(1)).unwrap().ops[3].action
        else {
            panic!("a wait")
        };
        assert_eq!(op, 2);
        let stop = Action::Signal(SignalKind::Stop { for_ms: Some(9) });
        assert_eq!(injected.plan.program(GlobalRank(1)).unwrap().ops[1].action, stop);
        let what = SignalKind::Stop { for_ms: None };
        assert_eq!(injected.signals, [Signal { rank: GlobalRank(2), after_ms: 7, what }]);
        let read = Plan::from_json(&injected.plan.to_json()).unwrap();
        assert_eq!(read, injected.plan);
    }

    #[test]
    fn dropped_and_resized_calls() {
        let injected =
            plan().with_faults(&faults(&["drop:rank=0,call=1", "resize:rank=0,call=2,count=3"]));
        let plan = injected.unwrap().plan;
        assert_eq!(
            names(&plan, 0),
            [
                "injected drop of all_reduce",
                "no work to wait for: its call was dropped",
                "all_reduce",
                "barrier"
            ]
        );
        let call = &plan.program(GlobalRank(0)).unwrap().ops[2].action.calls()[0];
        let Call::Collective { count: 3, output: Some(output), .. } = call else {
            panic!("{call:?}")
        };
        assert_eq!(plan.tensor(*output).unwrap().numel, 3);
    }

    #[test]
    fn a_plan_shows_its_faults() {
        assert!(!plan().has_injected_faults());
        for fault in [
            "drop:rank=0,call=1",
            "resize:rank=0,call=2,count=3",
            "delay:rank=1,call=1,by_ms=5",
            "kill:rank=1,call=1",
            "stop:rank=1,call=1",
        ] {
            let plan = plan().with_simulated_faults(&faults(&[fault])).unwrap();
            assert!(plan.has_injected_faults(), "{fault}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let refusal = |text: &str| match text.parse::<Fault>() {
            Err(error) => error.to_string(),
            Ok(fault) => plan().with_faults(&[fault]).unwrap_err().to_string(),
        };
        for (text, expected) in [
            ("kill", "no colon"),
            ("kill:rank=1", "one of call and after_ms"),
            ("kill:rank=1,call=0", "counted from 1"),
            ("kill:rank=1,call=2,for_ms=3", "no use for for_ms"),
            ("drop:rank=1,after_ms=3", "only kill and stop"),
            ("melt:rank=1,call=3", "no such kind"),
            ("kill:rank=1,call=99999999999", "too large"),
            ("kill:rank=3,call=1", "ranks 0 to 2"),
            ("kill:rank=1,call=4", "rank 1 makes 3 calls"),
            ("resize:rank=1,call=3,count=2", "barrier has no number of elements"),
            ("resize:rank=1,call=1,count=99999999999999999", "cannot be run"),
        ] {
            let refused = refusal(text);
            assert!(refused.contains(expected), "{text}: {refused}");
            // Without writing the fault into the plan the words are the same, but for what the changed plan shows.
            let checked = text.parse::<Fault>().map(|fault| plan().check_faults(&[fault]));
            if let (Ok(checked), true) = (checked, expected != "cannot be run") {
                assert_eq!(checked.unwrap_err().to_string(), refused, "{text}");
            }
        }
        let wall = plan().with_simulated_faults(&faults(&["kill:rank=1,after_ms=3"]));
        assert!(wall.unwrap_err().to_string().contains("no wall time"));
    }

    proptest! {
        #[test]
        fn faults_are_read_as_they_are_written(
            rank in 0u32..9, call in 1u32..9, ms in 0u64..1000, kind in 0usize..6
        ) {
            let what = [
                FaultKind::Kill, FaultKind::Stop { for_ms: Some(ms) },
                FaultKind::Stop { for_ms: None }, FaultKind::Delay { by_ms: ms },
                FaultKind::Drop, FaultKind::Resize { count: ms },
            ][kind];
            let fault = Fault { rank: GlobalRank(rank), when: Moment::Call(call), what };
            prop_assert_eq!(fault.to_string().parse::<Fault>().unwrap(), fault);
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = text.parse::<Fault>();
        }

        /// Any faults leave a plan that can be run, with as many calls as were not dropped.
        #[test]
        fn any_faults_leave_a_plan(picks in prop::collection::vec((0u32..3, 1u32..4, 0usize..5), 0..8)) {
            let plan = plan();
            let faults: Vec<Fault> = picks.iter().map(|&(rank, call, kind)| Fault {
                rank: GlobalRank(rank),
                when: Moment::Call(call),
                what: [FaultKind::Kill, FaultKind::Stop { for_ms: None },
                    FaultKind::Delay { by_ms: 1 }, FaultKind::Drop, FaultKind::Drop][kind],
            }).collect();
            let injected = plan.with_faults(&faults).unwrap();
            let calls = |plan: &Plan, rank| -> usize {
                plan.program(rank).unwrap().ops.iter().map(|op| op.action.calls().len()).sum()
            };
            for rank in (0..3).map(GlobalRank) {
                let mut drops: Vec<Moment> = faults.iter()
                    .filter(|f| f.rank == rank && f.what == FaultKind::Drop)
                    .map(|f| f.when).collect();
                drops.sort_unstable();
                drops.dedup();
                prop_assert_eq!(calls(&injected.plan, rank), 3 - drops.len());
                let place = plan.places_with_faults(&faults);
                let with = &injected.plan.program(rank).unwrap().ops;
                for (before, op) in (1..).zip(&plan.program(rank).unwrap().ops) {
                    let found = with[place(rank, before) as usize - 1].action.name();
                    let name = op.action.name();
                    let dropped = found == format!("injected drop of {name}")
                        || found.starts_with("no work to wait for");
                    prop_assert!(found == name || dropped, "{} {}", found, name);
                }
            }
            let marks = faults.iter().filter(|fault| fault.what.signal().is_some()).count();
            let signals = injected.plan.program_of.iter()
                .flat_map(|&program| &injected.plan.programs[program as usize].ops)
                .filter(|op| matches!(op.action, Action::Signal(_)));
            prop_assert_eq!(signals.count(), marks);
        }
    }
}
