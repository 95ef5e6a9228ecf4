//! The values of a program that Starlark has not: groups, works and their like.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

pub(crate) use crate::dist::reduce_ops::ReduceOpValue;
use crate::process::raised::refused;
use crate::python::type_error::{class_of, type_error};
pub(crate) use crate::tensor::value::TensorValue;
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::{self, Dist, Group};
use starlark::collections::StarlarkHasher;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::cmp::Ordering;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

macro_rules! wraps {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
        pub(crate) struct $name(#[allocative(skip)] pub(crate) $inner);
        starlark_simple_value!($name);
    };
}
wraps! {
    /// A `ProcessGroup`, or `GroupMember.NON_GROUP_MEMBER`.
    GroupValue(NamedGroup)
}

/// A group with its `group_name` and `group_desc`, which it keeps for as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct NamedGroup {
    pub(crate) group: c10d::Group,
    pub(crate) name: Arc<str>,
    pub(crate) desc: Arc<str>,
}

impl NamedGroup {
    /// The result of `new_group` for ranks that are in none of it.
    pub(crate) fn none() -> NamedGroup {
        NamedGroup { group: c10d::Group::NonMember, name: "".into(), desc: "".into() }
    }

    /// A group as the rank that made it knows it.
    pub(crate) fn of(dist: &c10d::Dist<'_>, group: c10d::Group) -> NamedGroup {
        NamedGroup {
            group,
            name: dist.group_name(Some(group)).unwrap_or_default().into(),
            desc: dist.group_desc(Some(group)).unwrap_or_default().into(),
        }
    }
}

/// `dist.group.WORLD`: the default group, whichever that is by then.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct WorldValue;
starlark_simple_value!(WorldValue);

wraps! {
    /// A `Work`.
    WorkValue(c10d::Work)
}
wraps! {
    /// The future of a work.
    FutureValue(c10d::Work)
}
wraps! {
    /// A `torch.dtype`.
    DtypeValue(Dtype)
}
wraps! {
    /// A `datetime.timedelta`, in milliseconds.
    DurationValue(u64)
}
wraps! {
    /// A `torch.device`, and which of its type where it says so.
    DeviceValue((c10d::Device, Option<u32>))
}
wraps! {
    /// A `P2POp`, its text, and the other rank as the world counts it.
    P2POpValue((c10d::P2POp, String, i64))
}
wraps! {
    /// A context that `with` can enter.
    ContextValue(Context)
}

/// The context of a `with` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// `ddp.no_sync()` of that model.
    NoSync(usize),
    /// `ddp.join()` of that model, and `throw_on_early_termination`.
    Join { model: usize, throw: bool },
    /// `torch.cuda.stream(s)`, and the stream that was current before.
    Stream { stream: c10d::Stream, before: c10d::Stream },
    /// `_coalescing_manager(…)`, by its number in the process.
    Coalescing(usize),
    /// `torch.no_grad()`, or `torch.enable_grad()`.
    Grad(bool),
    /// `torch.autocast(…)`, and the type that it computes in where it is on.
    Autocast(Option<Dtype>),
    /// An object of a class of the program's.
    Own,
    /// A context that changes nothing here.
    Nothing,
}

impl fmt::Display for GroupValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.group {
            c10d::Group::Member(_) => {
                "<torch.distributed.distributed_c10d.ProcessGroup object at 0xADDR>"
            }
            // It is a number.
            c10d::Group::NonMember => "-100",
        })
    }
}

impl fmt::Display for WorldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.distributed.distributed_c10d.ProcessGroup object at 0xADDR>")
    }
}

impl fmt::Display for WorkValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.distributed.distributed_c10d.Work object at 0xADDR>")
    }
}

impl fmt::Display for FutureValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.Future object at 0xADDR>")
    }
}

impl fmt::Display for DtypeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.{}", self.0)
    }
}

impl fmt::Display for DurationValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let parts = [("days", days), ("seconds", ms / 1000), ("microseconds", ms % 1000 * 1000)];
        let parts = parts.iter().filter(|(_, count)| *count > 0);
        let parts: Vec<String> = parts.map(|(unit, count)| format!("{unit}={count}")).collect();
        match parts.is_empty() {
            true => f.write_str("datetime.timedelta(0)"),
            false => write!(f, "datetime.timedelta({})", parts.join(", ")),
        }
    }
}

