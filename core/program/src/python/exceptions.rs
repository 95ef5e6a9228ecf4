//! Python's exceptions, and torch's own: what `raise` says, and what `except` catches.

#![allow(clippy::panic, reason = "an exception is never written out")]

use crate::classes::object_text;
use crate::classes::objects::{self, ClassValue, InstanceValue};
use crate::python::value_text;
use crate::torch::callable::{self, Callable};
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::fmt;

/// Python's, each with the one above it.
const PYTHONS: [(&str, &str); 36] = [
    ("BaseException", ""),
    ("Exception", "BaseException"),
    ("KeyboardInterrupt", "BaseException"),
    ("SystemExit", "BaseException"),
    ("GeneratorExit", "BaseException"),
    ("RuntimeError", "Exception"),
    ("NotImplementedError", "RuntimeError"),
    ("RecursionError", "RuntimeError"),
    ("ValueError", "Exception"),
    ("UnicodeDecodeError", "ValueError"),
    ("UnicodeEncodeError", "ValueError"),
    ("LookupError", "Exception"),
    ("KeyError", "LookupError"),
    ("IndexError", "LookupError"),
    ("StopIteration", "Exception"),
    ("TypeError", "Exception"),
    ("AssertionError", "Exception"),
    ("AttributeError", "Exception"),
    ("NameError", "Exception"),
    ("UnboundLocalError", "NameError"),
    ("ArithmeticError", "Exception"),
    ("ZeroDivisionError", "ArithmeticError"),
    ("OverflowError", "ArithmeticError"),
    ("MemoryError", "Exception"),
    ("ImportError", "Exception"),
    ("ModuleNotFoundError", "ImportError"),
    ("EOFError", "Exception"),
    ("BufferError", "Exception"),
    ("OSError", "Exception"),
    ("TimeoutError", "OSError"),
    ("ConnectionError", "OSError"),
    ("ConnectionRefusedError", "ConnectionError"),
    ("FileNotFoundError", "OSError"),
    ("FileExistsError", "OSError"),
    ("PermissionError", "OSError"),
    ("Warning", "Exception"),
];

/// Python's other names for `OSError`.
const OF_SYSTEM: [&str; 2] = ["IOError", "EnvironmentError"];

/// torch's own, by their whole names.
const TORCHS: [(&str, &str); 6] = [
    ("torch.OutOfMemoryError", "RuntimeError"),
    ("torch.distributed.DistError", "RuntimeError"),
    ("torch.distributed.DistBackendError", "torch.distributed.DistError"),
    ("torch.distributed.DistNetworkError", "torch.distributed.DistError"),
    ("torch.distributed.DistStoreError", "torch.distributed.DistError"),
    ("torch.distributed.QueueEmptyError", "torch.distributed.DistStoreError"),
];

/// Classes above each other that are looked through.
const MAX_DEPTH: usize = 16;

/// The one above an exception; nothing of what is none.
fn above(class: &str) -> Option<&'static str> {
    let mut all = PYTHONS.iter().chain(&TORCHS);
    all.find(|(own, _)| *own == class).map(|(_, above)| *above)
}

/// A class of exceptions as it is named here.
fn named(class: &str) -> Option<&'static str> {
    let mut all = PYTHONS.iter().chain(&TORCHS);
    all.find(|(own, _)| *own == class).map(|(own, _)| *own)
}

/// Whether a name is that of a class of exceptions.
pub(crate) fn is_class(name: &str) -> bool {
    named(name).is_some() || OF_SYSTEM.contains(&name)
}

/// Whether an exception is one of a class, by their names.
pub(crate) fn is_below(class: &str, of: &str) -> bool {
    let of = if OF_SYSTEM.contains(&of) { "OSError" } else { of };
    let mut own = class;
    for _ in 0..MAX_DEPTH {
        if own == of {
            return true;
        }
        match above(own) {
            Some(next) => own = next,
            None => return false,
        }
    }
    false
}

/// `ValueError("why")`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct ExceptionValue<'v> {
    class: String,
    args: Vec<Value<'v>>,
    /// `str()` of it.
    text: String,
    /// The text between its brackets in `repr()`.
    inside: String,
}

impl fmt::Display for ExceptionValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.class.rsplit('.').next().unwrap_or(&self.class);
        write!(f, "{name}({})", self.inside)
    }
}

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

