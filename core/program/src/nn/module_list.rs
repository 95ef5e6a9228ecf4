//! `nn.ModuleList()` that modules are put into one by one.

#![allow(clippy::panic, reason = "a list is never written out")]

use crate::nn::model_values::ModelValue;
use crate::nn::output_shape::Shape;
use crate::python::type_error::{class_of, type_error};
use allocative::Allocative;
use lockstep_torch::ddp::model::{Model, sequence};
use starlark::any::ProvidesStaticType;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::values::none::NoneType;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;
use std::cell::RefCell;
use std::fmt;

/// Modules of a list.
const MOST: usize = 10_000;

/// A list that still grows.
#[derive(Debug, Default, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct ModuleListValue<'v> {
    parts: RefCell<Vec<Value<'v>>>,
}

impl fmt::Display for ModuleListValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModuleList(…)")
    }
}

methods_static!(LIST_METHODS = list_methods);

impl<'v> ModuleListValue<'v> {
    fn parts(&self) -> Vec<Value<'v>> {
        self.parts.try_borrow().map_or_else(|_| Vec::new(), |parts| parts.clone())
    }

    /// Appends modules; a list that still grows is copied as it is now, so that none holds itself.
    fn put(&self, more: &[Value<'v>], heap: Heap<'v>) -> anyhow::Result<()> {
        let now = |module: &Value<'v>| match module.downcast_ref::<ModuleListValue<'v>>() {
            Some(list) => Ok(heap.alloc(in_a_row("ModuleList", &list.parts())?)),
            None => anyhow::Ok(*module),
        };
        let more = more.iter().map(now).collect::<anyhow::Result<Vec<_>>>()?;
        // An argument that is not a module is refused as PyTorch does.
        in_a_row("ModuleList", &more)?;
        let mut parts = self.parts.try_borrow_mut()?;
        anyhow::ensure!(
            parts.len() + more.len() <= MOST,
            "a ModuleList has at most {MOST} modules"
        );
        parts.extend(more);
        Ok(())
    }
}

#[starlark_value(type = "ModuleList")]
impl<'v> StarlarkValue<'v> for ModuleListValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        Some(LIST_METHODS.methods())
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.parts().len()).unwrap_or(i32::MAX))
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self.parts())
    }

    fn at(&self, index: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let parts = self.parts();
        let at = index.unpack_i32().and_then(|at| match at < 0 {
            true => parts.len().checked_sub(at.unsigned_abs() as usize),
            false => usize::try_from(at).ok(),
        });
        at.and_then(|at| parts.get(at).copied()).ok_or_else(|| {
            let text = format!("index {} is out of range", index.to_str());
            starlark::Error::new_native(crate::process::raised::raised(format!(
                "IndexError: {text}"
            )))
        })
    }
}

fn list_of<'v>(this: Value<'v>) -> anyhow::Result<&'v ModuleListValue<'v>> {
    let own = this.downcast_ref::<ModuleListValue<'v>>();
    own.ok_or_else(|| anyhow::anyhow!("this is no ModuleList"))
}

#[starlark_module]
fn list_methods(builder: &mut MethodsBuilder) {
    fn append<'v>(this: Value<'v>, module: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        list_of(this)?.put(&[module], heap)?;
        Ok(this)
    }

    fn extend<'v>(
        this: Value<'v>,
        modules: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<NoneType> {
        let more: Vec<Value<'v>> = modules.iterate(heap)?.collect();
        list_of(this).and_then(|own| own.put(&more, heap)).map_err(starlark::Error::new_native)?;
        Ok(NoneType)
    }
}

/// The model that a value is: one, or a list of them.
pub(crate) fn model_of(value: Value<'_>) -> Option<ModelValue> {
    if let Some(list) = value.downcast_ref::<ModuleListValue<'_>>() {
        return in_a_row("ModuleList", &list.parts()).ok();
    }
    value.downcast_ref::<ModelValue>().cloned()
}

/// Modules one behind the other, by their numbers.
pub(crate) fn in_a_row(name: &str, modules: &[Value<'_>]) -> anyhow::Result<ModelValue> {
    let models = modules.iter().enumerate().map(|(nth, module)| {
        let model = model_of(*module)
            .ok_or_else(|| type_error(format!("{} is not a Module subclass", class_of(*module))))?;
        anyhow::Ok((nth.to_string(), model))
    });
    let models: Vec<(String, ModelValue)> = models.collect::<Result<_, _>>()?;
    // One that is put into itself again and again doubles.
    let layers =
        models.iter().fold(0, |all: usize, (_, model)| all.saturating_add(model.1.layers()));
    anyhow::ensure!(layers <= MOST_LAYERS, "a {name} of more than {MOST_LAYERS} modules");
    let parts: Vec<(String, &Model)> =
        models.iter().map(|(nth, model)| (nth.clone(), &*model.0)).collect();
    let shape = Shape::Chain(models.iter().map(|(_, model)| (*model.1).clone()).collect());
    Ok(ModelValue::new(sequence(name, &parts), shape))
}

/// The model of a class, made of the parts that it keeps by name, whose `forward` returns so many values: 0
/// if that is not known.
pub(crate) fn of_parts(
    name: &str,
    models: Vec<(String, ModelValue)>,
    returned: usize,
) -> ModelValue {
    let own = |model: &ModelValue| model.0.name == OWN_TENSOR;
    // A module's own parameters come before those of its modules.
    let (tensors, modules): (Vec<_>, Vec<_>) = models.iter().partition(|(_, model)| own(model));
    let parts: Vec<(String, &Model)> =
        tensors.iter().chain(&modules).map(|(name, model)| (name.clone(), &*model.0)).collect();
    let shapes = modules.iter().map(|(_, model)| (*model.1).clone()).collect();
    let mut made = sequence(name, &parts);
    let names = made.params.iter_mut().map(|own| &mut own.name);
    for name in names.chain(made.buffers.iter_mut().map(|own| &mut own.name)) {
        name.truncate(name.trim_end_matches('.').len());
    }
    ModelValue::new(made, Shape::class(shapes, returned))
}

/// The class of such a part: no module of PyTorch's.
pub(crate) const OWN_TENSOR: &str = "(tensor)";

/// Modules in each other, of all depths.
const MOST_LAYERS: usize = 100_000;
