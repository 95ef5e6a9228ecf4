//! Answers that only a run gives: whether a call has completed, whom a receive from any source got
//! its tensor from. A program may ask and go on; where it would decide by the answer, it is
//! refused, because whichever way it went would be made up.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use starlark::starlark_simple_value;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that is not known while a program is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// What a work answers before it was waited for.
    Work {
        /// `is_completed()`.
        question: &'static str,
    },
    /// The sender of a receive from any source.
    Sender,
    /// An object from another rank that is no plain data.
    Object,
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
            Unknown::Object => f.write_str(
                "an object that another rank has sent is known only if it is plain data (None, \
                 bool, int, float, str, bytes, lists, tuples and dicts of them): nothing can be \
                 decided by this one",
            ),
        }
    }
}

/// What a program has decided by an unknown answer, told by the answers to their process.
#[derive(Clone, Debug, Default)]
pub(super) struct Decided(Arc<AtomicBool>);

impl Decided {
    /// Whether the program has, by any answer of the process.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The answer in a program's hands.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct UnknownValue {
    #[allocative(skip)]
    what: Unknown,
    #[allocative(skip)]
    decided: Decided,
}
starlark_simple_value!(UnknownValue);

impl UnknownValue {
    pub(super) fn new(what: Unknown, decided: &Decided) -> UnknownValue {
        UnknownValue { what, decided: decided.clone() }
    }

    /// What is not known.
    pub(super) fn what(&self) -> Unknown {
        self.what
    }
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<known when it runs>")
    }
}

#[starlark_value(type = "unknown")]
impl<'v> StarlarkValue<'v> for UnknownValue {
    // Neither may fail, so the process is told, and refuses before anything else happens.
    fn to_bool(&self) -> bool {
        self.decided.0.store(true, Ordering::Relaxed);
        false
    }

    fn equals(&self, _other: Value<'v>) -> starlark::Result<bool> {
        Err(starlark::Error::new_native(anyhow::anyhow!(self.what.to_string())))
    }
}
