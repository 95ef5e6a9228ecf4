//! Modules in a program's hands: their attributes, items and calls.

#![allow(clippy::panic, reason = "a module is never written out")]

use crate::dist::arguments as take;
use crate::nn::calls;
use crate::nn::module_methods::{container_methods, ddp_methods, layer_methods, module_methods};
use crate::nn::modules::{
    Container, ContainerValue, DdpValue, LayerValue, Module, OwnMethods, checked, container,
};
use crate::nn::output_shape::Shape;
use crate::nn::parameter::parameter_of;
use crate::nn::parameters::tensor_of;
use crate::process::raised::raised;
use crate::tensor::value::TensorValue;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::methods_static;
use starlark::values::list::AllocList;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// The attribute that `no_sync()` sets, and that some set themselves.
const SYNC: &str = "require_backward_grad_sync";

fn all_container_methods(builder: &mut MethodsBuilder) {
    module_methods(builder);
    container_methods(builder);
}

fn all_ddp_methods(builder: &mut MethodsBuilder) {
    module_methods(builder);
    ddp_methods(builder);
}

fn all_layer_methods(builder: &mut MethodsBuilder) {
    module_methods(builder);
    layer_methods(builder);
}

methods_static!(LAYER_METHODS = all_layer_methods);
methods_static!(OWN_METHODS = module_methods);
methods_static!(CONTAINER_METHODS = all_container_methods);
methods_static!(DDP_METHODS = all_ddp_methods);

/// A part of a model that ships: `resnet.layer1`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct PartValue<'v> {
    layer: Value<'v>,
    name: String,
}

impl fmt::Display for PartValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(…)", self.name)
    }
}

/// The parameter, buffer or part of that name in a layer.
fn named<'v>(layer: Value<'v>, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
    let own = layer.downcast_ref::<LayerValue>()?;
    let (parameters, buffers) = (own.parameters.try_borrow().ok()?, own.buffers.try_borrow().ok()?);
    let mut all = parameters.iter().chain(buffers.iter());
    if let Some((_, found)) = all.clone().find(|(known, _)| known == name) {
        return Some(tensor_of(found, heap));
    }
    let below = format!("{name}.");
    let part = || PartValue { layer, name: name.to_owned() };
    all.any(|(known, _)| known.starts_with(&below)).then(|| heap.alloc_complex_no_freeze(part()))
}

#[starlark_value(type = "Module")]
impl<'v> StarlarkValue<'v> for PartValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        named(self.layer, &format!("{}.{attribute}", self.name), heap)
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let name = format!("{}.{}", self.name, index.to_str());
        named(self.layer, &name, heap).ok_or_else(|| no_part(&name))
    }
}

fn no_part(name: &str) -> starlark::Error {
    let why = format!("module {name} of this model has no parameters, or is not there");
    starlark::Error::new_native(anyhow::anyhow!(why))
}

#[starlark_value(type = "Layer")]
impl<'v> StarlarkValue<'v> for LayerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(LAYER_METHODS.methods())
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        if let Some(setting) = self.setting(attribute, heap) {
            return Some(setting);
        }
        if attribute == "training" {
            return Some(Value::new_bool(self.training.get()));
        }
        let tensor = {
            let (parameters, buffers) =
                (self.parameters.try_borrow().ok()?, self.buffers.try_borrow().ok()?);
            let mut all = parameters.iter().chain(buffers.iter());
            let found = all.clone().find(|(known, _)| known == attribute);
            if found.is_none() && all.any(|(known, _)| known.starts_with(&format!("{attribute}.")))
            {
                // A part holds the layer itself: another hold on the same parameters.
                let layer = heap.alloc_complex_no_freeze(self.another_hold());
                return named(layer, attribute, heap);
            }
            found.map(|(_, parameter)| parameter.clone())
        };
        match tensor {
            Some(parameter) => Some(tensor_of(&parameter, heap)),
            // `nn.Linear(8, 8, bias=False).bias`.
            None => (attribute == "bias" && !self.layers.is_empty()).then(Value::new_none),
        }
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }

    /// `self.head.weight = self.embedding.weight`.
    fn set_attr(&self, attribute: &str, value: Value<'v>) -> starlark::Result<()> {
        let tensor = value.downcast_ref::<TensorValue>();
        let parameter = tensor.and_then(|tensor| parameter_of(&tensor.0));
        let Some(parameter) = parameter else {
            return Err(starlark::Error::new_native(anyhow::anyhow!(
                "self.{attribute} of {} is set to a parameter here, and to nothing else",
                self.kind
            )));
        };
        if let Ok(mut own) = self.parameters.try_borrow_mut() {
            match own.iter_mut().find(|(name, _)| name == attribute) {
                Some((_, known)) => *known = parameter,
                None => own.push((attribute.to_owned(), parameter)),
            }
        }
        Ok(())
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let name = index.to_str();
        let layer = heap.alloc_complex_no_freeze(self.another_hold());
        named(layer, &name, heap).ok_or_else(|| no_part(&name))
    }

    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        calls::with(me, args, eval)
    }
}

