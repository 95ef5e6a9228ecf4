//! Modules: `torch.nn`'s own with their parameters, lists of modules, objects of a program's classes of modules, and
//! DDP around one of them; and the tree that they make.

#![allow(clippy::panic, reason = "a module is never written out")]

use crate::classes::objects::{ClassValue, InstanceValue, StateValue, class};
use crate::nn::output_shape::Shape;
use crate::nn::parameter::{Kind, Parameter, parameter_of};
use crate::process::raised::raised;
use crate::python::type_error::{class_of, type_error};
use crate::tensor::value::TensorValue;
use allocative::Allocative;
use lockstep_torch::c10d::{Device, Group};
use lockstep_torch::ddp::model::{Cost, Layer, Model};
use starlark::any::ProvidesStaticType;
use starlark::collections::SmallMap;
use starlark::starlark_simple_value;
use starlark::values::{
    Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Trace, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A module of `torch.nn`, or a model that ships: what it computes is known by its shapes alone.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct LayerValue {
    /// The name of its class: `Linear`.
    pub(crate) kind: String,
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) parameters: RefCell<Vec<(String, Parameter)>>,
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) buffers: RefCell<Vec<(String, Parameter)>>,
    /// Its parts in the order in which a pass runs them, with the places of their parameters.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) layers: Vec<Layer>,
    /// The shape of its output for that of its input.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) shape: Shape,
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) training: Cell<bool>,
    /// Set where its batch norms take the statistics of all ranks of a group (`nn.SyncBatchNorm`).
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) synced: Cell<Option<SyncedOver>>,
}

/// The group whose ranks share the statistics of a batch norm; the default group if `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncedOver(pub(crate) Option<Group>);

impl LayerValue {
    /// True of `nn.BatchNorm2d` and its like by itself, not of a model that has some.
    pub(crate) fn is_batch_norm(&self) -> bool {
        self.kind.starts_with("BatchNorm")
    }

    /// The parts that a pass runs on that device. cuDNN's recurrent layers are one operation of all weights, in the
    /// order of their registration (`_cudnn_rnn`).
    pub(crate) fn parts_on(&self, device: Device) -> Cow<'_, [Layer]> {
        let fused = matches!(&self.shape, Shape::Sequence(own) if !own.cell);
        if !fused || device != Device::Cuda {
            return Cow::Borrowed(&self.layers);
        }
        let mut all = Layer { name: String::new(), params: Vec::new(), cost: Cost::default() };
        for part in &self.layers {
            all.params.extend(&part.params);
            all.cost.flops = all.cost.flops.saturating_add(part.cost.flops);
            all.cost.activation_bytes =
                all.cost.activation_bytes.saturating_add(part.cost.activation_bytes);
            all.cost.weight_bytes = all.cost.weight_bytes.saturating_add(part.cost.weight_bytes);
        }
        all.params.sort_unstable();
        Cow::Owned(vec![all])
    }
}

/// The way in which a container of modules holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Allocative)]
pub(crate) enum Container {
    Sequential,
    List,
    Dict,
}

impl Container {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Container::Sequential => "Sequential",
            Container::List => "ModuleList",
            Container::Dict => "ModuleDict",
        }
    }
}

/// `nn.Sequential`, `nn.ModuleList` and `nn.ModuleDict`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct ContainerValue<'v> {
    #[trace(unsafe_ignore)]
    pub(crate) kind: Container,
    pub(crate) parts: RefCell<SmallMap<String, Value<'v>>>,
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) training: Cell<bool>,
}

/// A model that DDP wraps.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct DdpValue<'v> {
    /// Its number among the process's.
    pub(crate) at: usize,
    pub(crate) module: Value<'v>,
    /// `require_backward_grad_sync`.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) sync: Arc<AtomicBool>,
    /// `device_ids`, where it was given any.
    #[trace(unsafe_ignore)]
    pub(crate) device_ids: Option<Vec<u32>>,
}

