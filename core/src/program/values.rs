//! The values of a program that Starlark has not: tensors, groups, works and their like.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::arguments::{class_of, whole};
use super::process::{process, refused};
use crate::c10d;
use crate::dtype::Dtype;
use crate::plan::WorkQuery;
use crate::reduce::ReduceOp;
use allocative::Allocative;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::list::AllocList;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

macro_rules! wraps {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
        pub(crate) struct $name(#[allocative(skip)] pub(crate) $inner);
        starlark_simple_value!($name);
    };
}

wraps! {
    /// A tensor of this rank.
    TensorValue(c10d::Tensor)
}
wraps! {
    /// A `ProcessGroup`, or `GroupMember.NON_GROUP_MEMBER`.
    GroupValue(c10d::Group)
}
wraps! {
    /// A `Work`, or the future of one.
    WorkValue(c10d::Work)
}
wraps! {
    /// A `DeviceMesh`, and the mesh that it is a part of.
    MeshValue(c10d::DeviceMesh)
}
wraps! {
    /// A `torch.dtype`.
    DtypeValue(Dtype)
}
wraps! {
    /// A `ReduceOp`.
    ReduceOpValue(ReduceOp)
}
wraps! {
    /// A `datetime.timedelta`, in milliseconds.
    DurationValue(u64)
}
wraps! {
    /// A `torch.device`.
    DeviceValue(c10d::Device)
}
wraps! {
    /// A `P2POp`.
    P2POpValue(c10d::P2POp)
}
wraps! {
    /// What `with` can enter.
    ContextValue(Context)
}

/// What a `with` block is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// `ddp.no_sync()` of that model.
    NoSync(usize),
    /// `ddp.join()` of that model, and `throw_on_early_termination`.
    Join { model: usize, throw: bool },
    /// `torch.cuda.stream(s)`, and the stream that was current before.
    Stream { stream: c10d::Stream, before: c10d::Stream },
    /// `torch.no_grad()` and others that change nothing here.
    Nothing,
}

impl fmt::Display for TensorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.shape().iter().map(u64::to_string).collect();
        write!(f, "tensor(shape=[{}], dtype=torch.{})", sizes.join(", "), self.0.dtype())
    }
}

impl fmt::Display for GroupValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            c10d::Group::Member(_) => "<torch.distributed.distributed_c10d.ProcessGroup>",
            c10d::Group::NonMember => "GroupMember.NON_GROUP_MEMBER",
        })
    }
}

impl fmt::Display for WorkValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.distributed.Work>")
    }
}

impl fmt::Display for MeshValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMesh({:?}, mesh_dim_names={:?})", self.0.shape(), self.0.mesh_dim_names())
    }
}

impl fmt::Display for DtypeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.{}", self.0)
    }
}

impl fmt::Display for ReduceOpValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReduceOp.{}", self.0)
    }
}

impl fmt::Display for DurationValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timedelta(milliseconds={})", self.0)
    }
}

impl fmt::Display for DeviceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device(type='{}')", self.0)
    }
}

impl fmt::Display for P2POpValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.distributed.P2POp>")
    }
}

impl fmt::Display for ContextValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<context>")
    }
}

methods_static!(TENSOR_METHODS = tensor_methods);
methods_static!(WORK_METHODS = work_methods);
methods_static!(MESH_METHODS = mesh_methods);
methods_static!(GROUP_METHODS = group_methods);

#[starlark_value(type = "Tensor")]
impl<'v> StarlarkValue<'v> for TensorValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(TENSOR_METHODS.methods())
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "shape" => Some(heap.alloc(AllocList(self.0.shape().iter().copied()))),
            "dtype" => Some(heap.alloc(DtypeValue(self.0.dtype()))),
            "device" => Some(heap.alloc(DeviceValue(self.0.device()))),
            "grad" => Some(Value::new_none()),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "shape" | "dtype" | "device" | "grad")
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(self.0.shape().first().map_or(0, |n| i32::try_from(*n).unwrap_or(i32::MAX)))
    }

    fn slice(
        &self,
        start: Option<Value<'v>>,
        stop: Option<Value<'v>>,
        stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let numel = self.0.numel() as i64;
        let of = |value: Option<Value<'v>>, none: i64| -> anyhow::Result<i64> {
            let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(none) };
            let at = whole(value, "an index of a tensor")?;
            Ok(if at < 0 { at + numel } else { at }.clamp(0, numel))
        };
        if self.0.shape().len() != 1 || stride.is_some_and(|stride| !stride.is_none()) {
            let why = "only a tensor of one dimension is cut here, and without a stride";
            return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
        }
        let from = of(start, 0).map_err(starlark::Error::new_native)?;
        let to = of(stop, numel).map_err(starlark::Error::new_native)?;
        let length = (to - from).max(0) as u64;
        Ok(heap.alloc(TensorValue(self.0.narrow(from as u64, length))))
    }
}

