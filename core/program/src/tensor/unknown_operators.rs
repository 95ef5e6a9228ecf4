//! Operators of a value that only a run knows: their results are as little known.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::process::undecided::{Number, UnknownValue};
use crate::tensor::deferred::binary;
use crate::tensor::element_operation::Operation;
use crate::tensor::value::TensorValue;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark_derive::starlark_value;
use std::cmp::Ordering;

impl UnknownValue {
    /// A value computed from a tensor's is as little known.
    fn computed<'v>(
        &self,
        operation: Operation,
        other: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let Some(number) = self.number() else { return self.refused() };
        if let Some(tensor) = other.downcast_ref::<TensorValue>() {
            let of = heap.alloc(self.clone());
            return binary(operation, &tensor.0, of, heap).unwrap_or_else(|| self.refused());
        }
        if other.get_type() == "Output" {
            return Ok(other);
        }
        let whole = !matches!(operation, Operation::Div | Operation::RightBy);
        let number = if whole { number.with(other) } else { Number::Real };
        Ok(heap.alloc(self.as_number(number)))
    }
}

#[starlark_value(type = "unknown")]
impl<'v> StarlarkValue<'v> for UnknownValue {
    // Neither may fail, so the process is told, and refuses before anything else happens.
    fn to_bool(&self) -> bool {
        self.decides();
        false
    }

    fn equals(&self, _other: Value<'v>) -> starlark::Result<bool> {
        self.refused()
    }

    fn compare(&self, _other: Value<'v>) -> starlark::Result<Ordering> {
        self.refused()
    }

    fn length(&self) -> starlark::Result<i32> {
        self.refused()
    }

    fn at(&self, _index: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.refused()
    }

    fn slice(
        &self,
        _start: Option<Value<'v>>,
        _stop: Option<Value<'v>>,
        _stride: Option<Value<'v>>,
        _heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        self.refused()
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        self.refused()
    }

    fn is_in(&self, _other: Value<'v>) -> starlark::Result<bool> {
        self.refused()
    }

    fn add(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.computed(Operation::Add, rhs, heap))
    }

    fn radd(&self, lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.computed(Operation::Add, lhs, heap))
    }

    fn mul(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.computed(Operation::Mul, rhs, heap))
    }

    fn rmul(&self, lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(self.computed(Operation::Mul, lhs, heap))
    }

    fn sub(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.computed(Operation::FromRight, other, heap)
    }

    fn div(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.computed(Operation::RightBy, other, heap)
    }

    fn floor_div(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.computed(Operation::FloorDiv, other, heap)
    }

    fn percent(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.computed(Operation::Mod, other, heap)
    }

    fn minus(&self, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.computed(Operation::Mul, heap.alloc(-1), heap)
    }

    fn invoke(
        &self,
        _me: Value<'v>,
        _args: &Arguments<'v, '_>,
        _eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        self.refused()
    }

    /// An attribute of it is as little known.
    fn get_attr(&self, _attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        Some(heap.alloc(self.clone()))
    }

    fn has_attr(&self, _attribute: &str, _heap: Heap<'v>) -> bool {
        true
    }
}
