//! `exit()`, `quit()`, `sys.exit()`, `os._exit()`, `os.abort()` and `os.kill()` of itself: the process ends
//! at once. Without a code or with 0 it has ended normally; with another code, or a text, it has died of it.

use crate::process::raised::{Left, Raised};
use crate::process::state::process;
use crate::process::undecided::{Unknown, UnknownValue};
use crate::python::{exceptions, try_statement, value_text};
use lockstep_core::plan::{Deadly, SignalKind};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Value, ValueLike};

/// `SystemExit`, which a program may catch. A process that is done leaves without it.
fn leave<'v>(code: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
    let error = exceptions::of_args("SystemExit", vec![code], eval);
    let error = error.map_err(starlark::Error::new_native)?;
    if is_done(code) {
        try_statement::keep(error, try_statement::LEFT.to_owned(), eval);
        return Err(starlark::Error::new_native(anyhow::Error::new(Left)));
    }
    try_statement::raise(error, eval)
}

fn is_done(code: Value<'_>) -> bool {
    code.is_none() || code.unpack_i32() == Some(0) || code.unpack_bool() == Some(false)
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn exit<'v>(
        #[starlark(default = NoneType)] code: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        leave(code, eval)
    }

    fn quit<'v>(
        #[starlark(default = NoneType)] code: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        leave(code, eval)
    }
}

/// Adds `exit` and `quit`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}

/// `sys.exit`.
#[starlark_module]
pub(crate) fn of_sys(builder: &mut GlobalsBuilder) {
    fn exit<'v>(
        #[starlark(default = NoneType)] code: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        leave(code, eval)
    }
}

/// SIGSTOP, by Linux's number.
const STOP: i32 = 19;

/// Adds `signal`, with the numbers that `os.kill` takes.
pub(crate) fn add_signals(builder: &mut GlobalsBuilder) {
    builder.namespace("signal", |builder| {
        for deadly in Deadly::ALL {
            builder.set(deadly.name(), deadly.number());
        }
        builder.set("SIGSTOP", STOP);
        of_signal(builder);
    });
}

/// Sends the rank's own process a signal.
fn raise(number: i32, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
    let process = process(eval)?;
    if number == STOP {
        process.dist()?.signal(SignalKind::Stop { for_ms: None });
        return Ok(NoneType);
    }
    let Some(deadly) = Deadly::ALL.iter().find(|deadly| deadly.number() == number) else {
        let known: Vec<&str> = Deadly::ALL.iter().map(|deadly| deadly.name()).collect();
        anyhow::bail!("a program can be sent signal.{}, signal.SIGSTOP", known.join(", signal."))
    };
    process.gone = true;
    process.dist()?.signal(match deadly {
        Deadly::Kill => SignalKind::Kill,
        other => SignalKind::End(*other),
    });
    Err(anyhow::Error::new(Left))
}

/// `signal.raise_signal`.
#[starlark_module]
fn of_signal(builder: &mut GlobalsBuilder) {
    fn raise_signal(signalnum: i32, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        raise(signalnum, eval)
    }
}

/// `os._exit`, `os.abort` and `os.kill`.
#[starlark_module]
pub(crate) fn of_os(builder: &mut GlobalsBuilder) {
    /// Signals the rank's own process only; a plan does not say what other processes exist.
    fn kill<'v>(
        pid: Value<'v>,
        sig: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let own = |pid: &UnknownValue| pid.what() == Unknown::Pid;
        if !pid.downcast_ref::<UnknownValue>().is_some_and(own) {
            anyhow::bail!("os.kill sends to the rank's own process: write os.getpid()");
        }
        raise(sig, eval)
    }

    fn abort(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<NoneType> {
        raise(Deadly::Abort.number(), eval)
    }

    /// At once: nothing can catch it.
    fn _exit<'v>(code: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let heap = eval.heap();
        process(eval)?.gone = true;
        if is_done(code) {
            return Err(anyhow::Error::new(Left));
        }
        let text = format!("os._exit({})", value_text::text(code, heap));
        Err(anyhow::Error::new(Raised { text, help: None }))
    }
}