#[starlark_value(type = "ProcessGroup")]
impl<'v> StarlarkValue<'v> for GroupValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(GROUP_METHODS.methods())
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<GroupValue>().is_some_and(|other| other.0 == self.0))
    }
}

#[starlark_value(type = "Work")]
impl<'v> StarlarkValue<'v> for WorkValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(WORK_METHODS.methods())
    }
}

#[starlark_value(type = "DeviceMesh")]
impl<'v> StarlarkValue<'v> for MeshValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(MESH_METHODS.methods())
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let names = super::arguments::strings(index).map_err(starlark::Error::new_native)?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mesh = self.0.submesh(&names).map_err(|e| starlark::Error::new_native(refused(e)))?;
        Ok(heap.alloc(MeshValue(mesh)))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "ndim" => Some(heap.alloc(self.0.ndim() as u64)),
            "shape" => Some(heap.alloc(AllocList(self.0.shape().iter().copied()))),
            "device_type" => Some(heap.alloc(self.0.device_type())),
            "mesh_dim_names" => match self.0.mesh_dim_names() {
                Some(names) => Some(heap.alloc(AllocList(names.iter().map(String::as_str)))),
                None => Some(Value::new_none()),
            },
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "ndim" | "shape" | "device_type" | "mesh_dim_names")
    }
}

#[starlark_value(type = "dtype")]
impl<'v> StarlarkValue<'v> for DtypeValue {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<DtypeValue>().is_some_and(|other| other.0 == self.0))
    }
}

#[starlark_value(type = "ReduceOp")]
impl<'v> StarlarkValue<'v> for ReduceOpValue {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other.downcast_ref::<ReduceOpValue>().is_some_and(|other| other.0 == self.0))
    }
}

#[starlark_value(type = "timedelta")]
impl<'v> StarlarkValue<'v> for DurationValue {}

#[starlark_value(type = "device")]
impl<'v> StarlarkValue<'v> for DeviceValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        (attribute == "type").then(|| heap.alloc(self.0.to_string()))
    }
}

#[starlark_value(type = "P2POp")]
impl<'v> StarlarkValue<'v> for P2POpValue {}

#[starlark_value(type = "context")]
impl<'v> StarlarkValue<'v> for ContextValue {}

/// The tensor that a method is called on.
fn tensor<'v>(this: Value<'v>) -> anyhow::Result<&'v c10d::Tensor> {
    let value = this.downcast_ref::<TensorValue>().map(|value| &value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no tensor", class_of(this)))
}

#[starlark_module]
fn tensor_methods(builder: &mut MethodsBuilder) {
    fn numel(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.numel())
    }

    fn nelement(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.numel())
    }

    fn dim(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.shape().len() as u64)
    }

    fn element_size(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.dtype().size_bytes())
    }

    fn size<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] dim: NoneOr<i32>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let shape = tensor(this)?.shape();
        let Some(dim) = dim.into_option() else {
            return Ok(heap.alloc(AllocList(shape.iter().copied())));
        };
        let at = if dim < 0 { dim + shape.len() as i32 } else { dim };
        let size = usize::try_from(at).ok().and_then(|at| shape.get(at));
        let size = size.ok_or_else(|| anyhow::anyhow!("IndexError: Dimension out of range"))?;
        Ok(heap.alloc(*size))
    }

    fn view<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: starlark::values::tuple::UnpackTuple<i32>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        Ok(TensorValue(tensor.view(&super::arguments::shape(&sizes.items, tensor.numel())?[..])))
    }

    fn reshape<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: starlark::values::tuple::UnpackTuple<i32>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        Ok(TensorValue(tensor.view(&super::arguments::shape(&sizes.items, tensor.numel())?[..])))
    }

    fn chunk<'v>(this: Value<'v>, chunks: u32, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        anyhow::ensure!((1..=65536).contains(&chunks), "a tensor is cut into 1 to 65536 chunks");
        let parts = tensor(this)?.chunk(u64::from(chunks)).into_iter().map(TensorValue);
        Ok(heap.alloc(AllocList(parts)))
    }

    fn contiguous<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn detach<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn flatten<'v>(this: Value<'v>) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        Ok(TensorValue(tensor.view(tensor.numel())))
    }

    fn t<'v>(this: Value<'v>) -> anyhow::Result<TensorValue> {
        Ok(TensorValue(tensor(this)?.non_contiguous()))
    }

    fn item(this: Value<'_>) -> anyhow::Result<NoneType> {
        let _ = tensor(this)?;
        Err(anyhow::anyhow!(
            "a tensor's values are not known while the program is recorded: nothing can be \
             decided by them"
        ))
    }

    fn clone<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<TensorValue> {
        let like = tensor(this)?.clone();
        super::torch::make_like(eval, &like)
    }
}

