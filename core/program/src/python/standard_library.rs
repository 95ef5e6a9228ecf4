//! Other modules that scripts use: files that a program does not have, arguments of a command line
//! that is not there, progress bars.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::objects;
use crate::process::state::{Process, process};
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::python::type_error::class_of;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::collections::SmallMap;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{
    Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Trace, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::cell::RefCell;
use std::fmt;

/// The remark where a program asks for a file.
pub(crate) const NO_FILES: &str = "a program has no files here, so that none is there: what it does where \
    there is one is left out";

impl Process<'_> {
    /// It asks for a file in the line that is executed.
    fn asks_for_files(&mut self) {
        self.assumes(NO_FILES);
    }

    /// Notes an assumption made in the line that is executed.
    pub(crate) fn assumes(&mut self, what: &'static str) {
        let assumed = (self.line, what);
        if self.is_rank() && !self.assumed.contains(&assumed) && self.assumed.len() < 100 {
            self.assumed.push(assumed);
        }
    }
}

/// `os`, as far as it is about files and processes.
#[starlark_module]
fn os(builder: &mut GlobalsBuilder) {
    fn makedirs<'v>(
        name: Value<'v>,
        #[starlark(default = NoneType)] mode: Value<'v>,
        #[starlark(default = false)] exist_ok: bool,
    ) -> anyhow::Result<NoneType> {
        let _ = (name, mode, exist_ok);
        Ok(NoneType)
    }

    fn mkdir<'v>(path: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = path;
        Ok(NoneType)
    }

    fn remove<'v>(path: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = path;
        Ok(NoneType)
    }

    fn unlink<'v>(path: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = path;
        Ok(NoneType)
    }

    fn getpid(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Pid))
    }

    fn getppid(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Outside(Number::Whole)))
    }

    fn getuid(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Outside(Number::Whole)))
    }

    fn getlogin(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Text))
    }

    /// The machine's system, name, release, version and kind.
    fn uname<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let part = process(eval)?.unknown(Unknown::Text);
        let heap = eval.heap();
        let parts: Vec<Value<'v>> = (0..5).map(|_| heap.alloc(part.clone())).collect();
        Ok(heap.alloc(AllocTuple(parts)))
    }

    fn cpu_count(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<UnknownValue> {
        Ok(process(eval)?.unknown(Unknown::Outside(Number::Whole)))
    }
}

#[starlark_module]
fn path(builder: &mut GlobalsBuilder) {
    fn join<'v>(#[starlark(args)] parts: UnpackTuple<&'v str>) -> anyhow::Result<String> {
        let joined = parts.items.into_iter().fold(String::new(), |path, part| match () {
            () if part.starts_with('/') || path.is_empty() => part.to_owned(),
            () if path.ends_with('/') => path + part,
            () => format!("{path}/{part}"),
        });
        Ok(joined)
    }

    fn basename(p: &str) -> anyhow::Result<String> {
        Ok(p.rsplit('/').next().unwrap_or(p).to_owned())
    }

    fn dirname(p: &str) -> anyhow::Result<String> {
        Ok(p.rsplit_once('/').map_or(String::new(), |(front, _)| front.to_owned()))
    }

    fn abspath<'v>(path: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(path)
    }

    fn expanduser<'v>(path: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(path)
    }

    fn exists<'v>(path: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<bool> {
        let _ = path;
        process(eval)?.asks_for_files();
        Ok(false)
    }

    fn isfile<'v>(path: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<bool> {
        let _ = path;
        process(eval)?.asks_for_files();
        Ok(false)
    }

    fn isdir<'v>(path: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<bool> {
        let _ = path;
        process(eval)?.asks_for_files();
        Ok(false)
    }
}

#[starlark_module]
fn tempfile(builder: &mut GlobalsBuilder) {
    fn gettempdir() -> anyhow::Result<&'static str> {
        Ok("/tmp")
    }
}

/// Adds to `os`.
pub(crate) fn of_os(builder: &mut GlobalsBuilder) {
    os(builder);
    builder.namespace("path", path);
}

/// A parser of arguments, of which there are none.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct ParserValue<'v> {
    /// The default of each option; nothing for one that must be given.
    options: RefCell<SmallMap<String, Option<Value<'v>>>>,
}

impl fmt::Display for ParserValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArgumentParser(…)")
    }
}

methods_static!(PARSER_METHODS = parser_methods);

#[starlark_value(type = "ArgumentParser")]
impl<'v> StarlarkValue<'v> for ParserValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        Some(PARSER_METHODS.methods())
    }
}

