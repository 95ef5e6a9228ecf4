//! Answers that only a run gives: whether a call has completed, or which rank a receive from any source got
//! its tensor from. A program may ask and go on; if it would decide by the answer, it is refused, because
//! either branch would be made up.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_core::rank::GlobalRank;
use starlark::starlark_simple_value;
use starlark::values::{NoSerialize, ProvidesStaticType, StarlarkPagablePanic, Value, ValueLike};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// The end of every answer that is printed, by which it is known in a text that it was put into.
pub(crate) const SHOWN: &str = "known when it runs>";

/// The reason that nothing can be decided by a text.
pub(crate) const IN_TEXT: &str = "there is something in this text that is known only when the program \
     runs (whom a receive from any source gets its tensor from, whether a work has completed): it can \
     be printed, and nothing can be decided by it. Name the source, or wait() first";

/// The reason that nothing can be decided by a tensor.
pub(crate) const VALUES: &str = "a tensor's values are not known while the program is recorded: \
     nothing can be decided by them. Decide by what every rank knows (its rank, the step), or by an \
     object that is sent (dist.broadcast_object_list, dist.all_gather_object)";

/// The reason that nothing is decided by an object there.
pub(crate) const OBJECT: &str = "an object whose class has __bool__ or __len__ is taken for true or false \
     where its method is not called (an operand of `and` or `or` whose value is used, something behind \
     a call): give it a name and write bool(name), or len(name) > 0";

thread_local! {
    /// True if the program on this thread has branched on a tensor.
    static BY_VALUES: Cell<bool> = const { Cell::new(false) };
    /// True if the program has branched on an object whose `__bool__` or `__len__` was not called.
    static BY_OBJECT: Cell<bool> = const { Cell::new(false) };
}

/// Another program begins on this thread.
pub(crate) fn begin() {
    BY_VALUES.set(false);
    BY_OBJECT.set(false);
}

/// Notes that a tensor was taken for true or false, where no error can be raised.
pub(crate) fn by_values() {
    BY_VALUES.set(true);
}

/// Notes that an object whose class defines `__bool__` or `__len__` was taken for true or false.
pub(crate) fn by_object() {
    BY_OBJECT.set(true);
}

/// True if something was decided by an object whose `__bool__` or `__len__` was not called.
pub(crate) fn decided_by_object() -> bool {
    BY_OBJECT.get()
}

/// True if something was decided by a tensor.
pub(crate) fn decided_by_values() -> bool {
    BY_VALUES.get()
}

/// Drops the note that something was decided by a tensor; returns whether there was one.
pub(crate) fn forget_values() -> bool {
    BY_VALUES.replace(false)
}

/// The error of a decision by something that only a run knows.
#[derive(Debug)]
pub(crate) struct Undecided(pub(crate) String);

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Undecided {}

/// The error of such a decision, for this reason.
pub(crate) fn undecided(why: impl Into<String>) -> starlark::Error {
    starlark::Error::new_native(anyhow::Error::new(Undecided(why.into())))
}

/// True if an error says that something was decided by a value that only a run knows.
pub(crate) fn is_undecided(error: &starlark::Error) -> bool {
    use starlark::ErrorKind::{Fail, Function, Native, Other, Value};
    match error.kind() {
        Fail(why) | Function(why) | Native(why) | Other(why) | Value(why) => {
            why.downcast_ref::<Undecided>().is_some()
        }
        _ => false,
    }
}

/// The Python type of a number whose value is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Bool,
    Whole,
    Real,
}

impl Number {
    /// The kind of number that a tensor of that type holds.
    pub(crate) fn of(dtype: Dtype) -> Number {
        match dtype {
            Dtype::Bool => Number::Bool,
            dtype if dtype.is_float() || dtype.is_complex() => Number::Real,
            _ => Number::Whole,
        }
    }

    /// The type of a tensor that is made of it.
    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Number::Bool => Dtype::Bool,
            Number::Whole => Dtype::Int64,
            Number::Real => Dtype::Float32,
        }
    }

    /// The kind of number in a sum or product with another value.
    pub(crate) fn with(self, other: Value<'_>) -> Number {
        let other = match other.downcast_ref::<UnknownValue>() {
            Some(unknown) => unknown.number(),
            None if other.get_type() == "float" => Some(Number::Real),
            None => Some(Number::Whole),
        };
        match (self, other) {
            (Number::Real, _) | (_, None | Some(Number::Real)) => Number::Real,
            _ => Number::Whole,
        }
    }
}

