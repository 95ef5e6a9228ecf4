//! Parts of data sets: `random_split`, `Subset`, `ConcatDataset`; and batches that a `collate_fn` makes of
//! rows.

#![allow(clippy::panic, reason = "these values are never written out")]

use crate::classes::special_methods::{length, method};
use crate::data::datasets::{DatasetValue, MOST, SamplerValue};
use crate::data::user_datasets::of_program;
use crate::dist::arguments as take;
use crate::dist::values::TensorValue;
use crate::process::raised::raised;
use crate::process::state::process;
use crate::process::undecided::{Number, Unknown};
use crate::python::iterators::each;
use crate::python::numbers;
use crate::python::type_error::class_of;
use crate::tensor::deferred::shipped;
use crate::tensor::value::tensor;
use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike};
use starlark_derive::starlark_value;
use std::fmt;

/// `Subset(dataset, indices)`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
pub(crate) struct SubsetValue<'v> {
    dataset: Value<'v>,
    indices: Vec<Value<'v>>,
}

impl fmt::Display for SubsetValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.utils.data.dataset.Subset object at 0xADDR>")
    }
}

#[starlark_value(type = "Subset")]
impl<'v> StarlarkValue<'v> for SubsetValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "dataset" => Some(self.dataset),
            "indices" => Some(heap.alloc(AllocList(self.indices.iter().copied()))),
            _ => None,
        }
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.indices.len()).unwrap_or(i32::MAX))
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.dataset.at(self.index(index)?, heap)
    }
}

impl<'v> SubsetValue<'v> {
    fn index(&self, index: Value<'v>) -> starlark::Result<Value<'v>> {
        let native = starlark::Error::new_native;
        let at = numbers::whole(index, "index").map_err(native)?;
        let at = if at < 0 { at + self.indices.len() as i64 } else { at };
        let found = usize::try_from(at).ok().and_then(|at| self.indices.get(at).copied());
        found.ok_or_else(|| native(raised("IndexError: list index out of range")))
    }
}

/// A row of a data set, by `__getitem__` if its class is the program's.
///
/// # Errors
/// An exception that `__getitem__` raises, or a value that has no rows.
pub(crate) fn row<'v>(
    dataset: Value<'v>,
    index: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let (mut dataset, mut index) = (dataset, index);
    while let Some(subset) = dataset.downcast_ref::<SubsetValue<'v>>() {
        index = subset.index(index)?;
        dataset = subset.dataset;
    }
    match method(dataset, "__getitem__", &[index], eval)? {
        Some(row) => Ok(row),
        None => dataset.at(index, eval.heap()),
    }
}

/// The data set of a subset; `None` if the value is not a subset.
///
/// # Errors
/// An exception that the methods of the program's classes raise.
pub(crate) fn of_subset<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<DatasetValue>> {
    let Some(subset) = of.downcast_ref::<SubsetValue<'v>>() else { return Ok(None) };
    let whole = dataset_of(subset.dataset, eval)?;
    let rows = subset.indices.len() as u64;
    Ok(whole.map(|whole| DatasetValue { rows, ..whole }))
}

/// The data set behind a value, whichever it is.
fn dataset_of<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<DatasetValue>> {
    if let Some(own) = of.downcast_ref::<DatasetValue>() {
        return Ok(Some(own.clone()));
    }
    match of.downcast_ref::<SubsetValue<'v>>() {
        Some(subset) => {
            let rows = subset.indices.len() as u64;
            let whole = dataset_of(subset.dataset, eval)?;
            Ok(whole.map(|whole| DatasetValue { rows, ..whole }))
        }
        None => of_program(of, eval),
    }
}

/// The number of rows of each part: whole numbers, or fractions of the whole.
fn lengths(all: u64, given: &[Value<'_>]) -> anyhow::Result<Vec<u64>> {
    let numbers: Vec<f64> =
        given.iter().map(|of| numbers::number(*of, "lengths")).collect::<anyhow::Result<_>>()?;
    let sum: f64 = numbers.iter().sum();
    let wrong = "ValueError: Sum of input lengths does not equal the length of the input dataset!";
    if (sum - 1.0).abs() > 1e-9 || sum > 1.0 + 1e-9 {
        let whole: Vec<u64> = numbers.iter().map(|of| *of as u64).collect();
        return match whole.iter().sum::<u64>() == all {
            true => Ok(whole),
            false => Err(raised(wrong)),
        };
    }
    let mut parts: Vec<u64> =
        numbers.iter().map(|of| libm::floor(*of * all as f64) as u64).collect();
    // The remainder is distributed one by one.
    let left = all.saturating_sub(parts.iter().sum());
    let count = parts.len().max(1);
    for at in 0..left as usize {
        if let Some(part) = parts.get_mut(at % count) {
            *part += 1;
        }
    }
    Ok(parts)
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The split is random, so only the shape of a row in one part is known.
    fn random_split<'v>(
        dataset: Value<'v>,
        lengths: Value<'v>,
        #[starlark(default = NoneType)] generator: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = generator;
        let Some(whole) = dataset_of(dataset, eval)? else {
            anyhow::bail!("random_split() of a {} is not followed here", class_of(dataset));
        };
        let given = take::items(lengths).unwrap_or_default();
        let parts = self::lengths(whole.rows, &given)?;
        let heap = eval.heap();
        let made = parts.into_iter().map(|rows| DatasetValue { rows, ..whole.clone() });
        Ok(heap.alloc(AllocList(made)))
    }

    fn Subset<'v>(
        dataset: Value<'v>,
        indices: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let indices = each(indices, eval)?;
        Ok(eval.heap().alloc_complex_no_freeze(SubsetValue { dataset, indices }))
    }

    /// Data sets of like rows, one behind the other.
    fn ConcatDataset<'v>(
        datasets: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<DatasetValue> {
        let all = each(datasets, eval).map_err(starlark::Error::into_anyhow)?;
        let mut whole: Option<DatasetValue> = None;
        for of in all {
            let Some(own) = dataset_of(of, eval)? else {
                anyhow::bail!("ConcatDataset of a {} is not followed here", class_of(of));
            };
            match &mut whole {
                Some(whole) => whole.rows += own.rows,
                None => whole = Some(own),
            }
        }
        whole.ok_or_else(|| raised("AssertionError: datasets should not be an empty iterable"))
    }
}

