//! The parts of a wrapped model, by their names: `ddp.module.fc.weight`, `ddp.module[0].bias`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::nn::model_values::Of;
use allocative::Allocative;
use starlark::starlark_simple_value;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark_derive::starlark_value;
use std::fmt;

/// A module inside of a model.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct PartValue {
    #[allocative(skip)]
    of: Of,
    /// Its qualified name.
    name: String,
}
starlark_simple_value!(PartValue);

impl fmt::Display for PartValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Module(…)")
    }
}

/// The part of that name in a model: a parameter, a buffer, or a module with some.
pub(crate) fn named<'v>(of: &Of, name: String, heap: Heap<'v>) -> Option<Value<'v>> {
    if let Some(tensor) = of.tensor(&name, heap) {
        return Some(tensor);
    }
    of.has_below(&format!("{name}.")).then(|| heap.alloc(PartValue { of: of.clone(), name }))
}

#[starlark_value(type = "Module")]
impl<'v> StarlarkValue<'v> for PartValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        named(&self.of, format!("{}.{attribute}", self.name), heap)
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        item(&self.of, &format!("{}.", self.name), index, heap)
    }
}

/// `model[index]`: of a module without parameters nothing is known.
pub(crate) fn item<'v>(
    of: &Of,
    before: &str,
    index: Value<'v>,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    let found = index.unpack_i32().and_then(|at| named(of, format!("{before}{at}"), heap));
    found.ok_or_else(|| {
        let why =
            format!("module {} of this model has no parameters, or is not there", index.to_str());
        starlark::Error::new_native(anyhow::anyhow!(why))
    })
}
