//! What ranks hear from each other in object calls.
//!
//! Ranks are executed one after the other: what a rank has not heard yet stays as it is in its list,
//! and the program is executed again with what all have sent, until nothing changes any more. What a
//! rank does by an object that it has not heard is none of what it does in the end, nor is how it
//! ends there.

use super::arguments::{class_of, type_error};
use super::process::{Process, process};
use super::stores::BytesValue;
use super::undecided::Unknown;
use crate::c10d::{Group, Object};
use crate::pickle::{self, Pickle};
use crate::rank::GlobalRank;
use starlark::eval::Evaluator;
use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects that a rank goes on without at most: what it sends meanwhile may be what it sends in the
/// end, which saves executions.
const MAX_UNHEARD: usize = 256;

/// Which call it is: the n-th of its kind among these ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Meeting {
    members: Arc<[GlobalRank]>,
    call: &'static str,
    nth: usize,
}

/// What one rank sends in a call; `None` for what is no plain data.
type Objects = Vec<Option<Object>>;

/// What one rank has sent, in its order.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    calls: Vec<(Meeting, Objects)>,
    counts: BTreeMap<(Arc<[GlobalRank]>, &'static str), usize>,
}

/// What all ranks have sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Board {
    of: BTreeMap<Meeting, Arc<ByRank>>,
}

type ByRank = BTreeMap<GlobalRank, Objects>;

impl Board {
    /// Of what each rank has sent, in rank order.
    pub(super) fn of<'s>(ranks: impl Iterator<Item = &'s Sent>) -> Board {
        let mut of: BTreeMap<Meeting, ByRank> = BTreeMap::new();
        for (rank, sent) in (0..).map(GlobalRank).zip(ranks) {
            for (meeting, objects) in &sent.calls {
                of.entry(meeting.clone()).or_default().insert(rank, objects.clone());
            }
        }
        Board { of: of.into_iter().map(|(meeting, by)| (meeting, Arc::new(by))).collect() }
    }
}

/// An object call that a rank has made.
pub(super) struct Called {
    members: Arc<[GlobalRank]>,
    me: GlobalRank,
    /// What was sent in it, as far as that is known.
    heard: Option<Arc<ByRank>>,
}

impl Called {
    /// The rank's place in the group.
    pub(super) fn place(&self) -> usize {
        self.members.iter().position(|rank| *rank == self.me).unwrap_or(0)
    }

    /// The members, by group rank.
    pub(super) fn members(&self) -> Arc<[GlobalRank]> {
        self.members.clone()
    }

    /// The root, as it was named: rank 0 of the world where it was not.
    pub(super) fn root(&self, global: Option<i64>, group: Option<i64>) -> GlobalRank {
        named(&self.members, global, group)
    }

    /// True if the rank is that one.
    pub(super) fn is(&self, rank: GlobalRank) -> bool {
        self.me == rank
    }
}

/// Notes that the rank has made a call of this kind in a group, with what it sent there; `None` where
/// it is no member.
pub(super) fn made(
    process: &mut Process<'_>,
    call: &'static str,
    group: Option<Group>,
    objects: Objects,
) -> anyhow::Result<Option<Called>> {
    let dist = process.dist()?;
    let members = super::module::members(dist, group)?;
    let me = dist.process();
    if !members.contains(&me) {
        return Ok(None);
    }
    Ok(Some(note(process, call, members.into(), me, objects)))
}

/// Notes that it has sent objects to another rank, or received some: `between` is the sender and the
/// receiver.
pub(super) fn passed(
    process: &mut Process<'_>,
    between: [GlobalRank; 2],
    objects: Objects,
) -> anyhow::Result<Called> {
    let me = process.dist()?.process();
    let call = if me == between[0] { SENT } else { RECEIVED };
    Ok(note(process, call, between.into(), me, objects))
}

/// The sender and the receiver of objects; `None` where the sender is not named, or the rank is no
/// member.
pub(super) fn between(
    process: &mut Process<'_>,
    group: Option<Group>,
    (global, in_group): (Option<i64>, Option<i64>),
    sends: bool,
) -> anyhow::Result<Option<[GlobalRank; 2]>> {
    let dist = process.dist()?;
    let (members, me) = (super::module::members(dist, group)?, dist.process());
    if (global, in_group) == (None, None) || !members.contains(&me) {
        return Ok(None);
    }
    let other = named(&members, global, in_group);
    Ok(Some(if sends { [me, other] } else { [other, me] }))
}

