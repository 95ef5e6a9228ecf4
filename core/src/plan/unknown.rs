//! The tensors of a plan whose values the plan does not know at some time on some rank: those that begin
//! unknown ([`Fill::Unknown`]), and all that copies and calls write such values into. Their values are never
//! shown, since they would be made up.
//!
//! The time of a write does not count: a tensor that becomes known again later is taken for unknown
//! throughout.

use super::{Action, Call, Fill, Plan, TensorId};
use crate::group::GroupId;
use crate::rank::{GlobalRank, GroupRank};
use std::collections::BTreeMap;

/// A place where ranks hand data to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The group's collective of that number.
    Collective(GroupId, u32),
    /// The data from one rank of a group to another one.
    Between(GroupId, GroupRank, GroupRank),
    /// The data for a rank of a group that takes it from whoever sends.
    FromAny(GroupId, GroupRank),
}

/// The flow of data: from tensors, by their numbers, and from places, whose numbers follow the tensors'.
struct Ways {
    tensors: usize,
    places: BTreeMap<Place, usize>,
    ways: Vec<(usize, usize)>,
}

impl Ways {
    fn place(&mut self, place: Place) -> usize {
        let next = self.tensors + self.places.len();
        *self.places.entry(place).or_insert(next)
    }

    fn goes(&mut self, tensor: TensorId, place: Place) {
        let place = self.place(place);
        self.ways.push((tensor.index(), place));
    }

    fn out_of(&mut self, place: Place, tensor: TensorId) {
        let place = self.place(place);
        self.ways.push((place, tensor.index()));
    }

    /// A point-to-point call of one rank.
    fn transfer(&mut self, plan: &Plan, rank: GlobalRank, call: &Call) {
        let group = call.group();
        let Some(me) = plan.group(group).and_then(|group| group.group_rank(rank)) else { return };
        match call {
            Call::Send { peer, tensor, .. } => {
                self.goes(*tensor, Place::Between(group, me, *peer));
                self.goes(*tensor, Place::FromAny(group, *peer));
            }
            Call::Recv { peer: Some(peer), tensor, .. } => {
                self.out_of(Place::Between(group, *peer, me), *tensor);
            }
            Call::Recv { peer: None, tensor, .. } => {
                self.out_of(Place::FromAny(group, me), *tensor);
            }
            Call::Collective { .. } => {}
        }
    }

    /// The tensors and places that follow from those that are unknown.
    fn spread(&self, mut unknown: Vec<bool>) -> Vec<bool> {
        let nodes = self.tensors + self.places.len();
        unknown.resize(nodes, false);
        let mut ways = self.ways.clone();
        ways.sort_unstable();
        ways.dedup();
        let mut open: Vec<usize> = (0..self.tensors).filter(|at| unknown[*at]).collect();
        while let Some(from) = open.pop() {
            let first = ways.partition_point(|(own, _)| *own < from);
            for (_, into) in ways.iter().skip(first).take_while(|(own, _)| *own == from) {
                if let Some(own) = unknown.get_mut(*into).filter(|own| !**own) {
                    *own = true;
                    open.push(*into);
                }
            }
        }
        unknown.truncate(self.tensors);
        unknown
    }
}

impl Plan {
    /// Per tensor, true if it may get values that the plan does not know.
    pub fn unknown(&self) -> Vec<bool> {
        let unknown: Vec<bool> =
            self.tensors.iter().map(|tensor| tensor.fill == Fill::Unknown).collect();
        if !unknown.contains(&true) {
            return unknown;
        }
        let (tensors, places) = (self.tensors.len(), BTreeMap::new());
        let mut ways = Ways { tensors, places, ways: Vec::new() };
        let mut transfers: Vec<Vec<&Call>> = vec![Vec::new(); self.programs.len()];
        for (program, transfers) in self.programs.iter().zip(&mut transfers) {
            let mut made: BTreeMap<GroupId, u32> = BTreeMap::new();
            for op in &program.ops {
                if let Action::Copy(copy) = &op.action {
                    ways.ways.push((copy.from.index(), copy.into.index()));
                }
                for call in op.action.calls() {
                    let Call::Collective { group, input, output, .. } = call else {
                        transfers.push(call);
                        continue;
                    };
                    let nth = made.entry(*group).or_default();
                    let place = Place::Collective(*group, *nth);
                    *nth += 1;
                    if let Some(read) = input.or(*output) {
                        ways.goes(read, place);
                    }
                    if let Some(written) = output {
                        ways.out_of(place, *written);
                    }
                }
            }
        }
        for (rank, program) in (0..).map(GlobalRank).zip(&self.program_of) {
            for call in transfers.get(*program as usize).into_iter().flatten() {
                ways.transfer(self, rank, call);
            }
        }
        ways.spread(unknown)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

    use crate::collective::Collective;
    use crate::dtype::Dtype;
    use crate::group::{BackendName, GroupId};
    use crate::plan::{Action, Fill, Plan, PlanBuilder, TensorCopy};
    use crate::rank::GroupRank;
    use crate::reduce::ReduceOp;

    fn names(plan: &Plan) -> Vec<&str> {
        let both = plan.tensors.iter().zip(plan.unknown());
        both.filter(|(_, unknown)| *unknown).map(|(tensor, _)| tensor.name.as_str()).collect()
    }

    #[test]
    fn it_comes_along_with_copies_calls_and_messages() {
        let mut plan = PlanBuilder::new("p", 3, BackendName::Gloo).unwrap();
        let loss = plan.tensor("loss", Dtype::Float32, 1, Fill::Unknown);
        let [total, known, sent, got, other] = ["total", "known", "sent", "got", "other"]
            .map(|name| plan.tensor(name, Dtype::Float32, 1, Fill::Zeros));
        let (group, sum) = (GroupId::WORLD, Collective::AllReduce { op: ReduceOp::Sum });
        let plan = plan.every_rank(|rank, program| {
            let (from, into, reduce) = (loss, total, None);
            let (from_offset, into_offset, count) = (0, 0, 1);
            program.push(Action::Copy(Box::new(TensorCopy {
                group,
                from,
                from_offset,
                into,
                into_offset,
                count,
                reduce,
            })));
            program.collective(group, sum, 1, None, Some(total));
            program.collective(group, sum, 1, None, Some(known));
            match rank.0 {
                0 => program.send(group, GroupRank(1), total),
                1 => {
                    program.recv(group, GroupRank(0), got);
                    program.send(group, GroupRank(2), sent)
                }
                _ => program.recv(group, GroupRank(1), other),
            };
        });
        assert_eq!(names(&plan.unwrap()), ["loss", "total", "got"]);
    }
}
