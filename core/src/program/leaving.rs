//! `exit()`, `quit()`, `sys.exit()` and `os._exit()`: the process ends where it stands. Without a code
//! or with 0 it has done what it had to; with another one, or a text, it has died of it.

use super::process::Raised;
use super::shown;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};
use std::fmt;

/// A process that has done what it had to.
#[derive(Debug)]
pub(super) struct Left;

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process has ended")
    }
}

impl std::error::Error for Left {}

fn leave<'v>(code: Value<'v>, heap: Heap<'v>) -> anyhow::Error {
    let done = code.is_none() || code.unpack_i32() == Some(0) || code.unpack_bool() == Some(false);
    if done {
        return anyhow::Error::new(Left);
    }
    let text = format!("SystemExit: {}", shown::text(code, heap));
    anyhow::Error::new(Raised { text, help: None })
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn exit<'v>(
        #[starlark(default = NoneType)] code: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<NoneType> {
        Err(leave(code, heap))
    }

    fn quit<'v>(
        #[starlark(default = NoneType)] code: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<NoneType> {
        Err(leave(code, heap))
    }
}

/// Adds `exit` and `quit`.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}

/// `sys.exit`.
#[starlark_module]
pub(super) fn of_sys(builder: &mut GlobalsBuilder) {
    fn exit<'v>(
        #[starlark(default = NoneType)] code: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<NoneType> {
        Err(leave(code, heap))
    }
}

/// `os._exit`.
#[starlark_module]
pub(super) fn of_os(builder: &mut GlobalsBuilder) {
    fn _exit<'v>(code: Value<'v>, heap: Heap<'v>) -> anyhow::Result<NoneType> {
        Err(leave(code, heap))
    }
}
