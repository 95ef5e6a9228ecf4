//! `torch.distributed.ReduceOp`: its operations under their names, as values that a program can show,
//! compare and keep things by.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use lockstep_core::reduce::ReduceOp;
use starlark::collections::StarlarkHasher;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_simple_value;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;
use std::hash::Hasher;

/// A `ReduceOp`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ReduceOpValue(#[allocative(skip)] pub(crate) ReduceOp);
starlark_simple_value!(ReduceOpValue);

/// `ReduceOp.PREMUL_SUM`, which no call takes: it has no factor.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct WithoutFactor;
starlark_simple_value!(WithoutFactor);

/// The class of the members of `ReduceOp`.
const CLASS: &str = "torch._C._distributed_c10d.ReduceOp.RedOpType";

impl ReduceOpValue {
    /// The whole name of its class.
    pub(crate) fn class(&self) -> &'static str {
        match self.0 {
            ReduceOp::PremulSum(_) => "torch.distributed.distributed_c10d.ReduceOp",
            _ => CLASS,
        }
    }

    /// Its number, unless it has a factor.
    fn number(&self) -> Option<i32> {
        Some(match self.0 {
            ReduceOp::Sum => 0,
            ReduceOp::Avg => 1,
            ReduceOp::Product => 2,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Band => 5,
            ReduceOp::Bor => 6,
            ReduceOp::Bxor => 7,
            ReduceOp::PremulSum(_) => return None,
        })
    }
}

impl fmt::Display for ReduceOpValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "<RedOpType.{}: {number}>", self.0),
            None => f.write_str("<torch.distributed.distributed_c10d.ReduceOp object at 0xADDR>"),
        }
    }
}

#[starlark_value(type = "ReduceOp")]
impl<'v> StarlarkValue<'v> for ReduceOpValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "name" => self.number().map(|_| heap.alloc(self.0.to_string())),
            "value" => self.number().map(|number| heap.alloc(number)),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }

    /// As `str()` has it, whose `repr()` is longer.
    fn collect_str(&self, collector: &mut String) {
        match self.number() {
            Some(_) => collector.push_str(&format!("RedOpType.{}", self.0)),
            None => collector.push_str(&self.to_string()),
        }
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<ReduceOpValue>().is_some_and(|other| other.0 == self.0))
    }

    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        hasher.write_i32(self.number().unwrap_or(-1));
        Ok(())
    }
}

impl fmt::Display for WithoutFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<RedOpType.PREMUL_SUM: 8>")
    }
}

#[starlark_value(type = "ReduceOp")]
impl<'v> StarlarkValue<'v> for WithoutFactor {
    fn collect_str(&self, collector: &mut String) {
        collector.push_str("RedOpType.PREMUL_SUM");
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<WithoutFactor>().is_some())
    }
}

/// Adds `ReduceOp`, its `RedOpType`, and `reduce_op`, which PyTorch keeps for old programs.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("ReduceOp", |builder| {
        operations(builder);
        builder.set("PREMUL_SUM", WithoutFactor);
        builder.namespace("RedOpType", operations);
    });
    builder.namespace("reduce_op", |builder| {
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
            builder.set(&op.to_string(), ReduceOpValue(op));
        }
    });
}

fn operations(builder: &mut GlobalsBuilder) {
    let ops = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
    ];
    for op in ops {
        builder.set(&op.to_string(), ReduceOpValue(op));
    }
}
