//! Python's `logging`: a message is printed if its level allows it, without its format.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::classes::object_text;
use crate::process::state::process;
use crate::python::format::percent;
use crate::python::loggers::WARNING;
use crate::python::value_text;
use crate::torch::callable;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// The functions that log a message, of the module as of a logger.
const LOGS: [&str; 8] =
    ["debug", "info", "warning", "warn", "error", "critical", "exception", "log"];

/// The levels that a program names.
const LEVELS: [(&str, i32); 8] = [
    ("DEBUG", 10),
    ("INFO", 20),
    ("WARNING", 30),
    ("ERROR", 40),
    ("CRITICAL", 50),
    ("WARN", 30),
    ("FATAL", 50),
    ("NOTSET", 0),
];

/// The level of a name, or the level itself.
fn level_of(value: Value<'_>) -> Option<i32> {
    match value.unpack_str() {
        Some(name) => LEVELS.iter().find(|(own, _)| *own == name).map(|(_, level)| *level),
        None => value.unpack_i32(),
    }
}

/// A message as logging makes it: `"done %d", rank`.
fn logged<'v>(
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    // The module's own functions give the root a handler where it has none.
    let process = process(eval).map_err(starlark::Error::new_native)?;
    process.loggers.handled.insert(String::new());
    log("", name, args, eval)
}

fn log<'v>(
    logger: &str,
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let heap = eval.heap();
    let mut given = args.positions(heap)?;
    // `log(level, message)` is told its level.
    let told = if name == "log" { given.next().and_then(level_of) } else { None };
    let missing = || anyhow::anyhow!("{name}() missing 1 required positional argument: 'msg'");
    let message = given.next().ok_or_else(|| starlark::Error::new_native(missing()))?;
    let values: Vec<Value<'v>> = given.collect();
    let upper = if name == "exception" { "ERROR".to_owned() } else { name.to_uppercase() };
    let level = LEVELS.iter().find(|(own, _)| *own == upper).map_or(WARNING, |(_, level)| *level);
    let level = told.unwrap_or(level);
    if !process(eval)?.loggers.tells(logger, level) {
        return Ok(Value::new_none());
    }
    let message = object_text::shown(message, eval)?;
    let text = value_text::text(message, heap);
    let text = match values.is_empty() {
        true => text,
        false => percent(&text, heap.alloc(AllocTuple(values)), heap)?,
    };
    process(eval)?.print(&(text + "\n"));
    Ok(Value::new_none())
}

/// A logger.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct LoggerValue(String);
starlark_simple_value!(LoggerValue);

/// One of its methods that log.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct LogsValue {
    logger: String,
    name: &'static str,
}
starlark_simple_value!(LogsValue);

/// `logging.StreamHandler()`, and its formatter.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct HandlerValue;
starlark_simple_value!(HandlerValue);

impl fmt::Display for LoggerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<Logger>")
    }
}

impl fmt::Display for LogsValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<bound method>")
    }
}

impl fmt::Display for HandlerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<StreamHandler>")
    }
}

methods_static!(LOGGER_METHODS = logger_methods);

methods_static!(HANDLER_METHODS = handler_methods);

#[starlark_value(type = "Logger")]
impl<'v> StarlarkValue<'v> for LoggerValue {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        if attribute == "name" {
            return Some(heap.alloc(if self.0.is_empty() { "root" } else { &self.0 }));
        }
        let name = LOGS.into_iter().find(|name| *name == attribute)?;
        Some(heap.alloc(LogsValue { logger: self.0.clone(), name }))
    }

    /// `logger.propagate = False`.
    fn set_attr(&self, _attribute: &str, _value: Value<'v>) -> starlark::Result<()> {
        Ok(())
    }

    fn get_methods() -> Option<&'static Methods> {
        Some(LOGGER_METHODS.methods())
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for LogsValue {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        log(&self.logger, self.name, args, eval)
    }
}

#[starlark_value(type = "Handler")]
impl<'v> StarlarkValue<'v> for HandlerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(HANDLER_METHODS.methods())
    }
}

fn logger_of<'v>(this: Value<'v>) -> anyhow::Result<&'v LoggerValue> {
    this.downcast_ref::<LoggerValue>().ok_or_else(|| anyhow::anyhow!("this is no logger"))
}

#[starlark_module]
fn logger_methods(builder: &mut MethodsBuilder) {
    fn setLevel<'v>(
        this: Value<'v>,
        level: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let name = logger_of(this)?.0.clone();
        if let Some(level) = level_of(level) {
            process(eval)?.loggers.levels.insert(name, level);
        }
        Ok(NoneType)
    }

    fn addHandler<'v>(
        this: Value<'v>,
        hdlr: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = hdlr;
        let name = logger_of(this)?.0.clone();
        process(eval)?.loggers.handled.insert(name);
        Ok(NoneType)
    }

    fn isEnabledFor<'v>(
        this: Value<'v>,
        level: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<bool> {
        Ok(process(eval)?.loggers.tells(&logger_of(this)?.0, level))
    }
}

#[starlark_module]
fn handler_methods(builder: &mut MethodsBuilder) {
    fn setLevel<'v>(this: Value<'v>, level: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = (this, level);
        Ok(NoneType)
    }

    fn setFormatter<'v>(this: Value<'v>, fmt: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = (this, fmt);
        Ok(NoneType)
    }
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn basicConfig<'v>(
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let told = |wanted: &str| named.entries.iter().find(|(name, _)| *name == wanted);
        let level = told("level").and_then(|(_, level)| level_of(*level));
        let force = told("force").is_some_and(|(_, force)| force.to_bool());
        let loggers = &mut process(eval)?.loggers;
        // If there is a handler already, it does nothing.
        if loggers.handled.insert(String::new()) || force {
            loggers.levels.extend(level.map(|level| (String::new(), level)));
        }
        Ok(NoneType)
    }

    fn getLogger<'v>(
        #[starlark(default = NoneType)] name: Value<'v>,
    ) -> anyhow::Result<LoggerValue> {
        let name = name.unpack_str().filter(|name| *name != "root").unwrap_or_default();
        Ok(LoggerValue(name.to_owned()))
    }

    fn StreamHandler<'v>(
        #[starlark(default = NoneType)] stream: Value<'v>,
    ) -> anyhow::Result<HandlerValue> {
        let _ = stream;
        Ok(HandlerValue)
    }

    fn Formatter<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: Value<'v>,
    ) -> anyhow::Result<HandlerValue> {
        let _ = (args, named);
        Ok(HandlerValue)
    }
}

/// Adds it.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("logging", |builder| {
        functions(builder);
        callable::add(builder, &LOGS, logged);
        for (name, level) in LEVELS {
            builder.set(name, level);
        }
    });
}
