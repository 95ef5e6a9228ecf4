//! `torch.distributed`: its functions under their names, each handed to [`c10d`](lockstep_torch::c10d).

pub(crate) mod arguments;
pub(crate) mod backend_class;
mod collectives;
pub(crate) mod future_callbacks;
mod given;
pub(crate) mod group_methods;
mod groups;
pub(crate) mod held_works;
pub(crate) mod mesh;
pub(crate) mod mesh_ranks;
mod objects;
mod p2p;
pub(crate) mod pickled;
pub(crate) mod received_objects;
pub(crate) mod reduce_ops;
pub(crate) mod sent_objects;
pub(crate) mod signatures;
pub(crate) mod state;
mod together;
pub(crate) mod values;
pub(crate) mod work;

pub(super) use given::Truth;
pub(super) use together::{enter, leave, wait};

use crate::dist::backend_class::BackendClass;
use crate::dist::values::{DurationValue, GroupValue, NamedGroup, WorldValue};
use starlark::environment::GlobalsBuilder;

/// Adds `dist`, and the functions that programs import from it by name.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("dist", functions);
    crate::dist::mesh::add(builder);
}

/// The functions of `torch.distributed`.
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    groups::functions(builder);
    collectives::functions(builder);
    collectives::lists(builder);
    p2p::functions(builder);
    objects::functions(builder);
    together::functions(builder);
    together::several_gpus(builder);
    super::stores::functions(builder);
    crate::dist::mesh::add(builder);
    crate::python::exceptions::of_dist(builder);
    crate::dist::reduce_ops::add(builder);
    builder.set("Backend", BackendClass);
    // Thirty minutes.
    builder.set("default_pg_timeout", DurationValue(1_800_000));
    builder.namespace("device_mesh", crate::dist::mesh::add);
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
    crate::nn::join::functions(builder);
}