/// `nn.Module`, as the base of a class.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ModuleClass;
starlark_simple_value!(ModuleClass);

impl fmt::Display for ModuleClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<class 'torch.nn.modules.module.Module'>")
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for ModuleClass {
    /// `nn.Module.__init__(self)`.
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "__init__" => {
                Some(heap.alloc(crate::torch::callable::Callable::new("__init__", |_, _, _| {
                    Ok(Value::new_none())
                })))
            }
            "__name__" => Some(heap.alloc("Module")),
            _ => None,
        }
    }
}

/// The methods that every module has, of an object of a program's class. An attribute is asked for without the
/// value that has it.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct OwnMethods<'v>(pub(crate) Value<'v>);

macro_rules! shown {
    ($value:ty, $this:ident, $text:expr) => {
        impl fmt::Display for $value {
            fn fmt(&$this, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}(…)", $text)
            }
        }
    };
}
shown!(LayerValue, self, self.kind);
shown!(ContainerValue<'_>, self, self.kind.class());
shown!(DdpValue<'_>, self, "DistributedDataParallel");
shown!(OwnMethods<'_>, self, "Module");

/// A module, whichever it is.
#[derive(Clone, Copy)]
pub(crate) enum Module<'v> {
    Layer(&'v LayerValue),
    Container(&'v ContainerValue<'v>),
    /// An object of a program's class.
    Own(&'v StateValue<'v>),
    Ddp(&'v DdpValue<'v>),
}

/// Modules in each other, of all depths.
const MOST_MODULES: usize = 100_000;

/// The depth of modules in each other.
const DEEPEST: usize = 100;

/// True if a class is one of modules.
pub(crate) fn is_module_class(class: &ClassValue<'_>) -> bool {
    class.above.iter().any(|above| above.downcast_ref::<ModuleClass>().is_some())
}

impl<'v> Module<'v> {
    pub(crate) fn of(value: Value<'v>) -> Option<Module<'v>> {
        if let Some(layer) = value.downcast_ref::<LayerValue>() {
            return Some(Module::Layer(layer));
        }
        if let Some(container) = value.downcast_ref::<ContainerValue<'v>>() {
            return Some(Module::Container(container));
        }
        if let Some(ddp) = value.downcast_ref::<DdpValue<'v>>() {
            return Some(Module::Ddp(ddp));
        }
        let state = match value.downcast_ref::<OwnMethods<'v>>() {
            Some(methods) => methods.0,
            None => value.downcast_ref::<InstanceValue<'v>>()?.0,
        };
        let state = state.downcast_ref::<StateValue<'v>>()?;
        class(state.class).filter(|class| is_module_class(class)).map(|_| Module::Own(state))
    }

    /// The name of its class.
    pub(crate) fn class(&self) -> &'v str {
        match self {
            Module::Layer(layer) if layer.is_batch_norm() && layer.synced.get().is_some() => {
                "SyncBatchNorm"
            }
            Module::Layer(layer) => &layer.kind,
            Module::Container(container) => container.kind.class(),
            Module::Ddp(_) => "DistributedDataParallel",
            Module::Own(state) => class(state.class).map_or("Module", |class| &class.name),
        }
    }

    /// True if both are one module.
    fn is(&self, other: &Module<'v>) -> bool {
        match (self, other) {
            (Module::Layer(a), Module::Layer(b)) => std::ptr::eq(*a, *b),
            (Module::Container(a), Module::Container(b)) => std::ptr::eq(*a, *b),
            (Module::Own(a), Module::Own(b)) => std::ptr::eq(*a, *b),
            (Module::Ddp(a), Module::Ddp(b)) => std::ptr::eq(*a, *b),
            _ => false,
        }
    }

    /// Its own parameters or buffers, without those of its modules.
    fn tensors(&self, kind: Kind) -> Vec<(String, Parameter)> {
        match self {
            Module::Layer(layer) => {
                let of = if kind == Kind::Buffer { &layer.buffers } else { &layer.parameters };
                of.try_borrow().map(|all| all.clone()).unwrap_or_default()
            }
            Module::Own(state) => {
                let Ok(own) = state.attributes.try_borrow() else { return Vec::new() };
                let all = own.iter().filter_map(|(name, value)| {
                    let parameter = parameter_of(&value.downcast_ref::<TensorValue>()?.0)?;
                    (parameter.kind() == kind && !parameter.grad).then(|| (name.clone(), parameter))
                });
                all.collect()
            }
            Module::Container(_) | Module::Ddp(_) => Vec::new(),
        }
    }

    /// `named_children()`.
    pub(crate) fn children(&self) -> Vec<(String, Value<'v>)> {
        let pairs = |of: &RefCell<SmallMap<String, Value<'v>>>| match of.try_borrow() {
            Ok(all) => all.iter().map(|(name, value)| (name.clone(), *value)).collect(),
            Err(_) => Vec::new(),
        };
        let mut all: Vec<(String, Value<'v>)> = match self {
            Module::Layer(_) => Vec::new(),
            Module::Ddp(ddp) => vec![("module".to_owned(), ddp.module)],
            Module::Container(container) => pairs(&container.parts),
            Module::Own(state) => pairs(&state.attributes),
        };
        all.retain(|(_, value)| Module::of(*value).is_some());
        all
    }

    pub(crate) fn is_training(&self) -> bool {
        match self {
            Module::Layer(layer) => layer.training.get(),
            Module::Container(container) => container.training.get(),
            Module::Ddp(ddp) => Module::of(ddp.module).is_none_or(|own| own.is_training()),
            Module::Own(state) => {
                let own = crate::classes::objects::found(&state.attributes, "training");
                own.and_then(Value::unpack_bool).unwrap_or(true)
            }
        }
    }

    /// `train(mode)` of this module alone.
    pub(crate) fn set_training(&self, mode: bool) -> starlark::Result<()> {
        match self {
            Module::Layer(layer) => layer.training.set(mode),
            Module::Container(container) => container.training.set(mode),
            Module::Ddp(_) => {}
            Module::Own(state) => {
                crate::classes::objects::put(&state.attributes, "training", Value::new_bool(mode))?
            }
        }
        Ok(())
    }
}

