//! An answer that is not known yet: it may never be asked for, and where it is, its rank is
//! executed again once it is known.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use allocative::Allocative;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The class of such an answer in the interpreter's errors.
pub(super) const CLASS: &str = "store_answer";

/// The operation whose answer a process needs to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needed {
    pub(super) op: usize,
    /// The condition that a loop waits for.
    pub(super) until: Option<Until>,
}

/// The value that a loop compares the answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// It is to be so much at least.
    AtLeast(i64),
    /// It is to be this.
    Is(Vec<u8>),
}

/// The operation whose answer a process needs, shared by the answers and their process.
#[derive(Clone, Debug, Default)]
pub(super) struct Need(Arc<Mutex<Option<Needed>>>);

impl Need {
    pub(super) fn get(&self) -> Option<Needed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, needed: Needed) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(needed);
    }
}

/// The answer in a program's hands.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct LateValue {
    pub(super) op: usize,
    /// True if a loop asks for the answer and compares it, so that the wanted value is known.
    pub(super) polls: bool,
    #[allocative(skip)]
    pub(super) need: Need,
}
starlark_simple_value!(LateValue);

impl LateValue {
    fn needed(&self, until: Option<Until>) {
        self.need.set(Needed { op: self.op, until: until.filter(|_| self.polls) });
    }

    /// Compares the answer with these bytes: the rank stops, because the answer is not known yet.
    pub(super) fn equal_to(&self, bytes: &[u8]) -> starlark::Result<bool> {
        self.needed(Some(Until::Is(bytes.to_vec())));
        Err(stuck())
    }

    /// Compares the answer with a value: the rank stops, because the answer is not known yet.
    fn equal(&self, other: Value<'_>) -> starlark::Result<bool> {
        let number = other.unpack_i32().map(|number| number.to_string().into_bytes());
        self.needed(number.or_else(|| crate::stores::bytes::bytes_of(other)).map(Until::Is));
        Err(stuck())
    }
}

fn stuck() -> starlark::Error {
    starlark::Error::new_native(anyhow::Error::new(Stuck))
}

/// The process cannot go on before it knows.
#[derive(Debug)]
pub(super) struct Stuck;

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store's answer is not known yet")
    }
}

impl std::error::Error for Stuck {}

impl fmt::Display for LateValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.needed(None);
        f.write_str("<known later>")
    }
}

methods_static!(LATE_METHODS = late_methods);

#[starlark_module]
fn late_methods(builder: &mut MethodsBuilder) {
    /// The text of an answer that is not known yet is not known yet either.
    fn decode<'v>(
        this: Value<'v>,
        #[starlark(default = "utf-8")] encoding: &str,
    ) -> anyhow::Result<Value<'v>> {
        let _ = encoding;
        Ok(this)
    }
}

#[starlark_value(type = CLASS)]
impl<'v> StarlarkValue<'v> for LateValue {
    // May not fail: the process is told, and stops before anything else happens.
    fn to_bool(&self) -> bool {
        self.needed(None);
        false
    }

    fn get_methods() -> Option<&'static Methods> {
        Some(LATE_METHODS.methods())
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        self.equal(other)
    }

    fn compare(&self, other: Value<'v>) -> starlark::Result<Ordering> {
        self.needed(other.unpack_i32().map(|number| Until::AtLeast(number.into())));
        Err(stuck())
    }
}
