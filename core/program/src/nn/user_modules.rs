//! Classes of a program that are models: the parts that their `__init__` keeps, and methods that are called
//! directly, past `forward` (`ddp.module.encode(x)`). `forward` itself is not executed: a pass runs the parts
//! in their order.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::nn::model_values::{InnerValue, ModelValue, Of, number_of};
use crate::nn::module_list::{OWN_TENSOR, model_of, of_parts};
use crate::nn::output_methods::shaped;
use crate::nn::output_shape::Shape;
use crate::nn::state::OwnModule;
use crate::nn::submodules;
use crate::process::state::{Process, process};
use crate::tensor::value::tensor;
use allocative::Allocative;
use lockstep_torch::c10d::Tensor;
use lockstep_torch::ddp::model::module;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_module;
use starlark::values::dict::DictRef;
use starlark::values::none::NoneType;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::Arc;

/// The name under which a module of the interpreter's holds the parts that the `__init__` of a
/// model has kept. No program can name it, nor the next.
fn kept_at(number: usize) -> String {
    format!("kept {number}!")
}

/// The name under which the interpreter's module holds a method of a model's class.
fn method_at(class: &str, name: &str) -> String {
    format!("{class}.{name}!")
}

/// `self` in a method of such a class.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct SelfValue<'v> {
    /// The model, wrapped by DDP or not.
    model: Value<'v>,
    kept: Value<'v>,
    class: String,
}

/// A module that it keeps.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct KeptValue<'v> {
    part: Value<'v>,
    whole: Value<'v>,
}

/// A method with its object.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct BoundValue<'v> {
    function: Value<'v>,
    this: Value<'v>,
}

impl fmt::Display for SelfValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(…)", self.class)
    }
}

impl fmt::Display for KeptValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.part)
    }
}

impl fmt::Display for BoundValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<bound method>")
    }
}

#[starlark_value(type = "Module")]
impl<'v> StarlarkValue<'v> for SelfValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let kept = DictRef::from_value(self.kept)?;
        if let Some(value) = kept.get_str(attribute) {
            let part = value.downcast_ref::<ModelValue>().is_some();
            let whole = self.model;
            return Some(match part {
                true => heap.alloc_complex_no_freeze(KeptValue { part: value, whole }),
                false => value,
            });
        }
        match attribute {
            "forward" => Some(self.model),
            "training" => Some(Value::new_bool(true)),
            name => self.model.get_attr(name, heap).ok().flatten(),
        }
    }

    fn set_attr(&self, attribute: &str, value: Value<'v>) -> starlark::Result<()> {
        let Some(key) = DictRef::from_value(self.kept)
            .and_then(|kept| kept.keys().find(|key| key.unpack_str() == Some(attribute)))
        else {
            return Err(starlark::Error::new_native(anyhow::anyhow!(
                "a method of a model sets what its __init__ has begun: self.{attribute} is new"
            )));
        };
        self.kept.set_at(key, value)
    }

    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let given: Vec<Value<'v>> = args.positions(eval.heap())?.collect();
        eval.eval_function(self.model, &given, &[])
    }
}

#[starlark_value(type = "Module")]
impl<'v> StarlarkValue<'v> for KeptValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        self.part.get_attr(attribute, heap).ok().flatten()
    }

    /// A forward pass of this part, which is one of the whole model's that DDP knows nothing of.
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let native = starlark::Error::new_native;
        let given: Vec<Value<'v>> = args.positions(eval.heap())?.collect();
        let (Some(part), Some(first)) = (self.part.downcast_ref::<ModelValue>(), given.first())
        else {
            return eval.eval_function(self.part, &given, &[]);
        };
        let Ok(input) = tensor(*first) else {
            return eval.eval_function(self.part, &given, &[]);
        };
        if part.0.params.is_empty() || input.pass().is_some() {
            return eval.eval_function(self.part, &given, &[]);
        }
        let at = process(eval).and_then(|process| number_of(self.whole, process));
        let pass = crate::nn::ddp_passes::forward(at.map_err(native)?, false, &[], eval)
            .map_err(native)?;
        let dtype = part.0.params.first().map_or(input.dtype(), |param| param.dtype);
        let like = input.clone().of_pass(Some(pass));
        shaped(&part.1, Some(input.shape()), &like, dtype, eval).map_err(native)
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for BoundValue<'v> {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        crate::classes::objects::called(self.function, Some(self.this), args, eval)
    }
}

