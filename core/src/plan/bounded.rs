//! Bounds on the size of a plan, checked while it is read: an operation takes up to 200 bytes of memory
//! and can be written in three.

use super::{Action, Call, Callers, Op, Program, SourceLine, Tensor};
use crate::rank::MAX_WORLD_SIZE;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The most operations of a plan, counted over its programs; each call of [`Action::Coalesced`] counts as one.
/// 2^24; small in this crate's tests.
pub const MAX_OPS: usize = if cfg!(test) { 1 << 12 } else { 1 << 24 };

/// The most calls of one [`Action::Coalesced`].
const MAX_COALESCED: usize = 1 << 20;

/// The most lines of one list of callers.
pub(super) const MAX_CALLERS: usize = 32;

/// The most lines in all lists of callers.
const MAX_CALLER_LINES: usize = 4 << 20;

/// The most tensors of a plan.
const MAX_TENSORS: usize = 4 << 20;

/// Reads a list item by item. `weigh` returns an item's weight, and may change it; `most` is the largest sum.
struct Bounded<T, F> {
    what: &'static str,
    most: usize,
    weigh: F,
    item: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(&mut T) -> usize> Visitor<'de> for Bounded<T, F> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {} {}", self.most, self.what)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Vec<T>, A::Error> {
        let (mut read, mut sum) = (Vec::new(), 0usize);
        while let Some(mut item) = list.next_element()? {
            sum = sum.saturating_add((self.weigh)(&mut item));
            if sum > self.most {
                let (most, what) = (self.most, self.what);
                return Err(A::Error::custom(format!("it has more than {most} {what}")));
            }
            read.push(item);
        }
        read.shrink_to_fit();
        Ok(read)
    }
}

fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    what: &'static str,
    most: usize,
    weigh: impl FnMut(&mut T) -> usize,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Bounded { what, most, weigh, item: PhantomData })
}

/// The number that an operation counts as: the calls of a coalesced one, else 1.
fn calls_of(op: &Op) -> usize {
    match &op.action {
        Action::Coalesced { calls, .. } => calls.len().max(1),
        _ => 1,
    }
}

/// The operations of one program.
pub(super) fn ops<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Op>, D::Error> {
    let mut last: Option<Arc<str>> = None;
    let mut calls = SharedCalls::default();
    bounded(deserializer, "operations", MAX_OPS, |op: &mut Op| {
        match &mut op.action {
            // The computations of a recovered plan have one name: it need not be in memory a million times.
            Action::Compute { name, .. } => match last.as_ref().filter(|last| *last == name) {
                Some(last) => *name = Arc::clone(last),
                None => last = Some(Arc::clone(name)),
            },
            Action::Call { call, .. } => calls.share(call),
            _ => {}
        }
        calls_of(op)
    })
}

/// A call is compared with so many different calls before it.
const MOST_COMPARED: usize = 64;

/// The last different calls of a program that is being read, so that a loop's calls are in memory once.
#[derive(Default)]
struct SharedCalls {
    last: VecDeque<Arc<Call>>,
    /// The place among them of the last call that was shared: a loop takes the next one then.
    at: usize,
}

impl SharedCalls {
    /// Replaces a call by an equal one that was read before, if there is one.
    fn share(&mut self, call: &mut Arc<Call>) {
        let next = (self.at + 1) % self.last.len().max(1);
        let is_it = |at: &usize| self.last.get(*at).is_some_and(|known| known == call);
        let found = Some(next).filter(is_it).or_else(|| (0..self.last.len()).find(is_it));
        match found.and_then(|at| Some((at, self.last.get(at)?))) {
            Some((at, known)) => {
                *call = Arc::clone(known);
                self.at = at;
            }
            None => {
                if self.last.len() == MOST_COMPARED {
                    self.last.pop_front();
                }
                self.last.push_back(Arc::clone(call));
                self.at = self.last.len() - 1;
            }
        }
    }
}

/// The programs of a plan. A program counts as an operation itself, so that empty ones have an end.
pub(super) fn programs<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Program>, D::Error> {
    bounded(deserializer, "operations in its programs", MAX_OPS, |program: &mut Program| {
        program.ops.iter().map(calls_of).sum::<usize>() + 1
    })
}

/// The calls of one [`Action::Coalesced`].
pub(super) fn calls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Call>, D::Error> {
    bounded(deserializer, "calls in one operation", MAX_COALESCED, |_| 1)
}

/// The tensors of a plan.
pub(super) fn tensors<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Tensor>, D::Error> {
    bounded(deserializer, "tensors", MAX_TENSORS, |_| 1)
}

