//! Data sets that are classes of a program: `__len__` says how many rows there are, and the first row how
//! all of them look. `default_collate` makes batches of them: tensors and numbers are stacked, tuples
//! and lists become a list, dicts a dict.

use crate::classes::objects::InstanceValue;
use crate::classes::special_methods::length;
use crate::data::datasets::{DatasetValue, Layout};
use crate::dist::arguments as take;
use crate::process::undecided::UnknownValue;
use crate::python::type_error::class_of;
use crate::tensor::deferred::shipped;
use crate::tensor::value::tensor;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::eval::Evaluator;
use starlark::values::dict::DictRef;
use starlark::values::{Value, ValueLike};

/// The batch of such rows, in the type of its elements.
fn stacked(row: Value<'_>, rows: u64) -> anyhow::Result<(Tensor, bool)> {
    if let Ok(one) = tensor(row) {
        return Ok((shipped(one.dtype(), &[&[rows], one.shape()].concat()), false));
    }
    let unknown = row.downcast_ref::<UnknownValue>();
    let class = match unknown {
        Some(unknown) => unknown.class()?,
        None => class_of(row),
    };
    let dtype = match class {
        "bool" => Dtype::Bool,
        "int" => Dtype::Int64,
        "float" => Dtype::Float64,
        other => anyhow::bail!(
            "a row of a data set is a tensor, a number, or a tuple, list or dict of them here, and \
             not a {other}"
        ),
    };
    Ok((shipped(dtype, &[rows]), false))
}

/// The data set that an object of a program's class describes; `None` for other values.
///
/// # Errors
/// An exception that the class's methods raise, or a row that cannot be followed.
pub(crate) fn of_program<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Option<DatasetValue>> {
    let failed = starlark::Error::into_anyhow;
    let Some(class) = of.downcast_ref::<InstanceValue<'v>>().and_then(InstanceValue::class) else {
        return Ok(None);
    };
    let (Some(item), Some(length)) = (class.find("__getitem__"), length(of, eval).map_err(failed)?)
    else {
        anyhow::bail!("a data set's class says with __len__ and __getitem__ what it has");
    };
    let rows = u64::try_from(length).unwrap_or(0);
    if rows == 0 {
        return Ok(Some(DatasetValue { rows, tensors: Vec::new(), layout: Layout::Row }));
    }
    let first = eval.heap().alloc(0);
    let row = eval.eval_function(item, &[of, first], &[]).map_err(failed)?;
    let (values, layout) = match (take::items(row), DictRef::from_value(row)) {
        (Some(items), _) => (items, Layout::Row),
        (None, Some(dict)) => {
            let name = |key: Value<'v>| key.unpack_str().map(str::to_owned);
            let names: Option<Vec<String>> = dict.keys().map(name).collect();
            let names = names.ok_or_else(|| anyhow::anyhow!("the keys of a row are texts"))?;
            (dict.values().collect(), Layout::Named(names))
        }
        (None, None) => (vec![row], Layout::Alone),
    };
    let tensors = values.into_iter().map(|value| stacked(value, rows));
    let tensors = tensors.collect::<anyhow::Result<_>>()?;
    Ok(Some(DatasetValue { rows, tensors, layout }))
}
