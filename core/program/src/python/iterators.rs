//! `iter`, `next` and `len` of lazy iterators and of objects that define their own length. An iterator
//! without an end (`itertools.cycle`), or with a `__next__` of its own, produces an item when it is asked for
//! one.

#![allow(clippy::panic, reason = "an iterator is never written out")]

use crate::classes::objects::{ClassValue, InstanceValue};
use crate::classes::special_methods::{length, method};
use crate::process::raised::Raised;
use crate::process::state::process;
use crate::python::iterator_value::{IteratorValue, Source, made};
use crate::python::traceback::raised_by;
use crate::python::type_error::{self, type_error};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, Value, ValueLike};

/// Pieces that are taken into one list at most.
const MOST: usize = 1_000_000;
/// An `__iter__` that returns an object with an `__iter__`, and so on; iterators over each other.
const MAX_DEPTH: usize = 32;

fn class_of<'v>(value: Value<'v>) -> Option<&'v ClassValue<'v>> {
    value.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class)
}

/// True if the iterator's items are produced one at a time.
pub(crate) fn is_lazy(of: Value<'_>) -> bool {
    match of.downcast_ref::<IteratorValue<'_>>() {
        Some(own) => !matches!(own.source, Source::Items(_)),
        None => class_of(of).is_some(),
    }
}

/// The result of `iter(of)`.
///
/// # Errors
/// A value that cannot be iterated, or an exception that `__iter__` raises.
pub(crate) fn iterator<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let mut of = of;
    for _ in 0..MAX_DEPTH {
        let heap = eval.heap();
        if of.downcast_ref::<IteratorValue<'v>>().is_some() {
            return Ok(of);
        }
        let Some(class) = class_of(of) else {
            let items = match of.unpack_str() {
                Some(text) => text.chars().map(|c| heap.alloc(c.to_string())).collect(),
                None => of.iterate(heap)?.collect(),
            };
            return Ok(made(Source::Items(items), heap));
        };
        let Some(answer) = method(of, "__iter__", &[], eval)? else {
            if class.find("__getitem__").is_some() {
                return Ok(made(Source::Indexed(of), heap));
            }
            // Fields of a named tuple.
            return Ok(made(Source::Items(of.iterate(heap)?.collect()), heap));
        };
        if class_of(answer).is_some_and(|class| class.find("__next__").is_some()) {
            return Ok(made(Source::Own(answer), heap));
        }
        of = answer;
    }
    Err(starlark::Error::new_native(anyhow::anyhow!("an __iter__ that returns no iterator")))
}

/// The answer of a method, or nothing where it raises that.
fn unless<'v>(
    answer: starlark::Result<Option<Value<'v>>>,
    raises: &str,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    let error = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let program = process(eval).ok().and_then(|process| process.program.clone());
    let told = program.and_then(|program| raised_by(&error, &program));
    let ends = |told: String| told.split(':').next() == Some(raises);
    if told.is_some_and(ends) { Ok(None) } else { Err(error) }
}

/// The next item of an iterator; `None` at its end.
///
/// # Errors
/// A value that is not an iterator, or an exception that an object's method raises.
pub(crate) fn advance<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    advanced(of, 0, eval)
}

