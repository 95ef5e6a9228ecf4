//! `torch.distributed.Backend`: a text that names a backend, and PyTorch's tables of backends.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::process::raised::refused;
use allocative::Allocative;
use lockstep_torch::c10d::{DistError, ErrorKind};
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_simple_value;
use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark_derive::starlark_value;
use std::fmt;

/// The class.
#[derive(Clone, Copy, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct BackendClass;
starlark_simple_value!(BackendClass);

/// The contents of `Backend.backend_list` in PyTorch 2.7.1, in its order.
const ALL: [&str; 7] = ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "fake"];
/// The backend that PyTorch chooses for each type of device.
const OF_DEVICES: [(&str, &str); 3] = [("cpu", "gloo"), ("cuda", "nccl"), ("xpu", "xccl")];

impl fmt::Display for BackendClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<class 'torch.distributed.distributed_c10d.Backend'>")
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for BackendClass {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "__name__" => return Some(heap.alloc("Backend")),
            "backend_list" => return Some(heap.alloc(AllocList(ALL))),
            "default_device_backend_map" => return Some(heap.alloc(AllocDict(OF_DEVICES))),
            _ => {}
        }
        let name = ALL.iter().find(|name| name.to_uppercase() == attribute)?;
        Some(heap.alloc(*name))
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }

    /// `Backend("NCCL")`: the name in small letters.
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let name = take::first(args, "name", "Backend.__new__", heap)?;
        match name.unpack_str() {
            Some(name) => Ok(heap.alloc(name.to_lowercase())),
            None => Err(starlark::Error::new_native(no_text())),
        }
    }
}

/// The error for a backend that is no text.
pub(crate) fn no_text() -> anyhow::Error {
    let text = "Backend constructor parameter must be string-ish";
    refused(DistError::new(ErrorKind::ValueError, text))
}