/// A dotted name.
fn inside(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// `named_modules()`: a module and those in it, each once.
///
/// # Errors
/// Modules that hold each other in a circle, or too many.
pub(crate) fn modules<'v>(of: Value<'v>) -> anyhow::Result<Vec<(String, Value<'v>)>> {
    fn walk<'v>(
        (prefix, of): (&str, Value<'v>),
        depth: usize,
        seen: &mut Vec<Module<'v>>,
        all: &mut Vec<(String, Value<'v>)>,
    ) -> anyhow::Result<()> {
        let Some(module) = Module::of(of) else { return Ok(()) };
        if seen.iter().any(|known| known.is(&module)) {
            return Ok(());
        }
        anyhow::ensure!(
            all.len() < MOST_MODULES && depth < DEEPEST,
            "a model has at most {MOST_MODULES} modules, {DEEPEST} in each other"
        );
        seen.push(module);
        all.push((prefix.to_owned(), of));
        for (name, child) in module.children() {
            walk((&inside(prefix, &name), child), depth + 1, seen, all)?;
        }
        Ok(())
    }
    let mut all = Vec::new();
    walk(("", of), 0, &mut Vec::new(), &mut all)?;
    Ok(all)
}

/// `named_parameters()` or `named_buffers()`: each once, under its first name.
///
/// # Errors
/// As [`modules`].
pub(crate) fn tensors(of: Value<'_>, kind: Kind) -> anyhow::Result<Vec<(String, Parameter)>> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for (prefix, module) in modules(of)? {
        let own = Module::of(module).map(|module| module.tensors(kind)).unwrap_or_default();
        let new = own.into_iter().filter(|(_, tensor)| seen.insert(tensor.number()));
        all.extend(new.map(|(name, tensor)| (inside(&prefix, &name), tensor)));
    }
    Ok(all)
}