#[starlark_module]
fn group_methods(builder: &mut MethodsBuilder) {
    fn rank(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        process(eval)?.dist()?.get_rank(group(this)).map_err(refused)
    }

    fn size(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        process(eval)?.dist()?.get_world_size(group(this)).map_err(refused)
    }
}

fn group(this: Value<'_>) -> Option<c10d::Group> {
    this.downcast_ref::<GroupValue>().map(|group| group.0)
}

/// The work that a method is called on.
fn work(this: Value<'_>) -> anyhow::Result<c10d::Work> {
    let value = this.downcast_ref::<WorkValue>().map(|value| value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no work", class_of(this)))
}

/// Asks a work; what it answers stands in the trace, and is not known here.
fn ask(
    this: Value<'_>,
    what: WorkQuery,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<NoneType> {
    process(eval)?.dist()?.query(work(this)?, what).map_err(refused)?;
    Ok(NoneType)
}

#[starlark_module]
fn work_methods(builder: &mut MethodsBuilder) {
    fn wait<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] timeout: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<bool> {
        let timeout = timeout.into_option().map(super::arguments::milliseconds).transpose()?;
        process(eval)?.dist()?.wait(work(this)?, timeout).map_err(refused)
    }

    fn is_completed(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        ask(this, WorkQuery::IsCompleted, eval)
    }

    fn is_success(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        ask(this, WorkQuery::IsSuccess, eval)
    }

    fn exception(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        ask(this, WorkQuery::Exception, eval)
    }

    fn result(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        ask(this, WorkQuery::Result, eval)
    }

    fn done(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        ask(this, WorkQuery::FutureDone, eval)
    }

    fn get_future<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }
}

/// The mesh that a method is called on.
fn mesh<'v>(this: Value<'v>) -> anyhow::Result<&'v c10d::DeviceMesh> {
    let value = this.downcast_ref::<MeshValue>().map(|value| &value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no mesh", class_of(this)))
}

#[starlark_module]
fn mesh_methods(builder: &mut MethodsBuilder) {
    fn size(
        this: Value<'_>,
        #[starlark(default = NoneOr::None)] mesh_dim: NoneOr<u32>,
    ) -> anyhow::Result<u64> {
        let mesh = mesh(this)?;
        match mesh_dim.into_option() {
            None => Ok(mesh.size()),
            Some(dim) => mesh
                .shape()
                .get(dim as usize)
                .map(|size| u64::from(*size))
                .ok_or_else(|| anyhow::anyhow!("the mesh has no dimension {dim}")),
        }
    }

    fn get_group<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] mesh_dim: NoneOr<Value<'v>>,
    ) -> anyhow::Result<GroupValue> {
        let dim = mesh_dim.into_option().map(super::arguments::mesh_dim).transpose()?;
        let dim = dim.as_ref().map(super::arguments::OwnedDim::borrow);
        mesh(this)?.get_group(dim).map(GroupValue).map_err(refused)
    }

    fn get_all_groups<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let groups = mesh(this)?.get_all_groups().map_err(refused)?;
        Ok(heap.alloc(AllocList(groups.into_iter().map(GroupValue))))
    }

    fn get_local_rank<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] mesh_dim: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<i64> {
        let dim = mesh_dim.into_option().map(super::arguments::mesh_dim).transpose()?;
        let dim = dim.as_ref().map(super::arguments::OwnedDim::borrow);
        process(eval)?.dist()?.mesh_local_rank(mesh(this)?, dim).map_err(refused)
    }

    fn get_coordinate<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(match mesh(this)?.get_coordinate() {
            Some(at) => heap.alloc(AllocList(at.iter().copied())),
            None => Value::new_none(),
        })
    }

    fn get_rank(this: Value<'_>, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        let _ = mesh(this)?;
        process(eval)?.dist()?.get_rank(None).map_err(refused)
    }
}
