//! Other modules that scripts use: files that a program does not have, facts that only the machine knows,
//! progress bars.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::process::state::{Process, process};
use crate::process::undecided::{Number, Unknown, UnknownValue};
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Value};
use starlark::{starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
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
    builder.namespace("tqdm", tqdm);
    // `from tqdm import tqdm` gives the name to what is in it.
    builder.namespace("_tqdm", tqdm);
}
