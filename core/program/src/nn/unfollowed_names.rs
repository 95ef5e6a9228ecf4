//! Names of PyTorch's that change which calls are made, or compute what is not followed here: a program may import
//! and compare them, and is refused with the name and its line where it uses one.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_simple_value;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark_derive::starlark_value;
use std::fmt;

/// Parts of `torch.nn`, each with the reason that a use of it is refused.
const OF_NN: [(&str, &str); 3] = [
    ("ConvTranspose1d", "the shape of its output is not followed"),
    ("ConvTranspose2d", "the shape of its output is not followed"),
    ("DataParallel", "it copies the model to the GPUs of one process"),
];

const REPARAMETRIZED: &str = "it replaces a parameter by others, whose gradients are not followed";

/// A name that is refused where something is done with it.
#[derive(Clone, Copy, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct UnfollowedName {
    module: &'static str,
    name: &'static str,
    why: &'static str,
}
starlark_simple_value!(UnfollowedName);

impl fmt::Display for UnfollowedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<torch.{}.{}: not followed here>", self.module, self.name)
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for UnfollowedName {
    /// A name below one that is not followed is not followed either.
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "__name__" => Some(heap.alloc(self.name)),
            name if name.starts_with("__") => None,
            _ => Some(heap.alloc(*self)),
        }
    }

    fn invoke(
        &self,
        _me: Value<'v>,
        _args: &Arguments<'v, '_>,
        _eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Err(starlark::Error::new_native(anyhow::anyhow!(
            "torch.{}.{} is not followed here: {}. `lockstep record` runs the script with your own PyTorch",
            self.module,
            self.name,
            self.why
        )))
    }
}

/// Adds those of `torch.nn`.
pub(crate) fn of_nn(builder: &mut GlobalsBuilder) {
    for (name, why) in OF_NN {
        builder.set(name, UnfollowedName { module: "nn", name, why });
    }
}

/// Adds those of `torch.nn.utils`.
pub(crate) fn of_utils(builder: &mut GlobalsBuilder) {
    for name in ["weight_norm", "spectral_norm"] {
        builder.set(name, UnfollowedName { module: "nn.utils", name, why: REPARAMETRIZED });
    }
    builder.namespace("parametrizations", |builder| {
        for name in ["weight_norm", "spectral_norm", "orthogonal"] {
            let module = "nn.utils.parametrizations";
            builder.set(name, UnfollowedName { module, name, why: REPARAMETRIZED });
        }
    });
}

/// Adds `torch.autograd`.
pub(crate) fn autograd(builder: &mut GlobalsBuilder) {
    let why = "which gradients it makes is not followed";
    for name in ["grad", "backward", "Function"] {
        builder.set(name, UnfollowedName { module: "autograd", name, why });
    }
}
