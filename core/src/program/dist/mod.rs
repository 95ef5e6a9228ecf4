//! `torch.distributed`: its functions under their names, each handed to [`c10d`](crate::c10d).

mod collectives;
mod groups;
mod objects;
mod p2p;
mod signatures;
mod together;

pub(super) use signatures::exception;
pub(super) use together::{Manager, enter, leave, wait};

use super::process::refused;
use super::values::{GroupValue, NamedGroup, ReduceOpValue, WorkValue, WorldValue};
use crate::c10d::Called;
use crate::reduce::ReduceOp;
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
    builder.namespace("ReduceOp", |builder| {
        let ops = [
            ("SUM", ReduceOp::Sum),
            ("AVG", ReduceOp::Avg),
            ("PRODUCT", ReduceOp::Product),
            ("MIN", ReduceOp::Min),
            ("MAX", ReduceOp::Max),
            ("BAND", ReduceOp::Band),
            ("BOR", ReduceOp::Bor),
            ("BXOR", ReduceOp::Bxor),
        ];
        for (name, op) in ops {
            builder.set(name, ReduceOpValue(op));
        }
    });
    builder.namespace("Backend", |builder| {
        for name in ["GLOO", "NCCL", "MPI", "UCC", "XCCL", "UNDEFINED"] {
            builder.set(name, name.to_lowercase());
        }
    });
    builder.namespace("device_mesh", super::mesh::add);
    builder.namespace("distributed_c10d", |builder| {
        together::functions(builder);
        super::stores::of_c10d(builder);
        super::stores::functions(builder);
    });
    builder.namespace("group", |builder| builder.set("WORLD", WorldValue));
    builder.namespace("GroupMember", |builder| {
        builder.set("WORLD", WorldValue);
        builder.set("NON_GROUP_MEMBER", GroupValue(NamedGroup::none()));
    });
    super::join::functions(builder);
}

/// A call's work as Python has it: `None` unless there is one.
fn called<'v>(called: Called, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    Ok(match called.map_err(refused)? {
        Some(work) => heap.alloc(WorkValue(work)),
        None => Value::new_none(),
    })
}