fn parser<'v>(this: Value<'v>) -> anyhow::Result<&'v ParserValue<'v>> {
    let own = this.downcast_ref::<ParserValue<'v>>();
    own.ok_or_else(|| anyhow::anyhow!("{} is no parser", class_of(this)))
}

/// The arguments of a program that is started without any.
fn parsed<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let parser = parser(this)?;
    let mut all = SmallMap::new();
    let Ok(options) = parser.options.try_borrow() else { return Ok(Value::new_none()) };
    for (name, value) in options.iter() {
        let Some(value) = value else {
            anyhow::bail!(
                "there is no command line here, and {name} has no default: give it one \
                 (default = …), or write the value as a variable"
            );
        };
        all.insert(name.clone(), *value);
    }
    Ok(objects::object("Namespace", all, heap))
}

/// The value of an argument that `torch.distributed.launch` passes to every rank: `--local_rank`. Its default would
/// make each rank take itself for the first of its machine.
fn passed_by_launcher(
    name: &str,
    optional: bool,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<Option<String>> {
    if name != "local_rank" || !optional {
        return Ok(None);
    }
    let process = process(eval)?;
    match process.is_rank() {
        true => Ok(process.dist()?.environ("LOCAL_RANK")),
        false => Ok(None),
    }
}

#[starlark_module]
fn parser_methods(builder: &mut MethodsBuilder) {
    fn add_argument<'v>(
        this: Value<'v>,
        #[starlark(args)] names: UnpackTuple<&'v str>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let get = |name: &str| named.entries.iter().find(|(own, _)| *own == name).map(|(_, v)| *v);
        let long = names.items.iter().find(|name| name.starts_with("--"));
        let Some(first) = long.or(names.items.first()) else { return Ok(NoneType) };
        let own = first.trim_start_matches('-').replace('-', "_");
        let name = get("dest").and_then(|dest| dest.unpack_str()).map_or(own, str::to_owned);
        let optional = first.starts_with('-');
        let required = get("required").is_some_and(Value::to_bool);
        let action = get("action").and_then(|action| action.unpack_str()).unwrap_or_default();
        let none = match action {
            "store_true" => Some(Value::new_bool(false)),
            "store_false" => Some(Value::new_bool(true)),
            _ if optional && !required => Some(Value::new_none()),
            _ => None,
        };
        let few = get("nargs").and_then(|nargs| nargs.unpack_str()).is_some_and(|n| n != "+");
        let none = if few && none.is_none() { Some(Value::new_none()) } else { none };
        let mut value = match passed_by_launcher(&name, optional, eval)? {
            Some(passed) => Some(eval.heap().alloc(passed)),
            None => get("default").or(none),
        };
        // A text, given or as the default, goes through the argument's type.
        if let (Some(text), Some(of_type)) =
            (value.filter(|it| it.unpack_str().is_some()), get("type"))
        {
            value = Some(eval.eval_function(of_type, &[text], &[])?);
        }
        if let Ok(mut options) = parser(this)?.options.try_borrow_mut() {
            options.insert(name, value);
        }
        Ok(NoneType)
    }

    fn add_argument_group<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        Ok(this)
    }

    fn parse_args<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] args: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        parsed(this, heap)
    }

    fn parse_known_args<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let none: Vec<Value<'v>> = Vec::new();
        Ok(heap.alloc(AllocTuple([parsed(this, heap)?, heap.alloc(none)])))
    }
}

#[starlark_module]
fn argparse(builder: &mut GlobalsBuilder) {
    fn ArgumentParser<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (args, named);
        let options = RefCell::new(SmallMap::new());
        Ok(heap.alloc_complex_no_freeze(ParserValue { options }))
    }
}

#[starlark_module]
fn tqdm(builder: &mut GlobalsBuilder) {
    /// The iterable that it wraps.
    fn tqdm<'v>(
        iterable: Value<'v>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = named;
        Ok(iterable)
    }
}

/// A setting that may be set, and changes nothing here: `torch.backends.cudnn.benchmark`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct SettingsValue;
starlark_simple_value!(SettingsValue);

impl fmt::Display for SettingsValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<settings>")
    }
}

#[starlark_value(type = "settings")]
impl<'v> StarlarkValue<'v> for SettingsValue {
    fn get_attr(&self, _attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        Some(heap.alloc(SettingsValue))
    }

    fn set_attr(&self, _attribute: &str, _value: Value<'v>) -> starlark::Result<()> {
        Ok(())
    }
}

/// Adds them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("tempfile", tempfile);
    builder.namespace("argparse", argparse);
    builder.namespace("tqdm", tqdm);
    // `from tqdm import tqdm` gives the name to what is in it.
    builder.namespace("_tqdm", tqdm);
}