/// `str()` of an exception with these arguments.
fn text_of<'v>(
    class: &str,
    args: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<String> {
    match args {
        [] => Ok(String::new()),
        // A key is shown as it is written.
        [_] if class == "KeyError" => inside(args, eval),
        [one] => {
            let heap = eval.heap();
            object_text::shown(*one, eval).map(|value| value_text::text(value, heap))
        }
        several => Ok(format!("({})", inside(several, eval)?)),
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
/// What the methods raise that show them.
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

/// The text between the brackets of `repr()`.
fn inside<'v>(args: &[Value<'v>], eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<String> {
    let heap = eval.heap();
    let shown = |arg: &Value<'v>| {
        object_text::as_repr(*arg, eval).map(|value| value_text::repr(value, heap))
    };
    Ok(args.iter().map(shown).collect::<anyhow::Result<Vec<_>>>()?.join(", "))
}

/// The exception that `raise` raises: a class is called without arguments.
///
/// # Errors
/// What its `__init__` raises.
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

/// An exception that was raised here, from what the last line of Python's traceback says; nothing of
/// what is none.
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

/// The exception that a class of the program's comes from: of several the one that is below the others.
pub(crate) fn native_of(class: &ClassValue<'_>) -> Option<&'static str> {
    let own = class.above.iter().filter_map(|above| above.downcast_ref::<Callable>());
    let natives = own.filter_map(|own| match OF_SYSTEM.contains(&own.name()) {
        true => Some("OSError"),
        false => named(own.name()),
    });
    natives.reduce(|first, next| if is_below(next, first) { next } else { first })
}

/// An exception of a class of the program's, with its class.
fn of_program<'v>(value: Value<'v>) -> Option<(&'v InstanceValue<'v>, &'static str)> {
    let own = value.downcast_ref::<InstanceValue<'v>>()?;
    Some((own, native_of(own.class()?)?))
}

/// The arguments of an exception of a class of the program's.
fn args_of<'v>(own: &InstanceValue<'v>) -> Vec<Value<'v>> {
    let args = own.state().and_then(|state| objects::found(&state.attributes, "args"));
    args.and_then(TupleRef::from_value).map(|args| args.content().to_vec()).unwrap_or_default()
}

/// `str()` of an exception; nothing of what is none.
///
/// # Errors
/// What the methods raise that show its arguments.
pub(crate) fn text<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<String>> {
    if let Some(own) = value.downcast_ref::<ExceptionValue<'v>>() {
        return Ok(Some(own.text.clone()));
    }
    match of_program(value) {
        Some((own, native)) => text_of(native, &args_of(own), eval).map(Some),
        None => Ok(None),
    }
}

/// `repr()` of an exception of a class of the program's.
///
/// # Errors
/// What the methods raise that show its arguments.
pub(crate) fn repr<'v>(
    own: &InstanceValue<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<String>> {
    match own.class().filter(|class| native_of(class).is_some()) {
        Some(class) => Ok(Some(format!("{}({})", class.name, inside(&args_of(own), eval)?))),
        None => Ok(None),
    }
}

/// Whether a value is an exception.
pub(crate) fn is_one(value: Value<'_>) -> bool {
    class_of(value).is_some() || of_program(value).is_some()
}

/// The name of an exception's class.
fn class_of<'v>(value: Value<'v>) -> Option<&'v str> {
    value.downcast_ref::<ExceptionValue<'v>>().map(|own| own.class.as_str())
}

/// The last line of Python's traceback where a value is raised.
///
/// # Errors
/// What its class's `__str__` raises.
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

/// Whether `except classes` catches an exception. What is no class of exceptions that is known here
/// catches none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_of_the_classes_above_them() {
        for (own, of, is) in [
            ("KeyError", "LookupError", true),
            ("KeyError", "Exception", true),
            ("FileNotFoundError", "IOError", true),
            ("torch.distributed.DistStoreError", "RuntimeError", true),
            ("KeyboardInterrupt", "Exception", false),
            ("SystemExit", "BaseException", true),
            ("ValueError", "RuntimeError", false),
            ("MyError", "Exception", false),
        ] {
            assert_eq!(is_below(own, of), is, "{own} {of}");
        }
        for (own, above) in PYTHONS.iter().chain(&TORCHS) {
            assert!(above.is_empty() || crate::python::exceptions::above(above).is_some(), "{own}");
        }
    }
}
