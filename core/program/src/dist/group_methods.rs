//! The methods of a `ProcessGroup`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::dist::reduce_ops::ReduceOpValue;
use crate::dist::values::{GroupValue, WorldValue};
use crate::process::raised::refused;
use crate::process::state::process;
use lockstep_core::reduce::ReduceOp;
use lockstep_torch::c10d::{self, FromRank, InGroup, Reduction, TensorArg};
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;

methods_static!(GROUP_METHODS = group_methods);

#[starlark_value(type = "ProcessGroup")]
impl<'v> StarlarkValue<'v> for GroupValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(GROUP_METHODS.methods())
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let other = other.downcast_ref::<GroupValue>();
        Ok(other.is_some_and(|other| other.0.group == self.0.group))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match (attribute, self.0.group) {
            ("group_name", c10d::Group::Member(_)) => Some(heap.alloc(&*self.0.name)),
            ("group_desc", c10d::Group::Member(_)) => Some(heap.alloc(&*self.0.desc)),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        let member = matches!(self.0.group, c10d::Group::Member(_));
        member && matches!(attribute, "group_name" | "group_desc")
    }
}

#[starlark_module]
fn group_methods(builder: &mut MethodsBuilder) {
    fn rank(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        process(eval)?.dist()?.get_rank(group(this)).map_err(refused)
    }

    /// Its backend's.
    fn name(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<String> {
        process(eval)?.dist()?.get_backend(group(this)).map_err(refused)
    }

    /// c10d's own, below `dist.all_reduce`: always a work.
    fn allreduce<'v>(
        this: Value<'v>,
        tensors: Value<'v>,
        #[starlark(default = ReduceOpValue(ReduceOp::Sum))] op: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let (heap, group) = (eval.heap(), group(this));
        let options = Reduction { op: take::reduce_op(op), group, async_op: true };
        let work = process(eval)?.dist()?.all_reduce(one(tensors)?, options);
        crate::dist::work::called(work, heap)
    }

    fn broadcast<'v>(
        this: Value<'v>,
        tensors: Value<'v>,
        root: i64,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let (heap, group) = (eval.heap(), group(this));
        let options = FromRank { group_src: Some(root), group, async_op: true, src: None };
        let work = process(eval)?.dist()?.broadcast(one(tensors)?, options);
        crate::dist::work::called(work, heap)
    }

    fn barrier<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let (heap, group) = (eval.heap(), group(this));
        let work = process(eval)?.dist()?.barrier(InGroup { group, async_op: true });
        crate::dist::work::called(work, heap)
    }

    fn size(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        process(eval)?.dist()?.get_world_size(group(this)).map_err(refused)
    }
}

/// The tensor that c10d's own calls take, alone or as a list of one.
fn one(tensors: Value<'_>) -> anyhow::Result<TensorArg> {
    match take::items(tensors).as_deref() {
        None => Ok(take::tensor(tensors)),
        Some([tensor]) => Ok(take::tensor(*tensor)),
        Some(several) => anyhow::bail!(
            "a process group's own call takes one tensor here, not {}: several GPUs of a process are \
             of PyTorch 1",
            several.len()
        ),
    }
}

fn group(this: Value<'_>) -> Option<c10d::Group> {
    this.downcast_ref::<GroupValue>().map(|group| group.0.group)
}

#[starlark_value(type = "ProcessGroup")]
impl<'v> StarlarkValue<'v> for WorldValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(GROUP_METHODS.methods())
    }

    // Every default group has these; `init_process_group(group_name=…)` is ignored by PyTorch too.
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "group_name" => Some(heap.alloc("0")),
            "group_desc" => Some(heap.alloc("default_pg")),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "group_name" | "group_desc")
    }

    /// True for `WORLD` under any of its names.
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<WorldValue>().is_some())
    }
}