/// The model of a class that a value is.
fn own_of(of: Value<'_>, process: &Process<'_>) -> Option<(usize, String)> {
    let model = match (of.downcast_ref::<ModelValue>(), of.downcast_ref::<InnerValue>()) {
        (Some(model), _) => model.0.clone(),
        (None, Some(inner)) => process.modules.get(inner.0)?.model(),
        (None, None) => return None,
    };
    let at = process.own.iter().rposition(|own| Arc::ptr_eq(&own.model, &model))?;
    Some((at, process.own.get(at)?.class.clone()))
}

/// An attribute of a model of a program's class, or of `self` in its methods; `None` for other values.
///
/// # Errors
/// No rank is running.
pub(crate) fn attribute<'v>(
    of: Value<'v>,
    name: &str,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<Value<'v>>> {
    let heap = eval.heap();
    if let Some(this) = of.downcast_ref::<SelfValue<'v>>() {
        let function = eval.module().get(&method_at(&this.class, name));
        return Ok(function
            .map(|function| heap.alloc_complex_no_freeze(BoundValue { function, this: of })));
    }
    if !matches!(of.get_type(), "Model" | "Module") {
        return Ok(None);
    }
    let Some((number, class)) = own_of(of, process(eval)?) else { return Ok(None) };
    let Some(kept) = eval.module().get(&kept_at(number)) else { return Ok(None) };
    if let Some(function) = eval.module().get(&method_at(&class, name)) {
        let this = heap.alloc_complex_no_freeze(SelfValue { model: of, kept, class });
        return Ok(Some(heap.alloc_complex_no_freeze(BoundValue { function, this })));
    }
    let found = DictRef::from_value(kept).and_then(|kept| kept.get_str(name));
    let Some(value) = found else { return Ok(None) };
    if model_of(value).is_none() {
        return Ok(Some(value));
    }
    // The parameters of a module are those of the whole model.
    let process = process(eval)?;
    let at = number_of(of, process)?;
    let of = Of::numbered(at, process)?;
    Ok(Some(submodules::named(&of, name.to_owned(), heap).unwrap_or(value)))
}

/// The key under which `self` keeps the parameters that have two names. No program can name it.
const TIED: &str = "tied!";

/// The model in which parameters that are one are one.
fn tied(model: ModelValue, kept: &DictRef<'_>) -> anyhow::Result<ModelValue> {
    let lines = kept.get_str(TIED).and_then(|lines| lines.unpack_str()).unwrap_or_default();
    if lines.is_empty() {
        return Ok(model);
    }
    let mut made = (*model.0).clone();
    for (alias, of) in lines.lines().filter_map(|line| line.split_once(' ')) {
        anyhow::ensure!(
            made.tie(alias, of),
            "self.{alias} = self.{of} makes two parameters one, and the model has no two such parameters"
        );
    }
    Ok(ModelValue(Arc::new(made), model.1))
}

/// A parameter or buffer that a model has itself, as a part of it without a name.
fn tensor_of_model(of: &Tensor, buffer: bool) -> ModelValue {
    let (shape, dtype) = (of.shape().to_vec(), of.dtype());
    let model = match buffer {
        true => module(OWN_TENSOR, &[], &[("", &shape, dtype)], dtype, 0),
        false => module(OWN_TENSOR, &[("", &shape)], &[], dtype, 0),
    };
    ModelValue(Arc::new(model), Arc::new(Shape::Same))
}

