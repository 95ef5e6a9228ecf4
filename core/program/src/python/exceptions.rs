//! Python's exceptions, and torch's own: the texts of `raise`, and the matching of `except`.

#![allow(clippy::panic, reason = "an exception is never written out")]

use crate::classes::object_text::{self, inside, text_of};
use crate::classes::objects::{self, InstanceValue};
use crate::python::exception_classes::{OF_SYSTEM, PYTHONS, TORCHS, is_below, is_class, named};
use crate::python::exception_value::{ExceptionValue, of_program};
use crate::python::value_text;
use crate::torch::callable::{self, Callable};
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark_derive::starlark_value;

#[starlark_value(type = "exception")]
impl<'v> StarlarkValue<'v> for ExceptionValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "args" => Some(heap.alloc(AllocTuple(self.args.iter().copied()))),
            "__class__" => Some(heap.alloc(Callable::new(named(&self.class)?, made))),
            "code" if self.class == "SystemExit" => Some(match self.args.first() {
                Some(code) => *code,
                None => Value::new_none(),
            }),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "args" | "__class__")
            || (attribute == "code" && self.class == "SystemExit")
    }
}

fn made<'v>(
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    of_args(name, args.positions(heap)?.collect(), eval).map_err(starlark::Error::new_native)
}

/// An exception of Python's with these arguments.
///
/// # Errors
/// An exception that the methods raise that show the arguments.
pub(crate) fn of_args<'v>(
    name: &str,
    given: Vec<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let class = if OF_SYSTEM.contains(&name) { "OSError" } else { name };
    let text = text_of(class, &given, eval)?;
    let inside = inside(&given, eval)?;
    let class = class.to_owned();
    Ok(heap.alloc_complex_no_freeze(ExceptionValue { class, args: given, text, inside }))
}

/// The exception that `raise` raises: a class is called without arguments.
///
/// # Errors
/// An exception that the class's `__init__` raises.
pub(crate) fn of_class<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let native = value.downcast_ref::<Callable>().is_some_and(|own| is_class(own.name()));
    match native || objects::class(value).is_some() {
        true => eval.eval_function(value, &[], &[]),
        false => Ok(value),
    }
}

/// An exception that was raised here, made from the last line of Python's traceback; `None` if the line is
/// not an exception's.
pub(crate) fn of_text<'v>(told: &str, heap: Heap<'v>) -> Option<Value<'v>> {
    let (class, text) = told.split_once(": ").unwrap_or((told, ""));
    let short = class.rsplit('.').next().unwrap_or(class);
    let class = named(class).or_else(|| named(&format!("torch.distributed.{short}")))?;
    // A key is shown as it is written.
    let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let arg = key.filter(|_| class == "KeyError").unwrap_or(text);
    let args = if text.is_empty() { Vec::new() } else { vec![heap.alloc(arg)] };
    let inside = if text.is_empty() { String::new() } else { value_text::quoted(arg) };
    let (class, text) = (class.to_owned(), text.to_owned());
    Some(heap.alloc_complex_no_freeze(ExceptionValue { class, args, text, inside }))
}

/// True if a value is an exception.
pub(crate) fn is_one(value: Value<'_>) -> bool {
    class_of(value).is_some() || of_program(value).is_some()
}

/// The name of an exception's class.
fn class_of<'v>(value: Value<'v>) -> Option<&'v str> {
    value.downcast_ref::<ExceptionValue<'v>>().map(|own| own.class.as_str())
}

/// The last line of Python's traceback for a raised value.
///
/// # Errors
/// An exception that its class's `__str__` raises.
pub(crate) fn told<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<String> {
    let heap = eval.heap();
    let class = match value.downcast_ref::<ExceptionValue<'v>>() {
        Some(own) => own.class.clone(),
        None => match (of_program(value), objects::class(value)) {
            (Some((own, _)), _) => own.class().map_or_else(String::new, |own| own.name.clone()),
            (None, Some(class)) => return Ok(class.name.clone()),
            (None, None) => return Ok(value_text::text(value, heap)),
        },
    };
    let shown = object_text::shown(value, eval)?;
    let text = value_text::text(shown, heap);
    Ok(if text.is_empty() { class } else { format!("{class}: {text}") })
}

/// True if `except classes` catches an exception. A class that is not a known exception class catches
/// nothing.
pub(crate) fn catches<'v>(classes: Value<'v>, error: Value<'v>) -> bool {
    if let Some(several) = TupleRef::from_value(classes) {
        return several.content().iter().any(|one| catches(*one, error));
    }
    if let Some(is) = objects::is_instance(error, classes) {
        return is;
    }
    let Some(of) = classes.downcast_ref::<Callable>().map(|own| own.name()) else { return false };
    let own = class_of(error).or_else(|| of_program(error).map(|(_, native)| native));
    own.is_some_and(|own| is_below(own, of))
}

/// `super().__init__(…)` in a class of exceptions.
pub(crate) fn begun<'v>(
    _name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let mut given = args.positions(heap)?;
    let this = given.next().and_then(|this| this.downcast_ref::<InstanceValue<'v>>());
    let args = heap.alloc(AllocTuple(given.collect::<Vec<_>>()));
    if let Some(state) = this.and_then(InstanceValue::state) {
        objects::put(&state.attributes, "args", args)?;
    }
    Ok(Value::new_none())
}

/// Adds Python's.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    callable::add(builder, &PYTHONS.map(|(name, _)| name), made);
    callable::add(builder, &OF_SYSTEM, made);
}

/// Adds torch's own, which are `torch.OutOfMemoryError` and the same of `torch.cuda`.
pub(crate) fn of_torch(builder: &mut GlobalsBuilder) {
    builder.set("OutOfMemoryError", Callable::new("torch.OutOfMemoryError", made));
}

/// Adds those of `torch.distributed`.
pub(crate) fn of_dist(builder: &mut GlobalsBuilder) {
    for (name, _) in TORCHS {
        if let Some(own) = name.strip_prefix("torch.distributed.") {
            builder.set(own, Callable::new(name, made));
        }
    }
}
