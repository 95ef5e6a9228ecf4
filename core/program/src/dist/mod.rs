//! `torch.distributed`: its functions under their names, each handed to [`c10d`](lockstep_torch::c10d).

mod collectives;
mod given;
mod groups;
mod objects;
mod p2p;
mod signatures;
mod together;

pub(super) use given::Truth;
pub(super) use signatures::exception;
pub(super) use together::{Manager, enter, leave, wait};

use super::backend_class::BackendClass;
use super::process::refused;
use super::values::{DurationValue, FutureValue, GroupValue, NamedGroup, WorkValue, WorldValue};
use lockstep_torch::c10d::Called;
use starlark::environment::GlobalsBuilder;
use starlark::values::{Heap, Value};

/// Adds `dist`, and what people import from it by name.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("dist", functions);
    super::mesh::add(builder);
}

/// What stands in `torch.distributed`.
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    groups::functions(builder);
    collectives::functions(builder);
    collectives::lists(builder);
    p2p::functions(builder);
    objects::functions(builder);
    together::functions(builder);
    together::several_gpus(builder);
    super::stores::functions(builder);
    super::mesh::add(builder);
    super::exceptions::of_dist(builder);
    super::reduce_ops::add(builder);
    builder.set("Backend", BackendClass);
    // Thirty minutes.
    builder.set("default_pg_timeout", DurationValue(1_800_000));
    builder.namespace("device_mesh", super::mesh::add);
    builder.namespace("distributed_c10d", |builder| {
        together::functions(builder);
        super::stores::of_c10d(builder);
        groups::of_c10d(builder);
        super::stores::functions(builder);
    });
    builder.namespace("group", |builder| builder.set("WORLD", WorldValue));
    builder.namespace("GroupMember", |builder| {
        builder.set("WORLD", WorldValue);
        builder.set("NON_GROUP_MEMBER", GroupValue(NamedGroup::none()));
    });
    super::join::functions(builder);
}

/// The future of a call that is made as one of several, where Python has no work.
fn future<'v>(called: Called, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let work = called.map_err(refused)?;
    Ok(work.map_or(Value::new_none(), |work| heap.alloc(FutureValue(work))))
}

/// A call's work as Python has it: `None` unless there is one.
pub(super) fn called<'v>(called: Called, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    Ok(match called.map_err(refused)? {
        Some(work) => heap.alloc(WorkValue(work)),
        None => Value::new_none(),
    })
}
