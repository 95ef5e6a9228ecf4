//! The methods that Python calls on objects behind a program's back: `__enter__` and `__exit__` of
//! `with`, `__bool__` and `__len__` where one is taken for true or false, `__int__` and
//! `__float__`.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::members::bound;
use crate::classes::objects::{ClassValue, InstanceValue, class};
use crate::dist::arguments as take;
use crate::dist::values::Context;
use crate::process::state::process;
use crate::python::type_error::{class_of, type_error};
use crate::python::types::TypeValue;
use crate::torch::callable::Callable;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::values::{NoSerialize, StarlarkPagablePanic, StarlarkValue, Value, ValueLike};
use starlark::{starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// `with` blocks that are open at once at most.
const MAX_CONTEXTS: usize = 1000;

/// The name under which a module holds the object of a `with` block, by the number of contexts
/// around it. No program can name it.
fn place(depth: usize) -> String {
    format!("with {depth}!")
}

/// The class of an object of the program's.
fn of_object<'v>(value: Value<'v>) -> Option<&'v ClassValue<'v>> {
    value.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class)
}

/// True if every base class is defined in the program or is an exception, so that all methods are known.
fn is_whole(own: &ClassValue<'_>) -> bool {
    let known =
        |above: &Value<'_>| class(*above).is_some() || above.downcast_ref::<Callable>().is_some();
    own.above.iter().all(known)
}

/// Calls a method of an object's class; `None` if the class does not have it.
///
/// # Errors
/// An exception that the method raises.
pub(crate) fn method<'v>(
    of: Value<'v>,
    name: &str,
    args: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let Some(member) = of_object(of).and_then(|class| class.find(name)) else { return Ok(None) };
    let method = bound(member, of, eval.heap());
    eval.eval_function(method, args, &[]).map(Some)
}

/// Begins `with object:`; `None` if the value is not an object of a program's class.
///
/// # Errors
/// An exception that `__enter__` raises, or an object that is not a context manager.
pub(crate) fn enter<'v>(
    context: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let native = starlark::Error::new_native;
    let Some(own) = of_object(context) else { return Ok(None) };
    for (name, missed) in [("__enter__", ""), ("__exit__", " (missed __exit__ method)")] {
        if own.find(name).is_some() {
            continue;
        }
        if !is_whole(own) {
            return Err(native(anyhow::anyhow!(
                "the class {} has no {name} of its own, and what the classes above it do with \
                 `with` is not followed: write both __enter__ and __exit__",
                own.name
            )));
        }
        return Err(native(type_error(format!(
            "'{}' object does not support the context manager protocol{missed}",
            own.name
        ))));
    }
    let entered = method(context, "__enter__", &[], eval)?;
    let process = process(eval).map_err(native)?;
    let depth = process.contexts.len();
    if depth >= MAX_CONTEXTS {
        return Err(native(anyhow::anyhow!("too many `with` blocks are open")));
    }
    process.enter(Context::Own);
    eval.module().set(&place(depth), context);
    Ok(Some(entered.unwrap_or_else(Value::new_none)))
}

/// Ends the `with` block at this depth, with the exception that was raised in it, if any. Returns true if
/// `__exit__` suppressed the exception.
///
/// # Errors
/// An exception that `__exit__` raises.
pub(crate) fn exit<'v>(
    depth: usize,
    raised: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<bool> {
    let Some(own) = eval.module().get(&place(depth)) else { return Ok(false) };
    let heap = eval.heap();
    let none = Value::new_none();
    let told = match raised {
        None => [none; 3],
        Some(error) => {
            let traceback = heap.alloc(TypeValue("traceback".to_owned()));
            [error.get_attr_error("__class__", heap)?, error, traceback]
        }
    };
    let Some(answer) = method(own, "__exit__", &told, eval)? else { return Ok(false) };
    // The result of `__exit__` is ignored when a block ends normally.
    if raised.is_some() { truth(answer, eval) } else { Ok(false) }
}

/// The refusal of a block that goes on behind an exception raised in it.
pub(crate) fn swallowed() -> starlark::Error {
    starlark::Error::new_native(anyhow::anyhow!(
        "an __exit__ returns true for what was raised in its `with` block, and so swallows it: that \
         is not followed. Write try and except around what may raise"
    ))
}

/// An object's own answer to whether it is true.
fn own_truth<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<bool>> {
    let Some(answer) = method(value, "__bool__", &[], eval)? else {
        return Ok(length(value, eval)?.map(|length| length != 0));
    };
    let native = starlark::Error::new_native;
    match (answer.unpack_bool(), answer.get_type()) {
        (Some(yes), _) => Ok(Some(yes)),
        (None, "int" | "float" | "string" | "list" | "tuple" | "dict" | "NoneType") => {
            let class = class_of(answer);
            Err(native(type_error(format!("__bool__ should return bool, returned {class}"))))
        }
        (None, _) => Err(native(anyhow::anyhow!(
            "what this __bool__ returns is not known while the program is recorded: nothing can be \
             decided by it"
        ))),
    }
}

