//! The state of a `try` ([`dialect`](crate::dialect) writes its calls): whether something has been
//! raised in it, the exception, and whether a handler has taken it. An error that is no exception
//! of Python's or PyTorch's (a program that cannot be followed, or that goes on without an end) is
//! caught by nothing.

#![allow(clippy::panic, reason = "a `try` is never written out")]

use crate::classes::special_methods;
use crate::dist::arguments as take;
use crate::dist::values::Context;
use crate::process::raised::{Left, Raised, raised};
use crate::process::state::{Process, process};
use crate::python::exceptions;
use crate::python::traceback::raised_by;
use crate::python::type_error::class_of;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::cell::{Cell, RefCell};
use std::fmt;

/// The names under which a module holds the last exception raised, and the last one that a handler
/// has taken. No program can name them.
const RAISED: &str = "raised!";
const HANDLED: &str = "handled!";

/// The exception with which a process leaves that is done.
pub(crate) const LEFT: &str = "SystemExit";

/// The progress of a `try`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Allocative)]
enum State {
    Goes,
    Failed,
    Handled,
}

/// One `try`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct TryValue<'v> {
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    state: Cell<State>,
    /// The exception, as the interpreter carries it: with its line.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    carried: RefCell<Option<starlark::Error>>,
    /// The last line of Python's traceback about it.
    #[trace(unsafe_ignore)]
    told: RefCell<String>,
    error: RefCell<Option<Value<'v>>>,
    /// The exception that a handler around it handles, which it does again behind the handlers of this one.
    around: Value<'v>,
    /// The number of contexts that were open when it began.
    contexts: usize,
    held: usize,
}

impl fmt::Display for TryValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<try>")
    }
}

#[starlark_value(type = "try")]
impl<'v> StarlarkValue<'v> for TryValue<'v> {
    fn get_attr(&self, attribute: &str, _heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "goes" => Some(Value::new_bool(self.state.get() == State::Goes)),
            "error" => Some(self.error().unwrap_or_else(Value::new_none)),
            _ => None,
        }
    }
}

impl<'v> TryValue<'v> {
    fn error(&self) -> Option<Value<'v>> {
        *self.error.try_borrow().ok()?
    }

    /// The exception, to be raised again.
    fn carried(&self, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Error {
        let told = self.told.try_borrow().map_or_else(|_| String::new(), |told| told.clone());
        if let Some(error) = self.error() {
            keep(error, told.clone(), eval);
        }
        let carried = self.carried.try_borrow_mut().ok().and_then(|mut carried| carried.take());
        carried.unwrap_or_else(|| thrown(told))
    }
}

fn thrown(text: String) -> starlark::Error {
    starlark::Error::new_native(anyhow::Error::new(Raised { text, help: None }))
}

/// The process, whatever it may not go on with.
fn of_eval<'x, 'e>(eval: &'x mut Evaluator<'_, '_, 'e>) -> Option<&'x mut Process<'e>> {
    eval.extra_mut.as_mut()?.downcast_mut::<Process<'e>>()
}

/// Remembers a raised exception, because the interpreter's error carries only its text.
pub(crate) fn keep<'v>(error: Value<'v>, told: String, eval: &mut Evaluator<'v, '_, '_>) {
    eval.module().set(RAISED, error);
    if let Some(process) = of_eval(eval) {
        process.raised = Some(told);
    }
}

/// Raises an exception.
///
/// # Errors
/// Always: with it.
pub(crate) fn raise<'v>(
    error: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<NoneType> {
    let error = exceptions::of_class(error, eval)?;
    let told = exceptions::told(error, eval).map_err(starlark::Error::new_native)?;
    keep(error, told.clone(), eval);
    Err(thrown(told))
}

/// The exception: as the interpreter carries it, as the last line of Python's traceback, as a value.
struct Caught<'v> {
    error: starlark::Error,
    told: String,
    value: Value<'v>,
}