/// A rank as it was named: rank 0 of the world where it was not.
fn named(members: &[GlobalRank], global: Option<i64>, in_group: Option<i64>) -> GlobalRank {
    let in_group = in_group.and_then(|place| members.get(usize::try_from(place).ok()?));
    let in_world = || global.and_then(|rank| u32::try_from(rank).ok()).map(GlobalRank);
    in_group.copied().or_else(in_world).unwrap_or(GlobalRank(0))
}

/// Puts objects into a list of which nothing is known.
pub(super) fn made_up<'v>(
    list: Value<'v>,
    length: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<()> {
    let heap = eval.heap();
    for at in 0..length {
        let unknown = heap.alloc(process(eval)?.unknown(Unknown::Object));
        put(list, at, unknown, heap)?;
    }
    Ok(())
}

fn put<'v>(list: Value<'v>, at: usize, value: Value<'v>, heap: Heap<'v>) -> anyhow::Result<()> {
    list.set_at(heap.alloc(i32::try_from(at)?), value).map_err(|_| {
        let class = class_of(list);
        type_error(format!("'{class}' object does not support item assignment"))
    })
}

const SENT: &str = "send_object_list";
const RECEIVED: &str = "recv_object_list";

fn note(
    process: &mut Process<'_>,
    call: &'static str,
    members: Arc<[GlobalRank]>,
    me: GlobalRank,
    objects: Objects,
) -> Called {
    let sent = &mut process.shown.objects;
    let count = sent.counts.entry((members.clone(), call)).or_default();
    let meeting = Meeting { members: members.clone(), call, nth: *count };
    *count += 1;
    // What is sent to one is known by the name of its sender's call.
    let asked = match call {
        RECEIVED => Meeting { call: SENT, ..meeting.clone() },
        _ => meeting.clone(),
    };
    sent.calls.push((meeting, objects));
    Called { members, me, heard: process.known.objects.of.get(&asked).cloned() }
}

/// Puts the `nth` object that a rank sent in a call into a list.
pub(super) fn hear<'v>(
    called: &Called,
    (from, nth): (GlobalRank, usize),
    (list, at): (Value<'v>, usize),
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<()> {
    let heap = eval.heap();
    let sent = called.heard.as_ref().and_then(|heard| heard.get(&from)?.get(nth));
    let Some(sent) = sent else {
        let process = process(eval)?;
        process.unheard += 1;
        // A loop that ends by what is heard would not end.
        anyhow::ensure!(process.unheard < MAX_UNHEARD, "objects that have not been heard yet");
        return Ok(());
    };
    let value = match sent.as_ref().and_then(|object| read(object, heap)) {
        Some(value) => value,
        None => heap.alloc(process(eval)?.unknown(Unknown::Object)),
    };
    put(list, at, value, heap)
}

/// An object from its pickle.
fn read<'v>(object: &Object, heap: Heap<'v>) -> Option<Value<'v>> {
    let pickle = Pickle::read(object.pickle()).ok()?;
    value(&pickle, pickle.root(), heap)
}

fn value<'v>(pickle: &Pickle<'_>, of: pickle::Value<'_>, heap: Heap<'v>) -> Option<Value<'v>> {
    use pickle::Value::{Bool, Bytes, Dict, Float, Int, List, None, Str, Text, Tuple, Unsigned};
    let items = |of| -> Option<Vec<Value<'v>>> {
        pickle.seq(of)?.iter().map(|item| value(pickle, *item, heap)).collect()
    };
    Some(match of {
        None => Value::new_none(),
        Bool(yes) => Value::new_bool(yes),
        Int(number) => heap.alloc(number),
        Unsigned(number) => heap.alloc(number),
        Float(number) => heap.alloc(number),
        Str(_) | Text(_) => heap.alloc(pickle.str(of)?),
        Bytes(bytes) => heap.alloc(BytesValue(bytes.to_vec())),
        List(_) => heap.alloc(AllocList(items(of)?)),
        Tuple(_) => heap.alloc(AllocTuple(items(of)?)),
        Dict(_) => {
            let entry = |entry: &[pickle::Value<'_>; 2]| {
                let [key, of] = *entry;
                Some((value(pickle, key, heap)?, value(pickle, of, heap)?))
            };
            let entries: Option<Vec<_>> = pickle.dict(of)?.iter().map(entry).collect();
            heap.alloc(AllocDict(entries?))
        }
    })
}
