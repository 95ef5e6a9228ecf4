//! Iterators as values: where their pieces come from, and how many are taken.

#![allow(clippy::panic, reason = "these values are never written out")]

use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::cell::Cell;
use std::fmt;

/// The source of an iterator's pieces.
#[derive(Debug, Trace, Allocative)]
pub(crate) enum Source<'v> {
    /// One after the other.
    Items(Vec<Value<'v>>),
    /// One after the other, and then from the first again.
    Cycle(Vec<Value<'v>>),
    /// A number, and always so much more.
    Count(Value<'v>, Value<'v>),
    Repeat(Value<'v>),
    /// An object's `__next__`.
    Own(Value<'v>),
    /// An object's `__getitem__`, from 0 on.
    Indexed(Value<'v>),
    /// Another one's, with their numbers.
    Numbered(Value<'v>, i32),
    /// Others', side by side.
    Beside(Vec<Value<'v>>),
    /// Another one's from a place on to before a place, each so manieth.
    Slice {
        of: Value<'v>,
        from: usize,
        to: Option<usize>,
        step: usize,
    },
}

/// The result of `iter(values)`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct IteratorValue<'v> {
    pub(crate) source: Source<'v>,
    /// The number of pieces that are taken.
    #[trace(unsafe_ignore)]
    #[allocative(skip)]
    pub(crate) at: Cell<usize>,
}

impl fmt::Display for IteratorValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<iterator object at 0xADDR>")
    }
}

#[starlark_value(type = "iterator")]
impl<'v> StarlarkValue<'v> for IteratorValue<'v> {
    /// The rest of it.
    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let Source::Items(items) = &self.source else {
            let why =
                "this is gone through by a `for` of its own, or by list(), and nothing else here";
            return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
        };
        let rest = items.get(self.at.get()..).unwrap_or_default().to_vec();
        self.at.set(items.len());
        Ok(rest)
    }

    /// The length that an assignment to several names asks for; `len()` is a `TypeError`.
    fn length(&self) -> starlark::Result<i32> {
        let Source::Items(items) = &self.source else {
            let why = "what is asked for piece by piece is not taken apart here; take list() of it";
            return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
        };
        Ok(i32::try_from(items.len().saturating_sub(self.at.get())).unwrap_or(i32::MAX))
    }

    /// Taken up to there.
    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        let Source::Items(items) = &self.source else {
            let why =
                "`in` of what is asked for piece by piece is not followed here; take list() of it";
            return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
        };
        for (at, item) in items.iter().enumerate().skip(self.at.get()) {
            self.at.set(at + 1);
            if item.equals(other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The rest of an iterator whose pieces are all there; they stay in it.
pub(crate) fn rest<'v>(of: Value<'v>) -> Option<Vec<Value<'v>>> {
    let own = of.downcast_ref::<IteratorValue<'v>>()?;
    let Source::Items(items) = &own.source else { return None };
    Some(items.get(own.at.get()..).unwrap_or_default().to_vec())
}

/// An iterator over that.
pub(crate) fn made<'v>(source: Source<'v>, heap: Heap<'v>) -> Value<'v> {
    heap.alloc_complex_no_freeze(IteratorValue { source, at: Cell::new(0) })
}
