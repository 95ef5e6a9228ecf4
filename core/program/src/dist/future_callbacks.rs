//! `future.then(callback)`: the callback is called with the future once its call has completed. The result is
//! the future of the callback's result.
//!
//! A callback is called when the program waits for the call, or for the future that `then` returned: before
//! that nothing shows that it was called. Callbacks are kept in the module of the execution, which the
//! interpreter searches for values that are still needed.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::FutureValue;
use crate::process::raised::refused;
use crate::process::state::process;
use crate::process::undecided::Unknown;
use allocative::Allocative;
use lockstep_core::plan::WorkQuery;
use lockstep_torch::c10d;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::{AllocDict, DictMut, DictRef};
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// The most callbacks of a process.
const MAX_CALLBACKS: usize = 100_000;

/// The future of a callback's result.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ThenValue {
    #[allocative(skip)]
    work: c10d::Work,
    /// The index of the callback among those of the process.
    at: u32,
}
starlark_simple_value!(ThenValue);

impl fmt::Display for ThenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.Future object at 0xADDR>")
    }
}

methods_static!(THEN_METHODS = then_methods);

#[starlark_value(type = "Future")]
impl<'v> StarlarkValue<'v> for ThenValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(THEN_METHODS.methods())
    }
}

/// The callbacks of the process by number: the callback, the future that it is called with, and its result.
fn table<'v>(eval: &mut Evaluator<'v, '_, '_>) -> Value<'v> {
    let module = eval.module();
    if let Some(table) = module.extra_value() {
        return table;
    }
    let table = eval.heap().alloc(AllocDict::EMPTY);
    module.set_extra_value(table);
    table
}

fn entry<'v>(at: u32, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Vec<Value<'v>>> {
    let heap = eval.heap();
    let table = DictRef::from_value(table(eval));
    let entry = table.and_then(|table| table.get(heap.alloc(at)).ok().flatten());
    let entry = entry.and_then(TupleRef::from_value).map(|entry| entry.content().to_vec());
    entry.ok_or_else(|| anyhow::anyhow!("this rank has no such future"))
}

fn keep<'v>(at: u32, entry: &[Value<'v>], eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<()> {
    let heap = eval.heap();
    let key = heap.alloc(at).get_hashed().map_err(starlark::Error::into_anyhow)?;
    let mut table = DictMut::from_value(table(eval)).map_err(|error| anyhow::anyhow!("{error}"))?;
    table.aref.insert_hashed(key, heap.alloc(AllocTuple(entry.iter().copied())));
    Ok(())
}

/// `future.then(callback)`.
pub(crate) fn then<'v>(
    this: Value<'v>,
    work: c10d::Work,
    callback: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<ThenValue> {
    let made = DictRef::from_value(table(eval)).map_or(0, |table| table.len());
    anyhow::ensure!(made < MAX_CALLBACKS, "a process has at most {MAX_CALLBACKS} callbacks");
    let at = made as u32;
    keep(at, &[callback, this], eval)?;
    if process(eval)?.dist()?.has_completed(work) {
        returned(at, eval)?;
    }
    Ok(ThenValue { work, at })
}

/// The result of the callback of that number, called now if it has not been.
fn returned<'v>(at: u32, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
    match entry(at, eval)?[..] {
        [_, _, value] => Ok(value),
        [callback, parent] => {
            // Callbacks of a future that this callback waits for are called first.
            if let Some(parent) = parent.downcast_ref::<ThenValue>() {
                returned(parent.at, eval)?;
            }
            let value = eval.eval_function(callback, &[parent], &[]);
            let value = value.map_err(starlark::Error::into_anyhow)?;
            keep(at, &[callback, parent, value], eval)?;
            Ok(value)
        }
        _ => Err(anyhow::anyhow!("this rank has no such future")),
    }
}

/// Calls the callbacks that wait for a call, once it has completed.
pub(crate) fn completed(work: c10d::Work, eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<()> {
    if eval.module().extra_value().is_none() {
        return Ok(());
    }
    let made = DictRef::from_value(table(eval)).map_or(0, |table| table.len()) as u32;
    for at in 0..made {
        let [_, parent] = entry(at, eval)?[..] else { continue };
        let of = parent.downcast_ref::<FutureValue>().map(|future| future.0);
        let of = of.or_else(|| parent.downcast_ref::<ThenValue>().map(|then| then.work));
        if of == Some(work) {
            returned(at, eval)?;
        }
    }
    Ok(())
}

fn then_of<'v>(this: Value<'v>) -> anyhow::Result<&'v ThenValue> {
    this.downcast_ref::<ThenValue>().ok_or_else(|| anyhow::anyhow!("this is no future"))
}

#[starlark_module]
fn then_methods(builder: &mut MethodsBuilder) {
    fn wait<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let ThenValue { work, at } = then_of(this)?.clone();
        process(eval)?.dist()?.wait(work, None).map_err(refused)?;
        returned(at, eval)
    }

    fn value<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let ThenValue { work, at } = then_of(this)?.clone();
        let process = process(eval)?;
        if process.dist()?.written(work).map_err(refused)?.is_none() {
            return Ok(heap.alloc(process.unknown(Unknown::Work { question: "value()" })));
        }
        returned(at, eval)
    }

    fn done<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let work = then_of(this)?.work;
        let heap = eval.heap();
        let process = process(eval)?;
        process.dist()?.query(work, WorkQuery::FutureDone).map_err(refused)?;
        Ok(match process.dist()?.has_completed(work) {
            true => Value::new_bool(true),
            false => heap.alloc(process.unknown(Unknown::Work { question: "done()" })),
        })
    }

    fn then<'v>(
        this: Value<'v>,
        callback: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ThenValue> {
        let work = then_of(this)?.work;
        then(this, work, callback, eval)
    }

    fn add_done_callback<'v>(
        this: Value<'v>,
        callback: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let work = then_of(this)?.work;
        then(this, work, callback, eval).map(|_| NoneType)
    }
}