impl fmt::Display for DeviceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            (device, Some(index)) => write!(f, "device(type='{device}', index={index})"),
            (device, None) => write!(f, "device(type='{device}')"),
        }
    }
}

impl fmt::Display for P2POpValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.1)
    }
}

impl fmt::Display for ContextValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<context>")
    }
}

methods_static!(DURATION_METHODS = duration_methods);

#[starlark_value(type = "dtype")]
impl<'v> StarlarkValue<'v> for DtypeValue {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<DtypeValue>().is_some_and(|other| other.0 == self.0))
    }

    /// Gradients are put into buckets by their type.
    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        hasher.write(self.0.name().as_bytes());
        Ok(())
    }
}

#[starlark_value(type = "timedelta")]
impl<'v> StarlarkValue<'v> for DurationValue {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<DurationValue>().is_some_and(|other| other.0 == self.0))
    }

    fn compare(&self, other: Value<'v>) -> starlark::Result<Ordering> {
        match other.downcast_ref::<DurationValue>() {
            Some(other) => Ok(self.0.cmp(&other.0)),
            None => Err(starlark::Error::new_native(type_error(format!(
                "'<' not supported between instances of 'datetime.timedelta' and '{}'",
                class_of(other)
            )))),
        }
    }

    fn mul(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        let times = u64::try_from(rhs.unpack_i32()?).ok()?;
        Some(Ok(heap.alloc(DurationValue(self.0.saturating_mul(times)))))
    }

    /// `0:05:00`, as Python prints it; `repr()` names the class.
    fn collect_str(&self, collector: &mut String) {
        let (seconds, ms) = (self.0 / 1000, self.0 % 1000);
        let (days, seconds) = (seconds / 86_400, seconds % 86_400);
        match days {
            0 => {}
            1 => collector.push_str("1 day, "),
            days => collector.push_str(&format!("{days} days, ")),
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        collector.push_str(&format!("{hours}:{minutes:02}:{:02}", seconds % 60));
        if ms > 0 {
            collector.push_str(&format!(".{ms:03}000"));
        }
    }

    fn get_methods() -> Option<&'static Methods> {
        Some(DURATION_METHODS.methods())
    }
}

#[starlark_module]
fn duration_methods(builder: &mut MethodsBuilder) {
    fn total_seconds<'v>(this: Value<'v>) -> anyhow::Result<f64> {
        Ok(this.downcast_ref::<DurationValue>().map_or(0.0, |duration| duration.0 as f64 / 1e3))
    }
}

#[starlark_value(type = "device")]
impl<'v> StarlarkValue<'v> for DeviceValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "type" => Some(heap.alloc(self.0.0.to_string())),
            "index" => Some(self.0.1.map_or(Value::new_none(), |index| heap.alloc(index))),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "type" | "index")
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<DeviceValue>().is_some_and(|other| other.0 == self.0))
    }

    /// `cuda:1`; `repr()` names the class.
    fn collect_str(&self, collector: &mut String) {
        match self.0 {
            (device, Some(index)) => collector.push_str(&format!("{device}:{index}")),
            (device, None) => collector.push_str(&device.to_string()),
        }
    }
}

#[starlark_value(type = "P2POp")]
impl<'v> StarlarkValue<'v> for P2POpValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let (op, _, peer) = &self.0;
        match attribute {
            "tensor" => Some(heap.alloc(TensorValue(op.tensor().clone()))),
            "peer" => Some(heap.alloc(*peer)),
            "group_peer" => Some(heap.alloc(op.group_peer())),
            "tag" => Some(heap.alloc(op.tag())),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "tensor" | "peer" | "group_peer" | "tag")
    }
}

/// The global ranks of a model's group, by group rank.
pub(crate) fn members(
    dist: &Dist<'_>,
    group: Option<Group>,
) -> anyhow::Result<Vec<lockstep_core::rank::GlobalRank>> {
    let group = group.or_else(|| dist.world());
    let group = group.ok_or_else(|| anyhow::anyhow!("there is no default group"))?;
    dist.get_process_group_ranks(group).map_err(refused)
}
