//! Python's `logging`: what is logged is printed, at whatever level, without its format.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::callable::{self, Callable};
use super::objects_shown;
use super::process::process;
use super::python::percent;
use super::shown;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Value};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// What logs a message, of the module as of a logger.
const LOGS: [&str; 6] = ["debug", "info", "warning", "error", "critical", "exception"];

/// The levels that a program names.
const LEVELS: [(&str, i32); 5] =
    [("DEBUG", 10), ("INFO", 20), ("WARNING", 30), ("ERROR", 40), ("CRITICAL", 50)];

/// A message as logging makes it: `"done %d", rank`.
fn logged<'v>(
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let mut given = args.positions(heap)?;
    let missing = || anyhow::anyhow!("{name}() missing 1 required positional argument: 'msg'");
    let message = given.next().ok_or_else(|| starlark::Error::new_native(missing()))?;
    let values: Vec<Value<'v>> = given.collect();
    let message = objects_shown::shown(message, eval)?;
    let text = shown::text(message, heap);
    let text = match values.is_empty() {
        true => text,
        false => percent(&text, heap.alloc(AllocTuple(values)), heap)?,
    };
    process(eval)?.print(&(text + "\n"));
    Ok(Value::new_none())
}

/// A logger.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct LoggerValue;
starlark_simple_value!(LoggerValue);

impl fmt::Display for LoggerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<Logger>")
    }
}

methods_static!(LOGGER_METHODS = logger_methods);

#[starlark_value(type = "Logger")]
impl<'v> StarlarkValue<'v> for LoggerValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let name = LOGS.into_iter().find(|name| *name == attribute)?;
        Some(heap.alloc(Callable::new(name, logged)))
    }

    fn get_methods() -> Option<&'static Methods> {
        Some(LOGGER_METHODS.methods())
    }
}

#[starlark_module]
fn logger_methods(builder: &mut MethodsBuilder) {
    fn setLevel<'v>(this: Value<'v>, to: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = (this, to);
        Ok(NoneType)
    }

    fn addHandler<'v>(this: Value<'v>, to: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = (this, to);
        Ok(NoneType)
    }
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn basicConfig<'v>(
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        let _ = named;
        Ok(NoneType)
    }

    fn getLogger<'v>(
        #[starlark(default = NoneType)] name: Value<'v>,
    ) -> anyhow::Result<LoggerValue> {
        let _ = name;
        Ok(LoggerValue)
    }
}

/// Adds it.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("logging", |builder| {
        functions(builder);
        callable::add(builder, &LOGS, logged);
        for (name, level) in LEVELS {
            builder.set(name, level);
        }
    });
}
