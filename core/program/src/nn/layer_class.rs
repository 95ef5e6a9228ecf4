//! Classes of `torch.nn` whose objects are layers, and that are called with arguments by place or name.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::nn::module_arguments::{Given, Rest};
use crate::torch::callable::{Call, Callable};
use allocative::Allocative;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_simple_value;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark_derive::starlark_value;
use std::fmt;

/// Makes a layer of the class of that name.
type Make = for<'a, 'v> fn(&'static str, &Rest<'a, 'v>, Heap<'v>) -> anyhow::Result<Value<'v>>;

/// A class: `nn.ReLU`.
#[derive(Clone, Copy, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct LayerClass {
    name: &'static str,
    #[allocative(skip)]
    make: Make,
    /// Its one class method or static method, if it has one.
    #[allocative(skip)]
    method: Option<(&'static str, Call)>,
}
starlark_simple_value!(LayerClass);

impl LayerClass {
    pub(crate) fn new(name: &'static str, make: Make) -> LayerClass {
        LayerClass { name, make, method: None }
    }

    /// The same with a class method or static method.
    pub(crate) fn with_method(self, name: &'static str, call: Call) -> LayerClass {
        LayerClass { method: Some((name, call)), ..self }
    }
}

impl fmt::Debug for LayerClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for LayerClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class 'torch.nn.{}'>", self.name)
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for LayerClass {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match (attribute, self.method) {
            ("__name__", _) => Some(heap.alloc(self.name)),
            (_, Some((name, call))) if attribute == name => {
                Some(heap.alloc(Callable::new(name, call)))
            }
            _ => None,
        }
    }

    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let given = Given::of(args, eval.heap())?;
        (self.make)(self.name, &given.rest(), eval.heap()).map_err(starlark::Error::new_native)
    }
}