impl LayerValue {
    /// A size or another setting that the module was made with.
    fn setting<'v>(&self, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        if let (Shape::Sequence(own), "batch_first" | "bidirectional") = (&self.shape, name) {
            let set = if name == "batch_first" { own.batch_first } else { own.sizes.bidirectional };
            return Some(Value::new_bool(set));
        }
        if let (Shape::Attention(own), "batch_first") = (&self.shape, name) {
            return Some(Value::new_bool(own.batch_first));
        }
        let size = match (&self.shape, name) {
            (Shape::Linear(from, _), "in_features") => *from,
            (Shape::Linear(_, to), "out_features") => *to,
            (Shape::Embedding(size), "embedding_dim") => *size,
            (Shape::Sequence(own), "input_size") => own.sizes.input,
            (Shape::Sequence(own), "hidden_size") => own.sizes.hidden,
            (Shape::Sequence(own), "num_layers") => own.sizes.layers,
            (Shape::Sequence(own), "proj_size") => own.sizes.projection.unwrap_or(0),
            (Shape::Attention(own), "embed_dim") => own.embedding,
            (Shape::Attention(own), "num_heads") => own.heads,
            (Shape::Attention(own), "head_dim") => own.embedding / own.heads.max(1),
            _ => return None,
        };
        Some(heap.alloc(size))
    }

    fn another_hold(&self) -> LayerValue {
        LayerValue {
            kind: self.kind.clone(),
            parameters: self.parameters.clone(),
            buffers: self.buffers.clone(),
            layers: self.layers.clone(),
            shape: self.shape.clone(),
            training: self.training.clone(),
            synced: self.synced.clone(),
        }
    }
}

#[starlark_value(type = "Container")]
impl<'v> StarlarkValue<'v> for ContainerValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        Some(CONTAINER_METHODS.methods())
    }

    fn get_attr(&self, attribute: &str, _heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "training" => Some(Value::new_bool(self.training.get())),
            name => self.parts.try_borrow().ok()?.get(name).copied(),
        }
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(self.all().len() as i32)
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let all = self.all().into_iter();
        Ok(match self.kind {
            Container::Dict => all.map(|(name, _)| heap.alloc(name)).collect(),
            _ => all.map(|(_, part)| part).collect(),
        })
    }

    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        let name = other.unpack_str().unwrap_or_default();
        Ok(self.all().iter().any(|(known, _)| known == name))
    }

    fn at(&self, index: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let place = self.place(index)?;
        Ok(self.all().get(place).map_or_else(Value::new_none, |(_, part)| *part))
    }

    fn set_at(&self, index: Value<'v>, new: Value<'v>) -> starlark::Result<()> {
        let new = checked(new).map_err(starlark::Error::new_native)?;
        let name = match (self.kind, index.unpack_str()) {
            (Container::Dict, Some(name)) => name.to_owned(),
            _ => {
                self.all().get(self.place(index)?).map(|(name, _)| name.clone()).unwrap_or_default()
            }
        };
        if let Ok(mut parts) = self.parts.try_borrow_mut() {
            parts.insert(name, new);
        }
        Ok(())
    }

    fn slice(
        &self,
        start: Option<Value<'v>>,
        stop: Option<Value<'v>>,
        stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let parts = self.all().into_iter().map(|(_, part)| part);
        let sliced = heap.alloc(AllocList(parts)).slice(start, stop, stride, heap)?;
        let parts = take::items(sliced).unwrap_or_default().into_iter().enumerate();
        container(self.kind, parts.map(|(nth, part)| (nth.to_string(), part)), heap)
            .map_err(starlark::Error::new_native)
    }

    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        calls::with(me, args, eval)
    }
}

impl<'v> ContainerValue<'v> {
    pub(crate) fn all(&self) -> Vec<(String, Value<'v>)> {
        let Ok(parts) = self.parts.try_borrow() else { return Vec::new() };
        parts.iter().map(|(name, part)| (name.clone(), *part)).collect()
    }

    /// The place of the part with that number or name.
    fn place(&self, index: Value<'v>) -> starlark::Result<usize> {
        let all = self.all();
        let error = |text: String| starlark::Error::new_native(raised(text));
        if let Some(name) = index.unpack_str() {
            let found = all.iter().position(|(known, _)| known == name);
            return found.ok_or_else(|| error(format!("KeyError: '{name}'")));
        }
        let at = index.unpack_i32().and_then(|at| match at < 0 {
            true => all.len().checked_sub(at.unsigned_abs() as usize),
            false => usize::try_from(at).ok(),
        });
        at.filter(|at| *at < all.len())
            .ok_or_else(|| error(format!("IndexError: index {} is out of range", index.to_str())))
    }
}

#[starlark_value(type = "DistributedDataParallel")]
impl<'v> StarlarkValue<'v> for DdpValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        Some(DDP_METHODS.methods())
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "module" => Some(self.module),
            "training" => Module::of(self.module).map(|own| Value::new_bool(own.is_training())),
            SYNC => Some(Value::new_bool(self.sync.load(Relaxed))),
            "device_ids" => Some(match &self.device_ids {
                Some(ids) => heap.alloc(AllocList(ids.iter().copied())),
                None => Value::new_none(),
            }),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "module" | "device_ids" | "training" | SYNC)
    }

    fn set_attr(&self, attribute: &str, value: Value<'v>) -> starlark::Result<()> {
        if attribute != SYNC {
            return Err(starlark::Error::new_native(anyhow::anyhow!(
                "of a DistributedDataParallel {SYNC} can be set, and no {attribute}"
            )));
        }
        self.sync.store(value.to_bool(), Relaxed);
        Ok(())
    }

    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        calls::with(me, args, eval)
    }
}

#[starlark_value(type = "Module")]
impl<'v> StarlarkValue<'v> for OwnMethods<'v> {
    fn get_methods() -> Option<&'static Methods> {
        Some(OWN_METHODS.methods())
    }
}

/// The attribute that every module has, of an object of a program's class.
pub(crate) fn of_own<'v>(state: Value<'v>, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
    if name == "training" {
        return Some(Value::new_bool(true));
    }
    let methods = heap.alloc_complex_no_freeze(OwnMethods(state));
    methods.get_attr(name, heap).ok().flatten()
}