/// Adds them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
}

/// A `DataLoader` whose batches a function of the program's makes.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct CollatedValue<'v> {
    dataset: Value<'v>,
    sampler: Value<'v>,
    batch_size: u64,
    batches: Vec<Value<'v>>,
}

impl fmt::Display for CollatedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.utils.data.dataloader.DataLoader object at 0xADDR>")
    }
}

#[starlark_value(type = "DataLoader")]
impl<'v> StarlarkValue<'v> for CollatedValue<'v> {
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "dataset" => Some(self.dataset),
            "sampler" => Some(self.sampler),
            "batch_size" => Some(heap.alloc(self.batch_size)),
            _ => None,
        }
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.batches.len()).unwrap_or(i32::MAX))
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self.batches.clone())
    }
}

/// A row with the same shapes and types and unknown values: the run may have another row in its place.
fn any_row<'v>(
    row: Value<'v>,
    depth: usize,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    anyhow::ensure!(depth < 8, "the rows of this data set are nested too deep");
    let heap = eval.heap();
    if let Ok(of) = tensor(row) {
        return Ok(heap.alloc(TensorValue(shipped(of.dtype(), of.shape()))));
    }
    if let Some(dict) = DictRef::from_value(row) {
        let pairs: Vec<(Value<'v>, Value<'v>)> = dict.iter().collect();
        let mut made = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            made.push((key, any_row(value, depth + 1, eval)?));
        }
        return Ok(heap.alloc(AllocDict(made)));
    }
    if let Some(items) = take::items(row) {
        let made: anyhow::Result<Vec<Value<'v>>> =
            items.into_iter().map(|item| any_row(item, depth + 1, eval)).collect();
        let made = made?;
        return Ok(match TupleRef::from_value(row) {
            Some(_) => heap.alloc(AllocTuple(made)),
            None => heap.alloc(AllocList(made)),
        });
    }
    let number = match row.get_type() {
        "int" | "bool" => Number::Whole,
        "float" => Number::Real,
        _ => return Ok(row),
    };
    Ok(heap.alloc(process(eval)?.unknown(Unknown::Outside(number))))
}

/// `DataLoader(dataset, collate_fn = f)`: the results of `f` for the rows of each batch. If the order is
/// random, only the shape of each row is known.
///
/// # Errors
/// An exception that the program's functions raise.
pub(crate) fn collated<'v>(
    dataset: Value<'v>,
    sampler: Option<&SamplerValue>,
    shuffled: bool,
    (batch_size, drop_last): (u64, bool),
    collate: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let failed = starlark::Error::into_anyhow;
    let heap = eval.heap();
    let all = match length(dataset, eval).map_err(failed)? {
        Some(length) => length,
        None => dataset.length().map_err(failed)?,
    };
    let all = u64::try_from(all).unwrap_or(0);
    let in_order = sampler.map(SamplerValue::indices);
    let random = shuffled || in_order.as_ref().is_some_and(Option::is_none);
    let indices = match in_order {
        Some(Some(indices)) => indices,
        Some(None) => (0..sampler.map_or(0, |own| own.rows)).collect(),
        None => (0..all).collect::<Vec<u64>>(),
    };
    anyhow::ensure!(indices.len() as u64 <= MOST, "at most {MOST} rows are collated");
    let mut batches = Vec::new();
    for batch in indices.chunks(batch_size as usize) {
        if drop_last && (batch.len() as u64) < batch_size {
            break;
        }
        let mut rows = Vec::with_capacity(batch.len());
        for at in batch {
            let own = row(dataset, heap.alloc(*at), eval).map_err(failed)?;
            rows.push(if random { any_row(own, 0, eval)? } else { own });
        }
        let rows = heap.alloc(AllocList(rows));
        batches.push(eval.eval_function(collate, &[rows], &[]).map_err(failed)?);
    }
    let sampler = sampler.map_or_else(Value::new_none, |own| heap.alloc(own.clone()));
    Ok(heap.alloc_complex_no_freeze(CollatedValue { dataset, sampler, batch_size, batches }))
}
