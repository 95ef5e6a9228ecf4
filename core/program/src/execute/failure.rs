//! The early end of a process, in lines of the program as it was written.

use crate::dialect;
use crate::dialect::rewritten::Rewritten;
use crate::process::state::Process;
use crate::process::undecided::Unknown;
use crate::python::traceback::said;
use lockstep_scenarios::program::ProgramError;
use starlark::errors::Frame;

/// The early end of an execution.
pub(crate) struct Failure {
    /// True if the rank raised an exception; false if the program could not be interpreted.
    pub(crate) raised: bool,
    /// True if the execution ran longer than allowed.
    pub(crate) endless: bool,
    /// True if the process ended early because it was done, which is not a failure.
    pub(crate) left: bool,
    pub(crate) error: ProgramError,
}

/// True if a frame is a function of the program's, and not one that a `try` was rewritten to.
fn is_own((name, _): &(String, u32)) -> bool {
    !["_attempt", "_each", "_catches", "_part"].contains(&name.as_str())
}

/// The refusal of a name that a module or a value of PyTorch's has, and a program has not: the interpreter calls it a
/// missing attribute, which it is not in Python.
fn missing_name(message: &str) -> Option<String> {
    let (kind, rest) =
        message.strip_prefix("Object of type `")?.split_once("` has no attribute `")?;
    let name = rest.split('`').next()?;
    match kind {
        "namespace" => Some(format!("`{name}` of this module is not followed here")),
        "Tensor"
        | "Layer"
        | "Container"
        | "Module"
        | "DistributedDataParallel"
        | "ProcessGroup"
        | "Output" => Some(format!("`{name}` of a {kind} is not followed here")),
        _ => None,
    }
}

/// The interpreter's error, in lines of the original.
pub(crate) fn failure(error: &starlark::Error, rewritten: &Rewritten) -> Failure {
    let line_of = |line: usize| rewritten.origin.get(line).map_or(0, |line| line + 1);
    let place = error.span().map(|span| span.resolve_span().begin);
    let (mut kind, raised) = said(error);
    let mut failed = matches!(error.kind(), starlark::ErrorKind::Fail(_));
    if raised.is_none()
        && let Some(exception) =
            crate::dist::signatures::exception(&kind, place.map(|at| at.line), rewritten)
    {
        (kind, failed) = (exception, true);
    }
    let frame = |frame: &Frame| {
        let line = frame.location.as_ref().map(|span| span.resolve_span().begin.line);
        Some((frame.name.clone(), line_of(line?)))
    };
    let mut told = ProgramError {
        line: place.map_or(0, |place| line_of(place.line)),
        column: place.map_or(0, |place| rewritten.column(place.line, place.column) as u32 + 1),
        message: kind,
        help: raised.and_then(|raised| raised.help.clone()),
        stack: error.call_stack().frames.iter().filter_map(frame).filter(is_own).collect(),
    };
    if raised.is_none() && !failed && told.help.is_none() {
        told.help = crate::execute::hints::hint(&told.message).map(str::to_owned);
    }
    if !failed && let Some(missing) = missing_name(&told.message) {
        told.message = missing;
    }
    let mut endless = told.message.contains("ticks has been exceeded");
    if told.message.contains("Heap memory limit") {
        // The interpreter looks at it now and then, and does not say where it was.
        endless = true;
        told.message =
            "the lists and dicts of the program take more memory than they may, here or a \
                        little before"
                .to_owned();
        told.help = Some("Fewer or smaller lists: tensors hold no values here.".to_owned());
    }
    let left = match error.kind() {
        starlark::ErrorKind::Native(inner) => inner.is::<crate::process::raised::Left>(),
        _ => false,
    };
    Failure { raised: raised.is_some() || failed, endless, left, error: told }
}

/// Rewords a failure that comes of an answer that is not known.
pub(crate) fn reword_unknown(failure: &mut Failure, process: &Process<'_>) {
    if let Some((what, line)) = process.asked
        && failure.error.message.contains("`unknown`")
    {
        // The last question need not be the one that the error is about.
        let what = match what {
            Unknown::Object { class, .. } => Unknown::Object { class, from: None },
            what => what,
        };
        failure.error.message = format!("{what} (asked in line {line})");
    }
    // The expression with an unknown name may begin before the name.
    let ProgramError { message, line, column, .. } = &mut failure.error;
    let name = message.strip_prefix("Variable `").and_then(|rest| rest.split_once("` not found"));
    let own = (*line as usize).checked_sub(1).and_then(|line| process.lines().get(line));
    if let (Some((name, _)), Some(own)) = (name, own)
        && let Some(at) = dialect::place(own, name)
    {
        *column = own[..at].chars().count() as u32 + 1;
    }
}