/// The exception as a program can catch it.
///
/// # Errors
/// An error that a program cannot catch.
fn catchable<'v>(
    error: starlark::Error,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Caught<'v>> {
    let heap = eval.heap();
    let last = eval.module().get(RAISED);
    // A rank that waits for an answer, or has decided by what it cannot know, goes no further.
    let Ok(process) = process(eval) else { return Err(error) };
    let Some(program) = process.program.clone().filter(|_| !process.gone) else {
        return Err(error);
    };
    let left = match error.kind() {
        starlark::ErrorKind::Native(inner) => inner.is::<Left>(),
        _ => false,
    };
    let told = match left {
        true => Some(LEFT.to_owned()),
        false => raised_by(&error, &program),
    };
    let Some(told) = told.filter(|told| !told.contains("`unknown`")) else { return Err(error) };
    let same = process.raised.as_deref() == Some(told.as_str());
    let value = last.filter(|_| same).or_else(|| exceptions::of_text(&told, heap));
    let Some(value) = value else { return Err(error) };
    Ok(Caught { error, told, value })
}

/// Leaves the `with` blocks in which an exception was raised, down to `contexts` of them. Returns the
/// exception that goes on, which an `__exit__` may have replaced.
///
/// # Errors
/// An error that a program cannot catch.
fn unwound<'v>(
    mut raised: Caught<'v>,
    contexts: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Caught<'v>> {
    while let Some(process) = of_eval(eval)
        && process.contexts.len() > contexts
    {
        // The ends of contexts are skipped after an exception, except for streams, whose predecessor is
        // restored, and the `__exit__` of the program's own objects.
        match process.leave() {
            Some(Context::Stream { before, .. }) => {
                process.dist().map_err(starlark::Error::new_native)?.set_stream(before);
            }
            Some(Context::Join { .. }) => {
                process.joins.pop();
            }
            Some(Context::Own) => {
                let depth = process.contexts.len();
                match special_methods::exit(depth, Some(raised.value), eval) {
                    Ok(false) => {}
                    Ok(true) => return Err(special_methods::swallowed()),
                    Err(error) => raised = catchable(error, eval)?,
                }
            }
            _ => {}
        }
    }
    Ok(raised)
}

/// An exception that nothing has caught leaves the open `with` blocks, in which objects of the program's may
/// still do something.
pub(crate) fn uncaught<'v>(
    error: starlark::Error,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Error {
    let own = |process: &mut Process<'_>| process.contexts.contains(&Context::Own);
    if !of_eval(eval).is_some_and(own) {
        return error;
    }
    match catchable(error, eval).and_then(|caught| unwound(caught, 0, eval)) {
        Ok(caught) => caught.error,
        Err(error) => error,
    }
}

/// Stores the exception that was raised in a `try`.
///
/// # Errors
/// An error that a program cannot catch.
fn caught<'v>(
    of: Value<'v>,
    error: starlark::Error,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<()> {
    let Some(own) = of.downcast_ref::<TryValue<'v>>() else { return Err(error) };
    let raised = catchable(error, eval)?;
    let Caught { error, told, value } = unwound(raised, own.contexts, eval)?;
    if let Some(process) = of_eval(eval) {
        process.held.truncate(own.held);
    }
    if let (Ok(mut carried), Ok(mut own_told), Ok(mut own_error)) =
        (own.carried.try_borrow_mut(), own.told.try_borrow_mut(), own.error.try_borrow_mut())
    {
        *carried = Some(error);
        *own_told = told;
        *own_error = Some(value);
    }
    // Handlers that this has gone through have ended.
    eval.module().set(HANDLED, own.around);
    own.state.set(State::Failed);
    Ok(())
}

fn tried<'v>(
    of: Value<'v>,
    part: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    match eval.eval_function(part, &[], &[]) {
        Ok(value) => Ok(Some(value)),
        Err(error) => caught(of, error, eval).map(|()| None),
    }
}

