//! A call of a module: its forward pass.
//!
//! `forward` of a program's class is executed like any method. What it does that is not followed here (an operation that
//! is not known, a decision by values that only a run knows) ends the outermost forward pass as *not followed*: the
//! plan says so, with the line, and the pass is taken for one that uses every parameter once.

use crate::classes::objects::{InstanceValue, class};
use crate::dist::arguments as take;
use crate::nn::ddp_passes;
use crate::nn::module_arguments::{Given, Rest, returned};
use crate::nn::modules::{Container, DdpValue, LayerValue, Module, modules, tensors};
use crate::nn::output::{OutputValue, like_of};
use crate::nn::output_shape::Returned;
use crate::nn::parameter::{Kind, Parameter};
use crate::nn::results::{autocast, shaped_as};
use crate::nn::state::ForwardPass;
use crate::nn::sync_batch_norm::Statistics;
use crate::process::grad_mode;
use crate::process::raised::{Left, raised};
use crate::process::state::{Process, process};
use crate::process::undecided;
use crate::python::traceback::{raised_by, said};
use crate::tensor::graph;
use lockstep_core::dtype::Dtype;
use lockstep_torch::autograd::Node;
use lockstep_torch::c10d::{Device, Tensor};
use lockstep_torch::ddp::model::Layer;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::DictRef;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Value, ValueLike};
use std::sync::Arc;

/// `module(…)`.
pub(crate) fn with<'v>(
    module: Value<'v>,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let own = process(eval).map_err(starlark::Error::new_native)?;
    if own.forward.depth == 0 {
        own.forward.computed_to = None;
    }
    let given = Given::of(args, eval.heap())?;
    call(module, &given.more, &given.named, eval)
}