fn advanced<'v>(
    of: Value<'v>,
    depth: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Value<'v>>> {
    if depth > MAX_DEPTH {
        let why = format!("more than {MAX_DEPTH} iterators over each other");
        return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
    }
    let heap = eval.heap();
    let Some(own) = of.downcast_ref::<IteratorValue<'v>>() else {
        let found = match class_of(of) {
            Some(_) => method(of, "__next__", &[], eval)?,
            // The first item of other iterables, such as `model.parameters()`.
            None => return Ok(of.iterate(heap)?.next()),
        };
        let text = format!("'{}' object is not an iterator", type_error::class_of(of));
        return match found {
            Some(found) => Ok(Some(found)),
            None => Err(starlark::Error::new_native(type_error(text))),
        };
    };
    let at = own.at.get();
    own.at.set(at.saturating_add(1));
    let number = |at: usize| i32::try_from(at).unwrap_or(i32::MAX);
    Ok(match &own.source {
        Source::Items(items) => items.get(at).copied(),
        Source::Cycle(items) if items.is_empty() => None,
        Source::Cycle(items) => items.get(at % items.len()).copied(),
        Source::Count(start, step) => {
            Some(start.add(step.mul(heap.alloc(number(at)), heap)?, heap)?)
        }
        Source::Repeat(value) => Some(*value),
        Source::Own(object) => {
            let answer = method(*object, "__next__", &[], eval);
            unless(answer, "StopIteration", eval)?
        }
        Source::Indexed(object) => {
            let answer = method(*object, "__getitem__", &[heap.alloc(number(at))], eval);
            unless(answer, "IndexError", eval)?
        }
        Source::Numbered(other, start) => {
            let nth = heap.alloc(start.saturating_add(number(at)));
            advanced(*other, depth + 1, eval)?.map(|piece| heap.alloc(AllocTuple([nth, piece])))
        }
        Source::Beside(others) => {
            let mut pieces = Vec::with_capacity(others.len());
            for other in others {
                match advanced(*other, depth + 1, eval)? {
                    Some(piece) => pieces.push(piece),
                    None => return Ok(None),
                }
            }
            Some(heap.alloc(AllocTuple(pieces)))
        }
        // A slice that has ended takes nothing more.
        Source::Slice { .. } if at == usize::MAX => None,
        Source::Slice { of, from, to, step } => {
            let ends = to.unwrap_or(usize::MAX);
            let place =
                |nth: usize| from.saturating_add(step.saturating_mul(nth)).min(ends.max(*from));
            let before = at.checked_sub(1).map_or(0, |last| place(last).saturating_add(1));
            let next = place(at);
            let mut piece = None;
            for nth in before..next.saturating_add(usize::from(next < ends)) {
                if nth > MOST {
                    let why = format!("more than {MOST} pieces: this may have no end");
                    return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
                }
                piece = advanced(*of, depth + 1, eval)?;
                if piece.is_none() {
                    break;
                }
            }
            let piece = piece.filter(|_| next < ends);
            if piece.is_none() {
                own.at.set(usize::MAX);
            }
            piece
        }
    })
}

/// All items of a lazy iterator; `None` for other values.
///
/// # Errors
/// An iterator without an end, or an exception that an object's method raises.
pub(crate) fn pieces<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Option<Vec<Value<'v>>>> {
    if !is_lazy(of) {
        return Ok(None);
    }
    let own = iterator(of, eval)?;
    let mut all = Vec::new();
    while let Some(piece) = advance(own, eval)? {
        all.push(piece);
        if all.len() > MOST {
            let why = format!("more than {MOST} pieces: this may have no end");
            return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
        }
    }
    Ok(Some(all))
}

/// All items of a value that can be iterated.
///
/// # Errors
/// A value that cannot be iterated, or that has no end.
pub(crate) fn each<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Vec<Value<'v>>> {
    match pieces(of, eval)? {
        Some(pieces) => Ok(pieces),
        None => through(of, eval.heap()).iterate(eval.heap()).map(Iterator::collect),
    }
}

/// A text as its characters, and all else as it is.
fn through<'v>(of: Value<'v>, heap: Heap<'v>) -> Value<'v> {
    match of.unpack_str() {
        Some(text) => heap.alloc(AllocList(text.chars().map(|c| c.to_string()))),
        None => of,
    }
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn len<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<i32> {
        match length(of, eval)? {
            Some(length) => Ok(length),
            None if of.downcast_ref::<IteratorValue<'v>>().is_some() => {
                let text = "object of type 'iterator' has no len()";
                Err(starlark::Error::new_native(type_error(text)))
            }
            None => of.length(),
        }
    }

    fn iter<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        iterator(of, eval)
    }

    /// As `iter`, for a loop whose program may have a function of its own called `iter`.
    fn _iter<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        iterator(of, eval)
    }

    /// The next piece in a list; an empty list behind the last.
    fn _advance<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let piece = advance(of, eval)?;
        Ok(eval.heap().alloc(AllocList(piece)))
    }

    /// The pieces for a `for` of the interpreter's.
    fn _through<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let pieces = pieces(of, eval)?;
        let heap = eval.heap();
        Ok(match pieces {
            Some(pieces) => heap.alloc(AllocList(pieces)),
            None => through(of, heap),
        })
    }

    fn next<'v>(
        #[starlark(require = pos)] of: Value<'v>,
        #[starlark(require = pos)] default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        advance(of, eval)?.or(default).ok_or_else(|| {
            let raised = Raised { text: "StopIteration".to_owned(), help: None };
            starlark::Error::new_native(anyhow::Error::new(raised))
        })
    }
}

/// Adds them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}
