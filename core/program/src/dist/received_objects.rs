//! The objects that ranks receive from each other in object calls.
//!
//! Ranks are executed one after the other. An object that a rank has not received yet stays as it is in its
//! list, and the program is executed again with the objects that all have sent, until nothing changes any
//! more. The calls of a rank that acts on an object that it has not received are dropped, and so is its end.

use crate::dist::sent_objects::{ByRank, Meeting, Objects};
use crate::process::state::{Process, process};
use crate::process::undecided::Unknown;
use crate::python::type_error::{class_of, type_error};
use crate::stores::BytesValue;
use lockstep_core::rank::GlobalRank;
use lockstep_torch::c10d::{Group, PyObject};
use starlark::eval::Evaluator;
use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, Value};
use std::sync::Arc;

/// The most objects that a rank goes on without: its sends meanwhile may already be the final ones, which
/// saves executions.
const MAX_UNHEARD: usize = 256;

/// An object call that a rank has made.
pub(crate) struct Called {
    members: Arc<[GlobalRank]>,
    me: GlobalRank,
    /// The objects that were sent in it, as far as that is known.
    heard: Option<Arc<ByRank>>,
}

impl Called {
    /// The rank's place in the group.
    pub(crate) fn place(&self) -> usize {
        self.members.iter().position(|rank| *rank == self.me).unwrap_or(0)
    }

    /// The members, by group rank.
    pub(crate) fn members(&self) -> Arc<[GlobalRank]> {
        self.members.clone()
    }

    /// The root, as it was named: rank 0 of the world where it was not.
    pub(crate) fn root(&self, global: Option<i64>, group: Option<i64>) -> GlobalRank {
        named(&self.members, global, group)
    }

    /// True if the rank is that one.
    pub(crate) fn is(&self, rank: GlobalRank) -> bool {
        self.me == rank
    }
}

/// Notes that the rank has made a call of this kind in a group, with the objects that it sent; `None` if it
/// is not a member.
pub(crate) fn made(
    process: &mut Process<'_>,
    call: &'static str,
    group: Option<Group>,
    objects: Objects,
) -> anyhow::Result<Option<Called>> {
    let dist = process.dist()?;
    let members = crate::dist::values::members(dist, group)?;
    let me = dist.process();
    if !members.contains(&me) {
        return Ok(None);
    }
    let name = name_of(process, group)?;
    Ok(Some(note(process, call, (name, members.into()), me, objects)))
}

/// The name that all members have for a group.
fn name_of(process: &mut Process<'_>, group: Option<Group>) -> anyhow::Result<Arc<str>> {
    Ok(process.dist()?.group_name(group).unwrap_or_default().into())
}

/// Notes that it has sent objects to another rank, or received some: `between` is the sender and the
/// receiver.
pub(crate) fn passed(
    process: &mut Process<'_>,
    group: Option<Group>,
    between: [GlobalRank; 2],
    objects: Objects,
) -> anyhow::Result<Called> {
    let me = process.dist()?.process();
    let call = if me == between[0] { SENT } else { RECEIVED };
    let name = name_of(process, group)?;
    Ok(note(process, call, (name, between.into()), me, objects))
}

/// The sender and the receiver of objects; `None` where the sender is not named, or the rank is no
/// member.
pub(crate) fn between(
    process: &mut Process<'_>,
    group: Option<Group>,
    (global, in_group): (Option<i64>, Option<i64>),
    sends: bool,
) -> anyhow::Result<Option<[GlobalRank; 2]>> {
    let dist = process.dist()?;
    let (members, me) = (crate::dist::values::members(dist, group)?, dist.process());
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
pub(crate) fn made_up<'v>(
    list: Value<'v>,
    length: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<()> {
    let heap = eval.heap();
    for at in 0..length {
        let unknown = heap.alloc(process(eval)?.unknown(Unknown::AnyObject));
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
    (group, members): (Arc<str>, Arc<[GlobalRank]>),
    me: GlobalRank,
    objects: Objects,
) -> Called {
    let sent = &mut process.shown.objects;
    let count = sent.counts.entry((group.clone(), members.clone(), call)).or_default();
    let meeting = Meeting { group, members: members.clone(), call, nth: *count };
    *count += 1;
    // Objects sent to one rank are looked up by the name of the sender's call.
    let asked = match call {
        RECEIVED => Meeting { call: SENT, ..meeting.clone() },
        _ => meeting.clone(),
    };
    sent.calls.push((meeting, objects));
    Called { members, me, heard: process.known.objects.of.get(&asked).cloned() }
}

/// Puts the `nth` object that a rank sent in a call into a list.
pub(crate) fn hear<'v>(
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
    let object = sent.object.clone();
    let value = value(&object, from, eval)?;
    put(list, at, value, heap)
}

/// An object in the hands of the rank that has heard it.
fn value<'v>(
    of: &PyObject,
    from: GlobalRank,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let mut items = |of: &[PyObject]| -> anyhow::Result<Vec<Value<'v>>> {
        of.iter().map(|item| value(item, from, eval)).collect()
    };
    Ok(match of {
        PyObject::None => Value::new_none(),
        PyObject::Bool(yes) => Value::new_bool(*yes),
        PyObject::Int(number) => heap.alloc(*number),
        PyObject::BigInt(digits) => big(digits, heap)?,
        PyObject::Float(number) => heap.alloc(*number),
        PyObject::Str(text) => heap.alloc(text.as_str()),
        PyObject::Bytes(bytes) => heap.alloc(BytesValue(bytes.clone())),
        PyObject::List(entries) => heap.alloc(AllocList(items(entries)?)),
        PyObject::Tuple(entries) => heap.alloc(AllocTuple(items(entries)?)),
        PyObject::Dict(entries) => {
            let mut pairs = Vec::with_capacity(entries.len());
            for (key, of) in entries {
                pairs.push((value(key, from, eval)?, value(of, from, eval)?));
            }
            heap.alloc(AllocDict(pairs))
        }
        PyObject::Set(entries) => {
            let items = items(entries)?;
            let set = crate::python::builtin_classes::set(items, eval);
            set.map_err(|error| anyhow::anyhow!("{error}"))?
        }
        PyObject::Other { class, .. } => {
            heap.alloc(process(eval)?.unknown(Unknown::Object { class, from: Some(from) }))
        }
    })
}

/// A whole number of any size, by its digits.
fn big<'v>(digits: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    const CHUNK: usize = 9;
    let failed = |error: starlark::Error| anyhow::anyhow!("{error}");
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, digits),
    };
    let mut number = heap.alloc(0);
    for chunk in digits.as_bytes().chunks(CHUNK) {
        let part = chunk.iter().fold(0_i64, |part, digit| part * 10 + i64::from(digit - b'0'));
        let scale = 10_i64.pow(chunk.len() as u32);
        number = number.mul(heap.alloc(scale), heap).map_err(failed)?;
        number = number.add(heap.alloc(part), heap).map_err(failed)?;
    }
    if negative { number.minus(heap).map_err(failed) } else { Ok(number) }
}