/// The lists of callers. A list counts as a line itself, so that empty ones have an end.
pub(super) fn callers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Callers>, D::Error> {
    let lines = |callers: &mut Callers| callers.0.len() + 1;
    bounded(deserializer, "lines in its lists of callers", MAX_CALLER_LINES, lines)
}

/// The lines of one list of callers.
pub(super) fn caller_lines<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SourceLine>, D::Error> {
    bounded(deserializer, "callers of one operation", MAX_CALLERS, |_| 1)
}

/// The program of each rank.
pub(super) fn program_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    bounded(deserializer, "ranks", MAX_WORLD_SIZE as usize, |_| 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::dtype::Dtype;
    use crate::group::{BackendName, GroupId};
    use crate::plan::binary::PLAN_MAGIC;
    use crate::plan::{Fill, Plan, PlanBuilder};
    use crate::rank::GlobalRank;
    use crate::reduce::ReduceOp;

    /// The calls of a loop are in memory once, in whichever form the plan was written.
    #[test]
    fn equal_calls_share_one() {
        let mut plan = PlanBuilder::new("loop", 2, BackendName::Gloo).unwrap();
        let tensors = ["a", "b", "c"].map(|name| plan.tensor(name, Dtype::Float32, 8, Fill::Rank));
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan.every_rank(|_, program| {
            for _ in 0..20 {
                for tensor in tensors {
                    program.collective(GroupId::WORLD, sum, 8, None, Some(tensor));
                }
            }
        });
        let plan = plan.unwrap();
        for read in
            [Plan::from_json(&plan.to_json()).unwrap(), Plan::from_bytes(&plan.to_bytes()).unwrap()]
        {
            assert_eq!(read, plan);
            let ops = &read.program(GlobalRank(0)).unwrap().ops;
            let call = |at: usize| match &ops[at].action {
                Action::Call { call, .. } => Arc::as_ptr(call),
                other => panic!("{other:?}"),
            };
            assert!((3..60).all(|at| call(at) == call(at % 3)));
            assert_ne!(call(0), call(1));
        }
    }

    /// A recovered job has millions of them.
    #[test]
    fn an_operation_is_small() {
        assert!(size_of::<Op>() <= 64, "{}", size_of::<Op>());
    }

    /// A binary plan of so many operations, three bytes each.
    fn dense(programs: usize, ops: usize) -> Vec<u8> {
        let plan = PlanBuilder::new("dense", 1, BackendName::Host).unwrap();
        let mut plan = plan.every_rank(|_, _| {}).unwrap();
        plan.programs = vec![Program::default()];
        let empty = plan.to_bytes();
        plan.programs[0].ops.push(Op::new(Action::Synchronize, None));
        let one = plan.to_bytes();
        // The list of programs begins where the two first differ: a length, then the operations.
        let at = empty.iter().zip(&one).position(|(empty, one)| empty != one).unwrap();
        let op = &one[at + 1..one.len() - (empty.len() - at - 1)];
        let list = [&varint(ops)[..], &op.repeat(ops)].concat();
        [&empty[..at - 1], &varint(programs), &list.repeat(programs), &empty[at + 1..]].concat()
    }

    fn varint(mut value: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 127 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    #[test]
    fn operations_are_counted_over_all_programs() {
        assert_eq!(&dense(1, 0)[..8], PLAN_MAGIC);
        let plan = Plan::from_bytes(&dense(3, 1000)).unwrap();
        assert_eq!(plan.programs.iter().map(|program| program.ops.len()).sum::<usize>(), 3000);
        let refused = Plan::from_bytes(&dense(9, MAX_OPS / 8)).unwrap_err().to_string();
        assert!(refused.contains("at most 4096 operations"), "{refused}");
        let action = "{\"action\":\"synchronize\"}";
        let text = serde_json::to_string(&plan).unwrap();
        let ops = vec![action; MAX_OPS / 8].join(",");
        let programs = vec![format!("{{\"ops\":[{ops}]}}"); 9].join(",");
        let start = text.find("\"programs\":[").unwrap();
        let end = text.find("],\"program_of\"").unwrap();
        let text = format!(
            "{{\"schema\":\"lockstep.plan/2\",{}\"programs\":[{programs}{}",
            &text[1..start],
            &text[end..]
        );
        let refused = Plan::from_json(&text).unwrap_err().to_string();
        assert!(refused.contains("more than 4096 operations"), "{refused}");
    }
}