/// A module's value as the program has it.
pub(crate) fn whole<'v>(of: Value<'v>, heap: Heap<'v>) -> Value<'v> {
    match of.downcast_ref::<OwnMethods<'v>>() {
        Some(methods) => heap.alloc_complex_no_freeze(InstanceValue(methods.0)),
        None => of,
    }
}

/// `isinstance` of modules that are no object of a program's class; `None` for other values.
pub(crate) fn is_instance(value: Value<'_>, classes: &[String]) -> Option<bool> {
    let module = Module::of(value)?;
    let own = module.class();
    let normed = own.starts_with("BatchNorm") || own == "SyncBatchNorm";
    Some(classes.iter().any(|name| {
        // `<class 'torch.nn.ReLU'>` and `Linear`.
        let mut parts = name.rsplit(['.', ' ', '\'', '>']);
        let bare = parts.find(|part| !part.is_empty()).unwrap_or(name);
        match module {
            Module::Own(_) => matches!(bare, "Module" | "object"),
            Module::Ddp(_) if bare == "DDP" => true,
            _ => {
                bare == own
                    || matches!(bare, "Module" | "object")
                    || (normed && bare == "_BatchNorm")
            }
        }
    }))
}

/// Refuses a value that is no module, in PyTorch's words.
pub(crate) fn checked<'v>(value: Value<'v>) -> anyhow::Result<Value<'v>> {
    if Module::of(value).is_some() || value.get_type() == "Loss" {
        return Ok(value);
    }
    Err(type_error(format!("{} is not a Module subclass", class_of(value))))
}

/// A container of those modules.
pub(crate) fn container<'v>(
    kind: Container,
    parts: impl IntoIterator<Item = (String, Value<'v>)>,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    let mut all = SmallMap::new();
    for (name, part) in parts {
        all.insert(name, checked(part)?);
    }
    anyhow::ensure!(all.len() <= MOST_MODULES, "at most {MOST_MODULES} modules");
    let (parts, training) = (RefCell::new(all), Cell::new(true));
    Ok(heap.alloc_complex_no_freeze(ContainerValue { kind, parts, training }))
}

/// A layer with new parameters of those shapes.
pub(crate) fn layer<'v>(model: &Model, shape: Shape, heap: Heap<'v>) -> Value<'v> {
    let parameters = model.params.iter().map(|own| {
        let name = own.name.rsplit('.').next().unwrap_or(&own.name);
        (own.name.clone(), Parameter::new(name, Kind::Parameter, own.dtype, &own.shape))
    });
    let buffers = model.buffers.iter().map(|own| {
        let name = own.name.rsplit('.').next().unwrap_or(&own.name);
        (own.name.clone(), Parameter::new(name, Kind::Buffer, own.dtype, &own.shape))
    });
    heap.alloc_complex_no_freeze(LayerValue {
        kind: model.name.clone(),
        parameters: RefCell::new(parameters.collect()),
        buffers: RefCell::new(buffers.collect()),
        layers: model.layers.clone(),
        shape,
        training: Cell::new(true),
        synced: Cell::new(None),
    })
}

/// The exception for an attribute that a module does not have.
pub(crate) fn no_attribute(class: &str, name: &str) -> anyhow::Error {
    raised(format!("AttributeError: '{class}' object has no attribute '{name}'"))
}

/// The number of the wrapped model that a value is.
pub(crate) fn ddp_number(this: Value<'_>) -> anyhow::Result<usize> {
    match Module::of(this) {
        Some(Module::Ddp(ddp)) => Ok(ddp.at),
        _ => Err(type_error(format!("{} is no wrapped model", class_of(this)))),
    }
}