/// Something that is not known while a program is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The answer of a work before it was waited for.
    Work {
        /// `is_completed()`.
        question: &'static str,
    },
    /// The sender of a receive from any source.
    Sender,
    /// The value of a tensor, or a value computed from one.
    Value(Number),
    /// The shape of a model's output.
    Shape,
    /// A name that is assigned under a condition that only a run decides.
    Assigned {
        /// The line of that condition.
        line: u32,
    },
    /// A value that only the machine knows: the clock, another process's number.
    Outside(Number),
    /// A text that only the machine knows: its name, the date.
    Text,
    /// The number of the process itself, as `os.getpid()` gives it.
    Pid,
    /// A part of an object from another rank that is no plain data.
    Object {
        /// Its type.
        class: &'static str,
        /// The sender, where that is sure.
        from: Option<GlobalRank>,
    },
    /// An object from any source.
    AnyObject,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Work { question } => write!(
                f,
                "{question} before wait() depends on how long the call takes, which is not known \
                 while the program is recorded: nothing can be decided by it. After wait() it is \
                 True; what it answers before stands in the trace"
            ),
            Unknown::Sender => f.write_str(
                "whom a receive from any source gets its tensor from is decided when the program \
                 runs: nothing can be decided by it, and nothing sent there. Name the source: \
                 dist.recv(tensor, src)",
            ),
            Unknown::Shape => f.write_str(
                "the shape of what this model returns is not known here, since not every operation's \
                 shape is followed: give it, as in out = out.reshape(32, 10), or take its mean() or \
                 sum() or a loss of it, which are one element",
            ),
            Unknown::Assigned { line } => write!(
                f,
                "this has been assigned in a block whose condition is decided when the program runs (line \
                 {line}): it can be printed, and nothing can be decided by it"
            ),
            Unknown::Outside(_) | Unknown::Text | Unknown::Pid => f.write_str(
                "this is what only a run tells (the clock, the machine, a process's number, how long something \
                 takes): it can be shown, and nothing can be decided by it. Decide by the step",
            ),
            Unknown::Value(_) => f.write_str(
                "a tensor's values are not known while the program is recorded where something was \
                 received into it, or random numbers, a model or more than sums and products are in \
                 it: nothing can be decided by them. Decide by the rank or the step",
            ),
            Unknown::Object { class, from } => write!(
                f,
                "this is the {class} in an object that {} has sent, of which nothing is \
                 known here: an object is known only if it is plain data (None, bool, int, float, \
                 str, bytes, lists, tuples, sets and dicts of them), and nothing can be read of \
                 anything else, or decided by it. Send what decides as plain data \
                 (list(tensor.shape), a number of steps), and a tensor with dist.broadcast or \
                 dist.send",
                from.map_or_else(|| "another rank".to_owned(), |rank| format!("rank {rank}"))
            ),
            Unknown::AnyObject => f.write_str(
                "an object that a receive from any source brings is decided when the program runs: \
                 nothing can be decided by it. Name the source: dist.recv_object_list(objects, src)",
            ),
        }
    }
}

/// Says if a program has decided by an unknown answer; shared by the answers and their process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decided(Arc<AtomicBool>, Arc<Mutex<Option<String>>>);

impl Decided {
    /// True if the program has branched on any answer that is not known yet.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Notes that something was decided by an answer that is not known for this reason.
    pub(crate) fn by(&self, why: &str) {
        if let Ok(mut first) = self.1.lock() {
            first.get_or_insert_with(|| why.to_owned());
        }
        self.0.store(true, Relaxed);
    }

    /// The first reason.
    pub(crate) fn why(&self) -> Option<String> {
        self.1.lock().ok()?.clone()
    }

    /// Drops the reason, which the caller tells in its own words; the program goes on as if it had decided nothing.
    pub(crate) fn forget(&self) {
        if let Ok(mut first) = self.1.lock() {
            *first = None;
        }
        self.0.store(false, Relaxed);
    }
}

/// The answer in a program's hands.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct UnknownValue {
    #[allocative(skip)]
    what: Unknown,
    #[allocative(skip)]
    decided: Decided,
}
starlark_simple_value!(UnknownValue);

impl UnknownValue {
    pub(crate) fn new(what: Unknown, decided: &Decided) -> UnknownValue {
        UnknownValue { what, decided: decided.clone() }
    }

    /// Notes that the program decides by the answer, where no error can be raised.
    pub(crate) fn decides(&self) {
        self.decided.0.store(true, Relaxed);
    }

    /// The unknown answer as another type of number.
    pub(crate) fn as_number(&self, number: Number) -> UnknownValue {
        let what = match self.what {
            Unknown::Outside(_) | Unknown::Pid => Unknown::Outside(number),
            Unknown::Assigned { .. } => self.what,
            _ => Unknown::Value(number),
        };
        UnknownValue { what, ..self.clone() }
    }

    /// The type of the unknown number; `None` if the unknown answer is not a number.
    pub(crate) fn number(&self) -> Option<Number> {
        match self.what {
            Unknown::Value(number) | Unknown::Outside(number) => Some(number),
            Unknown::Pid => Some(Number::Whole),
            Unknown::Assigned { .. } => Some(Number::Real),
            _ => None,
        }
    }

    /// True if the unknown answer is a number.
    pub(crate) fn is_value(&self) -> bool {
        self.number().is_some()
    }

    pub(crate) fn refused<T>(&self) -> starlark::Result<T> {
        Err(undecided(self.what.to_string()))
    }

    /// The type of the unknown answer.
    ///
    /// # Errors
    /// The type is not known either.
    pub(crate) fn class(&self) -> anyhow::Result<&'static str> {
        match self.what {
            Unknown::Sender => Ok("int"),
            Unknown::Work { question: "is_completed()" | "is_success()" | "done()" } => Ok("bool"),
            what => Err(anyhow::anyhow!(what.to_string())),
        }
    }

    /// The kind of unknown value.
    pub(crate) fn what(&self) -> Unknown {
        self.what
    }
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            Unknown::Work { question } => write!(f, "<{question}: known when it runs>"),
            Unknown::Value(_) => f.write_str("<a tensor's value: known when it runs>"),
            Unknown::Shape => f.write_str("<a shape: known when it runs>"),
            Unknown::Sender => f.write_str("<the sender: known when it runs>"),
            Unknown::Outside(_)
            | Unknown::Text
            | Unknown::Pid
            | Unknown::Assigned { .. }
            | Unknown::Object { .. }
            | Unknown::AnyObject => f.write_str("<known when it runs>"),
        }
    }
}
