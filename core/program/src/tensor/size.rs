//! `torch.Size`: a tuple of whole numbers that prints its type.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::process::raised::refused;
use crate::python::numbers::whole;
use allocative::Allocative;
use lockstep_torch::c10d::{DistError, ErrorKind};
use starlark::collections::StarlarkHasher;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;
use std::hash::Hash;

/// The sizes of a tensor.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct SizeValue(pub(crate) Vec<u64>);
starlark_simple_value!(SizeValue);

impl fmt::Display for SizeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(u64::to_string).collect();
        write!(f, "torch.Size([{}])", sizes.join(", "))
    }
}

impl SizeValue {
    /// True if a tuple holds the same numbers.
    fn is_tuple(&self, other: Value<'_>) -> bool {
        TupleRef::from_value(other).is_some_and(|tuple| {
            let other = tuple.content().iter().map(|size| size.to_str());
            self.0.iter().map(u64::to_string).eq(other)
        })
    }

    fn values<'v>(&self, heap: Heap<'v>) -> Vec<Value<'v>> {
        self.0.iter().map(|size| heap.alloc(*size)).collect()
    }

    /// From where to where a slice of it goes.
    fn bound(&self, at: Option<Value<'_>>, none: usize) -> anyhow::Result<usize> {
        let Some(at) = at.filter(|at| !at.is_none()) else { return Ok(none) };
        let (at, len) = (whole(at, "an index of a torch.Size")?, self.0.len() as i64);
        Ok(if at < 0 { at + len } else { at }.clamp(0, len) as usize)
    }
}

methods_static!(SIZE_METHODS = size_methods);

#[starlark_value(type = "Size")]
impl<'v> StarlarkValue<'v> for SizeValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(SIZE_METHODS.methods())
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.0.len()).unwrap_or(i32::MAX))
    }

    fn to_bool(&self) -> bool {
        !self.0.is_empty()
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let at = whole(index, "an index of a torch.Size").map_err(native)?;
        let at = if at < 0 { at + self.0.len() as i64 } else { at };
        let size = usize::try_from(at).ok().and_then(|at| self.0.get(at));
        let outside = || DistError::new(ErrorKind::IndexError, "tuple index out of range");
        let size = size.ok_or_else(|| native(refused(outside())))?;
        Ok(heap.alloc(*size))
    }

    fn slice(
        &self,
        start: Option<Value<'v>>,
        stop: Option<Value<'v>>,
        stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        if stride.is_some_and(|stride| !stride.is_none()) {
            return heap.alloc(AllocTuple(self.values(heap))).slice(start, stop, stride, heap);
        }
        let from = self.bound(start, 0).map_err(native)?;
        let to = self.bound(stop, self.0.len()).map_err(native)?;
        Ok(heap.alloc(SizeValue(self.0.get(from..to.max(from)).unwrap_or_default().to_vec())))
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self.values(heap))
    }

    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        let wanted = other.to_str();
        Ok(self.0.iter().any(|size| size.to_string() == wanted))
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let same = other.downcast_ref::<SizeValue>().map(|other| other.0 == self.0);
        Ok(same.unwrap_or_else(|| self.is_tuple(other)))
    }

    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        self.0.hash(hasher);
        Ok(())
    }

    fn add(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        let more = rhs.downcast_ref::<SizeValue>().map(|more| more.0.clone());
        let more = more.or_else(|| {
            let tuple = TupleRef::from_value(rhs)?;
            tuple.content().iter().map(|size| size.to_str().parse().ok()).collect()
        })?;
        Some(Ok(heap.alloc(SizeValue([&self.0[..], &more[..]].concat()))))
    }
}

#[starlark_module]
fn size_methods(builder: &mut MethodsBuilder) {
    /// The number of elements.
    fn numel<'v>(this: Value<'v>) -> anyhow::Result<u64> {
        let sizes = this.downcast_ref::<SizeValue>().map(|size| size.0.as_slice());
        Ok(sizes.unwrap_or_default().iter().fold(1, |all, size| all.saturating_mul(*size)))
    }
}
