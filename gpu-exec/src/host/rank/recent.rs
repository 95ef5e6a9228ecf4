//! The latest collectives of a rank, worked out: programs repeat themselves.

use super::call::CollectiveCall;
use super::failure::RankFailure;
use crate::clock;
use lockstep_core::plan::{self, Call};
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of calls that are kept.
const KEPT: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Recent {
    /// By work, which call it is: the same number, the same call. Calls are compared before the
    /// program runs, which takes as long as a good part of a small one.
    names: Vec<u32>,
    known: VecDeque<(u32, Arc<CollectiveCall>)>,
}

impl Recent {
    /// The calls of a program, none of them worked out.
    pub(super) fn of(program: &plan::Program) -> Recent {
        let mut latest: VecDeque<(u32, &Call)> = VecDeque::new();
        let mut name = |call| {
            if let Some((name, _)) = latest.iter().find(|(_, other)| *other == call) {
                return *name;
            }
            let name = latest.front().map_or(0, |(last, _)| last + 1);
            latest.truncate(KEPT - 1);
            latest.push_front((name, call));
            name
        };
        let names = program.ops.iter().flat_map(|op| op.action.calls()).map(&mut name).collect();
        Recent { names, known: VecDeque::new() }
    }

    /// The rank's stream call for a call of the program. An unknown one is worked out, which may take a
    /// while; the time when it was ready, in nanoseconds on the shared clock, is then returned too.
    ///
    /// # Errors
    /// The error of `work_out`.
    pub(super) fn get(
        &mut self,
        work: u32,
        work_out: impl FnOnce() -> Result<Option<CollectiveCall>, RankFailure>,
    ) -> Result<(&Arc<CollectiveCall>, Option<u64>), RankFailure> {
        let name = *self
            .names
            .get(work as usize)
            .ok_or(RankFailure::Unchecked("a call that the program has not"))?;
        let at = self.known.iter().position(|(known, _)| *known == name);
        if at.is_none() {
            let made = work_out()?.ok_or(RankFailure::Unchecked("a collective that is none"))?;
            self.known.truncate(KEPT - 1);
            self.known.push_front((name, Arc::new(made)));
        }
        let (_, made) = self
            .known
            .get(at.unwrap_or(0))
            .ok_or(RankFailure::Unchecked("a collective that is not kept"))?;
        Ok((made, at.is_none().then(clock::now_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::arena::Arena;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::rank::GlobalRank;
    use lockstep_core::reduce::ReduceOp;

    /// If 17 different calls take turns, each is worked out anew; if two do, in whatever order, each is
    /// worked out once. The call that is returned is the right one.
    #[test]
    fn a_call_is_worked_out_once_while_it_is_among_the_latest() {
        let mut plan = PlanBuilder::new("recent", 2, BackendName::Host).unwrap();
        let of = |count: u64| plan.tensor(format!("t{count}"), Dtype::Float32, count, Fill::Zeros);
        let tensors: Vec<_> = (1..20).map(of).collect();
        let counts: Vec<u64> = [1, 2, 1, 1, 2].into_iter().chain(3..20).chain(3..5).collect();
        let plan = plan
            .every_rank(|_, program| {
                for count in &counts {
                    let sum = Collective::AllReduce { op: ReduceOp::Sum };
                    let tensor = tensors[*count as usize - 1];
                    program.collective(GroupId::WORLD, sum, *count, None, Some(tensor));
                }
            })
            .unwrap();
        let rank = GlobalRank(0);
        let program = plan.program(rank).unwrap();
        let arena = Arena::of(&plan, rank);
        let mut recent = Recent::of(program);
        let mut worked_out = Vec::new();
        for (work, op) in (0..).zip(&program.ops) {
            let of = || CollectiveCall::of(&plan, rank, &op.action.calls()[0], &arena);
            let (got, ready_ns) = recent.get(work, of).unwrap();
            assert_eq!(got.fingerprint, of().unwrap().unwrap().fingerprint, "call {work}");
            if ready_ns.is_some() {
                worked_out.push(counts[work as usize]);
            }
        }
        let expected: Vec<u64> = [1, 2].into_iter().chain(3..20).chain(3..5).collect();
        assert_eq!(worked_out, expected);
        assert!(recent.get(99, || Ok(None)).is_err());
    }
}