/// `torch.nn`'s parts of a class's own.
#[starlark_module]
pub(crate) fn of_nn(builder: &mut GlobalsBuilder) {
    fn Parameter<'v>(
        data: Value<'v>,
        #[starlark(default = true)] requires_grad: bool,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        anyhow::ensure!(requires_grad, "parameters that are not trained cannot be said here");
        Ok(heap.alloc(tensor_of_model(tensor(data)?, false)))
    }

    /// Modules by their names, in their order.
    fn ModuleDict<'v>(
        #[starlark(default = NoneType)] modules: Value<'v>,
    ) -> anyhow::Result<ModelValue> {
        let Some(all) = DictRef::from_value(modules) else {
            anyhow::bail!("a ModuleDict is made of a dict here, and gets no modules later");
        };
        let parts = all
            .iter()
            .filter_map(|(key, value)| Some((key.unpack_str()?.to_owned(), model_of(value)?)));
        Ok(of_parts("ModuleDict", parts.collect(), 0))
    }
}

/// The functions that a class of models becomes.
#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The model of the parts that a class keeps in `self`, whose `forward` returns so many values: 0 if that
    /// is not known. In `line` it does something that is not followed, and `why` says what; it always `uses`
    /// these names of `self` (`*` for all).
    fn _module<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] kept: Value<'v>,
        #[starlark(require = pos)] returned: u32,
        #[starlark(require = pos)] line: u32,
        #[starlark(require = pos)] why: &str,
        #[starlark(require = pos)] uses: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ModelValue> {
        let all = DictRef::from_value(kept).ok_or_else(|| anyhow::anyhow!("self is no dict"))?;
        let models = all
            .iter()
            .filter_map(|(key, value)| Some((key.unpack_str()?.to_owned(), model_of(value)?)));
        let models: Vec<_> = models.collect();
        // A part without parameters changes nothing by being left out.
        let unused = |(part, model): &&(String, ModelValue)| {
            let used = uses == "*" || uses.split(' ').any(|used| used == part);
            !used && !model.0.params.is_empty()
        };
        let unused = models.iter().find(unused).map(|(part, _)| part.clone());
        let model = tied(of_parts(name, models, returned as usize), &all)?;
        let process = process(eval)?;
        let number = process.own.len();
        let new = process.own.iter().all(|own| own.class != name);
        let why = match (why, unused) {
            ("", Some(part)) => format!("it runs self.{part} in a branch only, or not at all"),
            (why, _) => why.to_owned(),
        };
        let line = process.program.as_ref().map_or(line, |program| program.shown_line(line));
        if new && !why.is_empty() {
            process.dist()?.note_unfollowed(format!("{name}.forward"), line, why);
        }
        anyhow::ensure!(number < 1000, "a process has at most 1000 models");
        process.own.push(OwnModule { model: model.0.clone(), class: name.to_owned() });
        eval.module().set(&kept_at(number), kept);
        Ok(model)
    }

    /// `self.out.weight = self.embedding.weight` in `__init__`: one parameter with two names.
    fn _tied<'v>(
        #[starlark(require = pos)] kept: Value<'v>,
        #[starlark(require = pos)] alias: &str,
        #[starlark(require = pos)] of: &str,
        heap: Heap<'v>,
    ) -> starlark::Result<NoneType> {
        let before = DictRef::from_value(kept).and_then(|all| all.get_str(TIED));
        let before = before.and_then(|before| before.unpack_str()).unwrap_or_default();
        let now = heap.alloc(format!("{before}{alias} {of}\n"));
        kept.set_at(heap.alloc(TIED), now)?;
        Ok(NoneType)
    }

    /// `self.register_buffer(name, tensor)` and its like, without the name.
    fn _kept<'v>(
        #[starlark(require = pos)] by: &str,
        #[starlark(require = pos)] value: Value<'v>,
        #[starlark(kwargs)] told: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = told;
        if by != "register_buffer" || value.is_none() {
            return Ok(value);
        }
        let of = tensor(value)?;
        Ok(heap.alloc(tensor_of_model(of, true)))
    }

    /// A method of such a class.
    fn _a_method<'v>(
        #[starlark(require = pos)] class: &str,
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] function: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        eval.module().set(&method_at(class, name), function);
        Ok(NoneType)
    }
}

/// Adds the functions that the dialect writes for them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