/// Checks that a value can be unpacked into the targets of an assignment. The depth of a shape is bounded by
/// the program's text.
fn fits<'v>(value: Value<'v>, shape: Value<'v>) -> starlark::Result<()> {
    let each = TupleRef::from_value(shape).map(|each| each.content());
    let wanted = match each {
        Some(each) => each.len(),
        None => shape.unpack_i32().and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
    };
    if each.is_none() && wanted == 0 {
        return Ok(());
    }
    let wrong = |text: String| Err(starlark::Error::new_native(raised(text)));
    let Some(parts) = take::items(value) else {
        return match value.get_type() {
            "int" | "float" | "bool" | "NoneType" | "function" => {
                wrong(format!("TypeError: cannot unpack non-iterable {} object", class_of(value)))
            }
            _ => Ok(()),
        };
    };
    let got = parts.len();
    if got > wanted {
        return wrong(format!("ValueError: too many values to unpack (expected {wanted})"));
    }
    if got < wanted {
        let text = format!("not enough values to unpack (expected {wanted}, got {got})");
        return wrong(format!("ValueError: {text}"));
    }
    let mut inner = each.unwrap_or_default().iter().zip(parts);
    inner.try_for_each(|(shape, part)| fits(part, *shape))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A `try` begins.
    fn _trying<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let process = process(eval)?;
        let (contexts, held) = (process.contexts.len(), process.held.len());
        let around = eval.module().get(HANDLED).unwrap_or_else(Value::new_none);
        Ok(eval.heap().alloc_complex_no_freeze(TryValue {
            state: Cell::new(State::Goes),
            carried: RefCell::default(),
            told: RefCell::default(),
            error: RefCell::default(),
            around,
            contexts,
            held,
        }))
    }

    /// A part of it.
    fn _attempt<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] part: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(tried(of, part, eval)?.unwrap_or_else(Value::new_none))
    }

    /// The pieces that a loop in it goes through.
    fn _each<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] part: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let value = tried(of, part, eval)?;
        Ok(value.unwrap_or_else(|| eval.heap().alloc(AllocList::EMPTY)))
    }

    /// `a, (b, c) = value`: a value of that shape, which is `(0, 2)`.
    fn _unpacked<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        #[starlark(require = pos)] shape: Value<'v>,
    ) -> starlark::Result<Value<'v>> {
        fits(value, shape)?;
        Ok(value)
    }

    /// `except classes:`; without classes of all.
    fn _catches<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] classes: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let Some(own) = of.downcast_ref::<TryValue<'v>>() else { return Ok(false) };
        let Some(error) = own.error().filter(|_| own.state.get() == State::Failed) else {
            return Ok(false);
        };
        let catches = classes.is_none() || {
            let classes = eval.eval_function(classes, &[], &[])?;
            exceptions::catches(classes, error)
        };
        if catches {
            own.state.set(State::Handled);
            eval.module().set(HANDLED, error);
        }
        Ok(catches)
    }

    /// Raises an exception that no handler has taken again behind the `try`.
    fn _again<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        match of.downcast_ref::<TryValue<'v>>() {
            Some(own) if own.state.get() == State::Failed => Err(own.carried(eval)),
            Some(own) => {
                eval.module().set(HANDLED, own.around);
                Ok(NoneType)
            }
            None => Ok(NoneType),
        }
    }

    /// A `return`, `break` or `continue` leaves its handler.
    fn _handled<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        if let Some(own) = of.downcast_ref::<TryValue<'v>>() {
            eval.module().set(HANDLED, own.around);
        }
        Ok(NoneType)
    }

    /// A bare `raise` in a handler.
    fn _reraise<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        match of.downcast_ref::<TryValue<'v>>() {
            Some(own) => Err(own.carried(eval)),
            None => Ok(NoneType),
        }
    }

    /// A bare `raise` elsewhere: in a function that a handler calls.
    fn _raise_again<'v>(eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        match eval.module().get(HANDLED).filter(|error| !error.is_none()) {
            Some(error) => raise(error, eval),
            None => Err(thrown("RuntimeError: No active exception to reraise".to_owned())),
        }
    }

    fn _raise<'v>(
        error: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        raise(error, eval)
    }
}

/// The exception that a handler has taken last, as the last line of its traceback.
fn handled<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<String> {
    match eval.module().get(HANDLED).filter(|error| !error.is_none()) {
        Some(error) => exceptions::told(error, eval),
        None => Ok("NoneType: None".to_owned()),
    }
}

#[starlark_module]
fn of_traceback(builder: &mut GlobalsBuilder) {
    /// The last line of the traceback; Python prints the lines of files before it.
    fn print_exc<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let told = handled(eval)?;
        process(eval)?.print(&(told + "\n"));
        Ok(NoneType)
    }

    fn format_exc<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<String> {
        Ok(handled(eval)? + "\n")
    }
}

/// Adds the functions that the dialect writes, and `traceback`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    builder.namespace("traceback", of_traceback);
}

/// The module's values for exceptions, before anything has been raised.
pub(crate) fn begin(eval: &mut Evaluator<'_, '_, '_>) {
    for name in [RAISED, HANDLED] {
        eval.module().set(name, Value::new_none());
    }
}