/// The forward pass of a module with those arguments.
///
/// # Errors
/// An exception that it raises.
pub(crate) fn call<'v>(
    module: Value<'v>,
    given: &[Value<'v>],
    named: &[(&str, Value<'v>)],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    match Module::of(module) {
        Some(Module::Layer(layer)) => {
            of_layer(layer, given, named, eval).map_err(starlark::Error::new_native)
        }
        Some(Module::Container(container)) if container.kind == Container::Sequential => {
            let mut given = given.to_vec();
            for (_, part) in container.all() {
                given = vec![call(part, &given, named, eval)?];
            }
            Ok(given.first().copied().unwrap_or_else(Value::new_none))
        }
        Some(Module::Ddp(ddp)) => through_ddp(ddp, given, named, &[], eval),
        Some(Module::Own(_)) => own(module, given, named, eval),
        Some(Module::Container(container)) => Err(without_forward(container.kind.class())),
        None => eval.eval_function(module, given, named),
    }
}

/// The forward pass of a wrapped model, whose outputs do not depend on the `unused` parameters that the program names,
/// by their numbers.
///
/// # Errors
/// An exception that DDP or the model raises.
pub(crate) fn through_ddp<'v>(
    model: &DdpValue<'v>,
    given: &[Value<'v>],
    named: &[(&str, Value<'v>)],
    unused: &[u32],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let native = starlark::Error::new_native;
    let at = model.at;
    let own = process(eval).map_err(native)?;
    let syncs = ddp_passes::begins(at, own).map_err(native)?;
    let first = grad_mode::next_sequence();
    let costs = own.modules.get(at).map(|own| (own.device.clone(), own.batch));
    own.forward.of_ddp.extend(costs);
    let output = call(model.module, given, named, eval);
    if let Some(own) = of_eval(eval) {
        own.forward.of_ddp.pop();
    }
    let returned = output?;
    let mut outputs = Vec::new();
    tensors_in(returned, 0, &mut outputs);
    let output = graph::joined(&outputs);
    let operations = first..grad_mode::next_sequence();
    let pass = ForwardPass { operations, syncs, left_out: unused.to_vec(), output };
    ddp_passes::ends(at, pass, process(eval).map_err(native)?).map_err(native)?;
    Ok(returned)
}

fn without_forward(class: &str) -> starlark::Error {
    starlark::Error::new_native(raised(format!(
        "NotImplementedError: Module [{class}] is missing the required \"forward\" function"
    )))
}

/// `forward` of a program's class.
fn own<'v>(
    module: Value<'v>,
    given: &[Value<'v>],
    named: &[(&str, Value<'v>)],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let module = crate::nn::modules::whole(module, heap);
    let state = module.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::state);
    let of = state.and_then(|state| class(state.class));
    let name = of.map_or_else(String::new, |of| of.name.clone());
    let Some(forward) = of.and_then(|of| of.find("forward")) else {
        return Err(without_forward(&name));
    };
    let native = starlark::Error::new_native;
    let (outermost, contexts) = {
        let process = process(eval).map_err(native)?;
        process.forward.depth += 1;
        if process.forward.depth == 1 {
            process.forward.line = process.line;
            process.forward.computed_to = None;
        }
        (process.forward.depth == 1, process.contexts.len())
    };
    let given: Vec<Value<'v>> = std::iter::once(module).chain(given.iter().copied()).collect();
    let called = eval.eval_function(forward, &given, named);
    let Some(process) = of_eval(eval) else { return called };
    process.forward.depth -= 1;
    if !outermost {
        return called;
    }
    let called = called.and_then(|output| {
        process.nothing_made_up().map_err(native)?;
        Ok(output)
    });
    match called {
        Err(error) if is_refusal(&error, process) => {
            while process.contexts.len() > contexts {
                process.leave();
            }
            unfollowed(&name, &error, process).map_err(native)?;
            assumed(module, given.get(1).copied(), eval).map_err(native)
        }
        called => called,
    }
}

/// The process, whatever it has decided by.
fn of_eval<'x, 'e>(eval: &'x mut Evaluator<'_, '_, 'e>) -> Option<&'x mut Process<'e>> {
    eval.extra_mut.as_mut().and_then(|extra| extra.downcast_mut::<Process<'e>>())
}

/// True if an error says that something is not followed here: no exception of the program's, and no limit.
fn is_refusal(error: &starlark::Error, process: &Process<'_>) -> bool {
    let (text, _) = said(error);
    let left = matches!(error.kind(), starlark::ErrorKind::Native(inner) if inner.is::<Left>());
    let limits = ["ticks has been exceeded", "Heap memory limit", "call stack"];
    let limited = limits.iter().any(|limit| text.to_lowercase().contains(&limit.to_lowercase()));
    let made_up = process.nothing_made_up().is_err() || text.contains("`unknown`");
    let exception = process.program.as_ref().and_then(|program| raised_by(error, program));
    let stopped = grad_mode::is_stopped(error);
    !left
        && !limited
        && !stopped
        && !process.gone
        && process.is_rank()
        && (made_up || exception.is_none())
}

/// Notes the part of a forward pass that is not followed.
fn unfollowed(
    class: &str,
    error: &starlark::Error,
    process: &mut Process<'_>,
) -> anyhow::Result<()> {
    let (text, _) = said(error);
    let why = match process.nothing_made_up() {
        Err(made_up) => made_up.to_string(),
        Ok(()) => text,
    };
    let line = error.span().map(|span| span.resolve_span().begin.line);
    let line = line.and_then(|line| process.origin.get(line)).map_or(process.line, |line| line + 1);
    let line = process.program.as_ref().map_or(line, |program| program.shown_line(line));
    process.decided.forget();
    undecided::begin();
    process.asked = None;
    let what = format!("{class}.forward");
    if process.forward.unfollowed.insert((what.clone(), line)) {
        process.dist()?.note_unfollowed(what, line, why);
    }
    Ok(())
}

/// The output of a forward pass that is not followed: of an unknown shape, with every parameter used once.
fn assumed<'v>(
    module: Value<'v>,
    input: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let mut node = graph::joined(input.and_then(like_of).as_ref());
    if grad_mode::enabled() {
        for (_, part) in modules(module)? {
            let Some(Module::Layer(layer)) = Module::of(part) else { continue };
            let parameters = layer.parameters.try_borrow()?.clone();
            for layer in &layer.layers {
                node = used(layer, &parameters, node, (0, None));
            }
        }
        let known = node.as_ref().map(|node| node.parameters()).unwrap_or_default();
        let others = tensors(module, Kind::Parameter)?.into_iter().map(|(_, own)| own);
        let others: Vec<u32> = others
            .filter(|own| own.is_trained() && !known.contains(&own.number()))
            .map(|own| own.number())
            .collect();
        if !others.is_empty() {
            let inputs = node.into_iter().collect();
            node = Some(Arc::new(Node::new(grad_mode::next_sequence(), others, inputs)));
        }
    }
    let like = input.and_then(like_of).map_or(Tensor::nothing(Device::Cpu), |like| like);
    let process = process(eval)?;
    Ok(heap.alloc(OutputValue::new(&like, Dtype::Float32, node, &process.decided)))
}

/// The node of a layer that uses these parameters of a module. Its backward pass takes so many nanoseconds, and may
/// make a call.
fn used(
    layer: &Layer,
    parameters: &[(String, Parameter)],
    before: Option<Arc<Node>>,
    (backward_ns, call): (u64, Option<u32>),
) -> Option<Arc<Node>> {
    let own = layer.params.iter().filter_map(|at| parameters.get(*at as usize));
    let trained: Vec<u32> =
        own.filter(|(_, own)| own.is_trained()).map(|(_, own)| own.number()).collect();
    if trained.is_empty() && call.is_none() && (before.is_none() || backward_ns == 0) {
        return before;
    }
    let inputs = before.into_iter().collect();
    let node = Node::new(grad_mode::next_sequence(), trained, inputs).taking(backward_ns);
    Some(Arc::new(match call {
        Some(call) => node.calling(call),
        None => node,
    }))
}

/// The tensors in a value, as deep as lists, tuples, dicts and dataclasses hold them (DDP's `_find_tensors`).
pub(crate) fn tensors_in(value: Value<'_>, depth: usize, all: &mut Vec<Tensor>) {
    if let Some(tensor) = like_of(value) {
        all.push(tensor);
        return;
    }
    if depth > 20 {
        return;
    }
    if let Some(dict) = DictRef::from_value(value) {
        dict.iter().for_each(|(_, value)| tensors_in(value, depth + 1, all));
        return;
    }
    if let Some(object) = value.downcast_ref::<InstanceValue<'_>>() {
        let fields = object.class().map(|class| class.fields()).unwrap_or_default();
        let Some(state) = object.state() else { return };
        for field in fields {
            if let Some(value) = crate::classes::objects::found(&state.attributes, &field) {
                tensors_in(value, depth + 1, all);
            }
        }
        return;
    }
    for item in take::items(value).unwrap_or_default() {
        tensors_in(item, depth + 1, all);
    }
}

/// The forward pass of a module of `torch.nn`: its output is known by its shape, and the time by its layers.
fn of_layer<'v>(
    layer: &LayerValue,
    given: &[Value<'v>],
    named: &[(&str, Value<'v>)],
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let input = given.first().copied().or_else(|| {
        let own = named.iter().find(|(name, _)| *name == "input");
        own.or(named.first()).map(|(_, value)| *value)
    });
    let mut all = Vec::new();
    let arguments = given.iter().copied().chain(named.iter().map(|(_, value)| *value));
    arguments.for_each(|value| tensors_in(value, 0, &mut all));
    let known = input.and_then(crate::tensor::value::tensor_in);
    let parameters = layer.parameters.try_borrow()?.clone();
    let of_parameters = parameters.first().map(|(_, own)| (own.dtype(), own.device()));
    let process = process(eval)?;
    let dtype = match (of_parameters, all.first()) {
        (Some((dtype, _)), _) => autocast(&process.contexts).unwrap_or(dtype),
        (None, Some(first)) => first.dtype(),
        (None, None) => Dtype::Float32,
    };
    let like = match (all.first(), of_parameters) {
        (Some(first), _) => Tensor::nothing(first.device()).on_device(first.device_index()),
        (None, Some((_, Device::Cuda))) => {
            Tensor::nothing(Device::Cuda).on_device(process.cuda_device())
        }
        (None, _) => Tensor::nothing(Device::Cpu),
    };
    let (device, batch) = process.forward.costs()?;
    let slowness = process.slowness;
    let slowed = |ns: u64| (ns as f64 * slowness) as u64;
    let mut node = graph::joined(&all).filter(|_| dtype.is_float());
    let mut computed: u64 = 0;
    for part in layer.parts_on(like.device()).iter() {
        computed = computed.saturating_add(slowed(device.forward_ns(&part.cost, dtype, batch)));
        let statistics = Statistics::of(layer, part, known, dtype, &like, process)?;
        if let Some(statistics) = &statistics {
            if computed > 0 {
                process.computes_forward(std::mem::take(&mut computed))?;
            }
            statistics.gather(process)?;
        }
        if grad_mode::enabled() {
            let backward_ns = slowed(device.backward_ns(&part.cost, dtype, batch));
            let call = match (&statistics, &node) {
                // Without a gradient of its input, the norm needs no other rank's.
                (Some(statistics), Some(_)) => Some(statistics.summed_in_backward(process)?),
                _ => None,
            };
            node = used(part, &parameters, node, (backward_ns, call));
        }
    }
    if !layer.layers.is_empty() && node.is_some() {
        grad_mode::saves()?;
    }
    if computed > 0 {
        process.computes_forward(computed)?;
    }
    let like = like.with_grad_fn(node);
    let shape = known.map(|known| known.shape().to_vec());
    let call = Rest { more: given, named };
    made(returned(&layer.shape, shape.as_deref(), &call), &like, dtype, eval)
}

/// The outputs of a module, all of the operation and on the device of another tensor.
fn made<'v>(
    returned: Returned,
    like: &Tensor,
    dtype: Dtype,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    match returned {
        Returned::Tensor(shape) => shaped_as(shape, like, dtype, eval),
        Returned::Nothing => Ok(Value::new_none()),
        Returned::Tuple(parts) => {
            let parts = parts.into_iter().map(|part| made(part, like, dtype, eval));
            let parts = parts.collect::<anyhow::Result<Vec<_>>>()?;
            Ok(eval.heap().alloc(AllocTuple(parts)))
        }
    }
}
