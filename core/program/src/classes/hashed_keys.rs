//! Objects as keys of dicts, of a class that says with `__eq__` which are the same and has a `__hash__`:
//! the interpreter asks no method when it looks a key up, so that each new object is compared with those
//! that were made before it, and has the key of the first that it equals. One that is changed behind its
//! `__init__` is no key, and neither is one behind so many others that to compare it takes too long.

use crate::classes::objects::{InstanceValue, has};
use crate::classes::special_methods::{equal, truth};
use crate::process::state::process;
use starlark::eval::Evaluator;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::{Value, ValueLike};

/// The name under which a module holds an object for each key. No program can name it.
const KEYED: &str = "keyed!";
/// The most of them there may be, each of which is compared with all others.
const MOST: usize = 300;

/// Gives a new object of a class with `__eq__` and `__hash__` its key.
///
/// # Errors
/// No process is running.
pub(crate) fn made<'v>(
    object: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<()> {
    let Some(own) = object.downcast_ref::<InstanceValue<'v>>() else { return Ok(()) };
    let (Some(class), Some(state)) = (own.class(), own.state()) else { return Ok(()) };
    if !has(class) {
        return Ok(());
    }
    let known = eval.module().get(KEYED);
    let known =
        known.and_then(|list| ListRef::from_value(list).map(|list| list.content().to_vec()));
    let mut known = known.unwrap_or_default();
    if known.len() >= MOST {
        return Ok(());
    }
    // Prints of `__eq__` and `__hash__` here are not the program's: they are removed again.
    let native = starlark::Error::new_native;
    let (printed, unfinished) = {
        let process = process(eval).map_err(native)?;
        (process.printed.len(), process.unfinished.clone())
    };
    let mut first = None;
    for other in &known {
        let of = other.downcast_ref::<InstanceValue<'v>>();
        let alike = of.and_then(InstanceValue::class).is_some_and(|of| std::ptr::eq(of, class));
        // An object that cannot be compared yet equals nothing yet.
        let same = alike && matches!(same(object, *other, eval), Ok(true));
        if same {
            first = of.and_then(InstanceValue::state).map(|state| state.key());
            break;
        }
    }
    let process = process(eval).map_err(native)?;
    process.printed.truncate(printed);
    process.unfinished = unfinished;
    match first {
        Some(key) => state.keep_key(key),
        None => {
            state.keep_key(Some(state.number()));
            known.push(object);
            eval.module().set(KEYED, eval.heap().alloc(AllocList(known)));
        }
    }
    Ok(())
}

fn same<'v>(
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<bool> {
    match equal(a, b, eval)? {
        Some(answer) => truth(answer, eval),
        None => Ok(false),
    }
}