/// True if Python takes a value for true; an object decides by its `__bool__` or `__len__`.
///
/// # Errors
/// An exception that these methods raise.
pub(crate) fn truth<'v>(
    value: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<bool> {
    Ok(own_truth(value, eval)?.unwrap_or_else(|| value.to_bool()))
}

/// The number that an object converts to, by the first of these methods that its class has; `None` if the
/// value is not an object of a program's class.
///
/// # Errors
/// An exception that the method raises, or an object without any of the methods.
pub(crate) fn number<'v>(
    value: Value<'v>,
    methods: &[&str],
    wrong: &str,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<Value<'v>>> {
    let Some(own) = of_object(value) else { return Ok(None) };
    for name in methods {
        if let Some(found) = method(value, name, &[], eval).map_err(starlark::Error::into_anyhow)? {
            return Ok(Some(found));
        }
    }
    Err(type_error(format!("{wrong}'{}'", own.name)))
}

/// The answer of `a == b` if one side has `__eq__`; `None` otherwise. If the left `__eq__` returns
/// `NotImplemented`, the right side is asked.
///
/// # Errors
/// An exception that the methods raise.
pub(crate) fn equal<'v>(
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    equal_within(a, b, 0, eval)
}

/// True if two values are the same object or equal, as lists compare their entries.
///
/// # Errors
/// An exception that the methods raise.
pub(crate) fn same<'v>(
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<bool> {
    same_within(a, b, 0, eval)
}

fn same_within<'v>(
    a: Value<'v>,
    b: Value<'v>,
    depth: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<bool> {
    if identical(a, b) == Some(true) {
        return Ok(true);
    }
    match equal_within(a, b, depth, eval)? {
        Some(answer) => truth(answer, eval),
        None => a.equals(b),
    }
}

/// Lists in each other whose entries are asked.
const MAX_DEPTH: usize = 16;

fn equal_within<'v>(
    a: Value<'v>,
    b: Value<'v>,
    depth: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    // The interpreter's lists ask no method of their entries.
    if depth < MAX_DEPTH
        && matches!((a.get_type(), b.get_type()), ("list", "list") | ("tuple", "tuple"))
        && let (Some(own), Some(other)) = (take::items(a), take::items(b))
        && own.len() == other.len()
        && [&own, &other].into_iter().flatten().any(|of| may_hold_objects(*of))
    {
        for (a, b) in own.into_iter().zip(other) {
            if !same_within(a, b, depth + 1, eval)? {
                return Ok(Some(Value::new_bool(false)));
            }
        }
        return Ok(Some(Value::new_bool(true)));
    }
    for (own, other) in [(a, b), (b, a)] {
        let answer = method(own, "__eq__", &[other], eval)?;
        if let Some(answer) = answer.filter(|answer| answer.get_type() != "NotImplementedType") {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

fn may_hold_objects(of: Value<'_>) -> bool {
    of_object(of).is_some() || matches!(of.get_type(), "list" | "tuple")
}

/// True if two values are the same object; `None` if the first is not an object of a program's class.
pub(crate) fn identical<'v>(a: Value<'v>, b: Value<'v>) -> Option<bool> {
    let own = a.downcast_ref::<InstanceValue<'v>>()?;
    let other = b.downcast_ref::<InstanceValue<'v>>();
    Some(other.is_some_and(|other| own.is(other)))
}

/// The answer of `__contains__`; `None` if the class does not have it.
///
/// # Errors
/// An exception that the method raises.
pub(crate) fn contains<'v>(
    of: Value<'v>,
    item: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<bool>> {
    let answer = method(of, "__contains__", &[item], eval)?;
    answer.map(|answer| truth(answer, eval)).transpose()
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The value of a condition, where a class says itself whether its objects are true: of these
    /// whether they are, and all else as it is.
    fn _truth<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(own_truth(value, eval)?.map_or(value, Value::new_bool))
    }
}

/// `NotImplemented`, which a method returns that leaves the answer to the other side.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct NotImplementedValue;
starlark_simple_value!(NotImplementedValue);

impl fmt::Display for NotImplementedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotImplemented")
    }
}

#[starlark_value(type = "NotImplementedType")]
impl<'v> StarlarkValue<'v> for NotImplementedValue {}

/// Adds the functions that the dialect writes, and `NotImplemented`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    builder.set("NotImplemented", NotImplementedValue);
}

/// The length that an object of a program's class says it has.
pub(crate) fn length<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<i32>> {
    let own = of.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class);
    let Some(method) = own.and_then(|class| class.find("__len__")) else { return Ok(None) };
    let length = eval.eval_function(method, &[of], &[])?;
    let wrong = || {
        let class = class_of(length);
        let text = format!("'{class}' object cannot be interpreted as an integer");
        starlark::Error::new_native(type_error(text))
    };
    length.unpack_i32().map(Some).ok_or_else(wrong)
}
