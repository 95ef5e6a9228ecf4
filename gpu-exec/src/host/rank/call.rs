//! A collective as one rank makes it: its schedule's actions, with the places in the shared memory
//! that they are about. Worked out once and used by every call that is the same.

use super::act::{Act, Place};
use super::combine::Reduction;
use super::failure::RankFailure;
use super::in_place::InPlace;
use crate::host::arena::{Arena, Memory};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Call, Plan, Signature};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce;
use lockstep_core::schedule::{self, Buffer, Layout};

/// See the module.
#[derive(Debug)]
pub(super) struct CollectiveCall {
    /// The fingerprint of the values that the ranks must agree on.
    pub(super) fingerprint: u64,
    pub(super) steps: Vec<Vec<Act>>,
    pub(super) reduction: Option<Reduction>,
    pub(super) premultiply: Option<Premultiply>,
    /// The division that a mean of integers has left to do.
    pub(super) divide: Option<Divide>,
    /// The call in fewer passes through memory, if the schedule allows it.
    pub(super) in_place: Option<InPlace>,
    /// True if the first step takes less time than reading the clock.
    pub(super) begins_soon: bool,
}

/// The most actions of a first step that takes no time to speak of, and the most bytes of all.
const SOON: (usize, usize) = (4, 4096);

/// A multiplication of the rank's contribution before it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Premultiply {
    pub(super) dtype: Dtype,
    pub(super) factor: f64,
    pub(super) from: Memory,
    /// The result's memory: the operand's for an in-place call.
    pub(super) into: Memory,
}

/// A division of the rank's result at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divide {
    pub(super) dtype: Dtype,
    pub(super) size: u32,
    pub(super) what: Memory,
}

impl CollectiveCall {
    /// The call that an operation of the rank's program makes; `None` if it makes none.
    ///
    /// # Errors
    /// When the plan was not checked.
    pub(super) fn of(
        plan: &Plan,
        rank: GlobalRank,
        call: &Call,
        arena: &Arena,
    ) -> Result<Option<CollectiveCall>, RankFailure> {
        let Call::Collective { group, input, output, splits, .. } = call else { return Ok(None) };
        let unchecked = "a collective that its rank cannot call";
        let Signature { schedule, dtype, count } =
            plan.signature(rank, call).ok_or(RankFailure::Unchecked(unchecked))?;
        let me = plan
            .group(*group)
            .and_then(|group| group.group_rank(rank))
            .ok_or(RankFailure::Unchecked(unchecked))?;
        let lanes = (schedule.channels(), schedule.segments(), schedule.ranks_per_node());
        let table = schedule.table().map(|table| table.digest());
        let how = (schedule.collective(), schedule.algorithm(), lanes, table);
        let fingerprint = fingerprint(&(how, count, dtype));
        let (collective, size) = (schedule.collective(), schedule.size());
        let tensor = |id: &Option<_>| id.and_then(|id| arena.tensors.get(&id).copied());
        let (input, output) = (tensor(input), tensor(output));
        let reduction = collective.reduce_op().map(|op| Reduction { dtype, op });
        let factor = reduction.and_then(|how| reduce::premultiplier(how.op, dtype, size));
        let scaled = arena.scaled.get(group).copied().unwrap_or_default();
        let premultiply = match (factor, collective.in_place()) {
            (None, _) => None,
            (Some(factor), true) => {
                output.map(|tensor| Premultiply { dtype, factor, from: tensor, into: tensor })
            }
            (Some(factor), false) => match input {
                Some(from) => {
                    let into = scaled.part(0, from.bytes as u64)?;
                    Some(Premultiply { dtype, factor, from, into })
                }
                None => None,
            },
        };
        let layout = Layout::new(schedule, count, dtype.size_bytes()).with_splits(splits.clone());
        let places = Places {
            me,
            element: dtype.size_bytes(),
            input: premultiply.map(|scaled| scaled.into).or(input),
            output,
            scratch: arena.scratch.get(group).copied(),
            layout: &layout,
        };
        let steps = places.steps()?;
        let divisor = reduction.and_then(|how| reduce::divisor(how.op, dtype, size));
        let divide = match (divisor, output) {
            (Some(size), Some(output)) if collective.promises(me) => {
                let elements = layout.grid(me, Buffer::Output).elements;
                let what = output.part(0, elements.saturating_mul(dtype.size_bytes()))?;
                Some(Divide { dtype, size, what })
            }
            _ => None,
        };
        let in_place = InPlace::of(&steps);
        let first = steps.first().map_or(&[][..], Vec::as_slice);
        let first_bytes: usize = first.iter().map(Act::bytes).sum();
        let begins_soon = premultiply.is_none() && first.len() <= SOON.0 && first_bytes <= SOON.1;
        Ok(Some(CollectiveCall {
            fingerprint,
            steps,
            reduction,
            premultiply,
            divide,
            in_place,
            begins_soon,
        }))
    }
}

/// The places of a rank's buffers.
struct Places<'a> {
    me: GroupRank,
    element: u64,
    input: Option<Memory>,
    output: Option<Memory>,
    scratch: Option<Memory>,
    layout: &'a Layout,
}

impl Places<'_> {
    /// The memory of a slice of the schedule.
    fn place(&self, slice: schedule::Slice) -> Result<Memory, RankFailure> {
        let range = self.layout.range(self.me, slice);
        if range.is_empty() {
            return Ok(Memory::EMPTY);
        }
        let memory = match slice.buffer {
            Buffer::Input => self.input,
            Buffer::Output => self.output,
            Buffer::Scratch => self.scratch,
        };
        let memory =
            memory.ok_or(RankFailure::Unchecked("a buffer that the call does not pass"))?;
        memory
            .part(range.start.saturating_mul(self.element), range.end.saturating_mul(self.element))
    }

    fn act(&self, action: schedule::Action) -> Result<Act, RankFailure> {
        let named = |named| Ok::<_, RankFailure>(Place { named, memory: self.place(named)? });
        Ok(match action {
            schedule::Action::Copy { from, into } => {
                Act::Copy { from: self.place(from)?, into: self.place(into)? }
            }
            schedule::Action::Reduce { local, from, into } => Act::Reduce {
                local: self.place(local)?,
                from: self.place(from)?,
                into: self.place(into)?,
            },
            schedule::Action::Send { peer, from } => {
                Act::Send { peer: peer.index(), from: named(from)? }
            }
            schedule::Action::Receive { peer, into } => {
                Act::Receive { peer: peer.index(), into: named(into)? }
            }
            schedule::Action::ReceiveReduce { peer, local, into } => Act::ReceiveReduce {
                peer: peer.index(),
                local: self.place(local)?,
                into: named(into)?,
            },
        })
    }

    fn steps(&self) -> Result<Vec<Vec<Act>>, RankFailure> {
        let schedule = self.layout.schedule();
        let mut actions = Vec::new();
        let mut steps = Vec::with_capacity(schedule.steps() as usize);
        for step in 0..schedule.steps() {
            schedule.actions(self.me, step, &mut actions);
            let acts: Result<Vec<Act>, RankFailure> =
                actions.iter().map(|action| self.act(*action)).collect();
            steps.push(acts?);
        }
        Ok(steps)
    }
}

/// XXH3 of the binary form of the parameters that the ranks of a call must agree on.
pub(super) fn fingerprint(agreed: &impl serde::Serialize) -> u64 {
    // postcard fails only on types of unknown length.
    xxhash_rust::xxh3::xxh3_64(&postcard::to_stdvec(agreed).unwrap_or_default())
}
