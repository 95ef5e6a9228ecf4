//! `exit()`, `quit()`, `sys.exit()`, `os._exit()` and `os.kill()` of itself: the process ends where it
//! stands. Without a code or with 0 it has done what it had to; with another one, or a text, it has died
//! of it.

use super::process::{Raised, process};
use super::shown;
use super::undecided::UnknownValue;
use crate::plan::SignalKind;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value, ValueLike};
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

/// What `os.kill` sends, by Linux's numbers.
const SIGNALS: [(&str, i32); 5] =
    [("SIGINT", 2), ("SIGABRT", 6), ("SIGKILL", 9), ("SIGTERM", 15), ("SIGSTOP", 19)];

/// Adds `signal`, with the numbers that `os.kill` takes.
pub(super) fn add_signals(builder: &mut GlobalsBuilder) {
    builder.namespace("signal", |builder| {
        for (name, number) in SIGNALS {
            builder.set(name, number);
        }
    });
}

/// `os._exit` and `os.kill`.
#[starlark_module]
pub(super) fn of_os(builder: &mut GlobalsBuilder) {
    /// Of its own process: which other ones there are, a plan does not say.
    fn kill<'v>(
        pid: Value<'v>,
        sig: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        if pid.downcast_ref::<UnknownValue>().is_none() {
            anyhow::bail!("os.kill sends to the rank's own process: write os.getpid()");
        }
        let process = process(eval)?;
        match SIGNALS.iter().find(|(_, number)| *number == sig) {
            Some(("SIGSTOP", _)) => {
                process.dist()?.signal(SignalKind::Stop { for_ms: None });
                Ok(NoneType)
            }
            Some(("SIGKILL", _)) => {
                process.dist()?.signal(SignalKind::Kill);
                Err(anyhow::Error::new(Left))
            }
            Some((name, _)) => {
                let text = format!("killed by signal {sig} ({name})");
                Err(anyhow::Error::new(Raised { text, help: None }))
            }
            None => {
                let known: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
                anyhow::bail!("os.kill knows signal.{}", known.join(", signal."))
            }
        }
    }

    fn _exit<'v>(code: Value<'v>, heap: Heap<'v>) -> anyhow::Result<NoneType> {
        Err(leave(code, heap))
    }
}
