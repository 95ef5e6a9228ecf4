//! `torch.utils.checkpoint`: parts of a forward pass that run again in the backward pass, with the calls in them.

use crate::dist::values::TensorValue;
use crate::nn::calls::{call, tensors_in};
use crate::nn::output::OutputValue;
use crate::process::grad_mode;
use crate::process::state::process;
use crate::python::type_error::type_error;
use crate::tensor::graph;
use lockstep_torch::autograd::{Checkpoint, Node};
use lockstep_torch::c10d::Tensor;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{Heap, Value, ValueLike};
use std::sync::Arc;

/// The name under which the interpreter's module holds a part: its function, its arguments, and how many tensors it
/// saved for the backward pass. No program can name it.
fn kept_at(part: u32) -> String {
    format!("checkpoint {part}!")
}

/// `checkpoint(function, *args, use_reentrant=…)`.
fn checkpoint<'v>(
    _name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    const OPTIONS: [&str; 6] = [
        "use_reentrant",
        "preserve_rng_state",
        "context_fn",
        "determinism_check",
        "debug",
        "early_stop",
    ];
    let heap = eval.heap();
    let mut given = args.positions(heap)?;
    let function = given.next();
    let given: Vec<Value<'v>> = given.collect();
    let all = args.names_map()?;
    let all: Vec<(&str, Value<'v>)> =
        all.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let option = |name: &str| all.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
    let function = function.or_else(|| option("function")).ok_or_else(|| {
        let text = "checkpoint() missing 1 required positional argument: 'function'";
        starlark::Error::new_native(type_error(text))
    })?;
    let own = |name: &str| OPTIONS.contains(&name) || name == "function";
    let named: Vec<(&str, Value<'v>)> =
        all.iter().filter(|(name, _)| !own(name)).copied().collect();
    let reenters = option("use_reentrant").is_none_or(|value| value.to_bool() || value.is_none());
    if !grad_mode::enabled() {
        return call(function, &given, &named, eval);
    }
    let process = process(eval).map_err(starlark::Error::new_native)?;
    let part = process.forward.parts;
    process.forward.parts += 1;
    let before = grad_mode::saved();
    grad_mode::enable(!reenters);
    let output = call(function, &given, &named, eval);
    grad_mode::enable(true);
    let output = output?;
    let saved = grad_mode::saved() - before;
    let names = AllocList(named.iter().map(|(name, _)| *name));
    let values = AllocList(named.iter().map(|(_, value)| *value));
    let kept = heap.alloc(AllocTuple([
        function,
        heap.alloc(AllocList(given.iter().copied())),
        heap.alloc(names),
        heap.alloc(values),
        heap.alloc(saved),
    ]));
    eval.module().set(&kept_at(part), kept);
    let inputs = match reenters {
        true => {
            let mut inputs = Vec::new();
            given.iter().for_each(|value| tensors_in(*value, 0, &mut inputs));
            graph::joined(&inputs)
        }
        false => None,
    };
    let ends = |of: Option<&Arc<Node>>| -> Option<Arc<Node>> {
        let (before, ending) = match reenters {
            true => (inputs.clone()?, Checkpoint::Reenters(part)),
            false => (of?.clone(), Checkpoint::Recomputes(part)),
        };
        let node = Node::new(grad_mode::next_sequence(), Vec::new(), vec![before]);
        Some(Arc::new(node.ending(ending)))
    };
    Ok(with_ends(output, &ends, heap))
}

/// The operation that a value comes of, put behind the one that it came of.
type End<'a> = &'a dyn Fn(Option<&Arc<Node>>) -> Option<Arc<Node>>;

/// The outputs of a part, each with another operation that it comes of.
fn with_ends<'v>(value: Value<'v>, ends: End<'_>, heap: Heap<'v>) -> Value<'v> {
    let ended = |tensor: &Tensor| ends(tensor.grad_fn()).filter(|_| tensor.dtype().is_float());
    if let Some(tensor) = value.downcast_ref::<TensorValue>() {
        let node = ended(&tensor.0);
        return match node {
            Some(node) => heap.alloc(TensorValue(tensor.0.clone().with_grad_fn(Some(node)))),
            None => value,
        };
    }
    if let Some(output) = value.downcast_ref::<OutputValue>() {
        let like = &output.like;
        return heap.alloc(OutputValue::new(like, like.dtype(), ended(like), &output.decided));
    }
    if let Some(tuple) = TupleRef::from_value(value) {
        let parts = tuple.content().iter().map(|part| with_ends(*part, ends, heap));
        return heap.alloc(AllocTuple(parts.collect::<Vec<_>>()));
    }
    if let Some(list) = ListRef::from_value(value) {
        let parts = list.content().iter().map(|part| with_ends(*part, ends, heap));
        return heap.alloc(AllocList(parts.collect::<Vec<_>>()));
    }
    value
}

/// The function, its arguments with their names, and the tensors that it saved.
type Part<'v> = (Value<'v>, Vec<Value<'v>>, Vec<(&'v str, Value<'v>)>, u64);

fn part_of<'v>(part: u32, eval: &Evaluator<'v, '_, '_>) -> Option<Part<'v>> {
    let kept = eval.module().get(&kept_at(part))?;
    let [function, given, names, values, saved] = TupleRef::from_value(kept)?.content() else {
        return None;
    };
    let list = |of: &Value<'v>| ListRef::from_value(*of).map(|list| list.content().to_vec());
    let names = list(names)?.into_iter().filter_map(Value::unpack_str);
    let named = names.zip(list(values)?).collect();
    let saved = u64::try_from(saved.unpack_i32()?).ok()?;
    Some((*function, list(given)?, named, saved))
}

/// A part is computed again, up to the last tensor that it saved (`_StopRecomputationError`).
pub(crate) fn recompute(part: u32, eval: &mut Evaluator<'_, '_, '_>) -> starlark::Result<()> {
    let Some((function, given, named, saved)) = part_of(part, eval) else { return Ok(()) };
    let enabled = grad_mode::enabled();
    grad_mode::enable(true);
    let around = grad_mode::stop_after(Some(saved));
    let open = process(eval).map_err(starlark::Error::new_native)?.contexts.len();
    let done = call(function, &given, &named, eval);
    grad_mode::go_on(around);
    if let Ok(process) = process(eval) {
        while process.contexts.len() > open {
            process.leave();
        }
    }
    grad_mode::enable(enabled);
    match done {
        Err(error) if grad_mode::is_stopped(&error) => Ok(()),
        done => done.map(|_| ()),
    }
}

/// A part is computed again with a graph of its own, whose root is returned.
pub(crate) fn reenter(
    part: u32,
    eval: &mut Evaluator<'_, '_, '_>,
) -> starlark::Result<Option<Arc<Node>>> {
    let Some((function, given, named, _)) = part_of(part, eval) else { return Ok(None) };
    let heap = eval.heap();
    let detached = |value: Value<'_>| {
        value.downcast_ref::<TensorValue>().map(|tensor| tensor.0.clone().detached())
    };
    let given: Vec<_> = given
        .into_iter()
        .map(|value| detached(value).map_or(value, |tensor| heap.alloc(TensorValue(tensor))))
        .collect();
    let enabled = grad_mode::enabled();
    grad_mode::enable(true);
    let output = call(function, &given, &named, eval);
    grad_mode::enable(enabled);
    let mut outputs = Vec::new();
    tensors_in(output?, 0, &mut outputs);
    Ok(graph::joined(&outputs))
}

/// `torch.utils.checkpoint`.
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    crate::torch::callable::add(builder, &["checkpoint"], checkpoint);
}
