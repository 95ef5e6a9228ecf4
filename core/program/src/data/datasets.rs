//! Data sets and samplers as values: how many rows there are, and which of them a rank gets.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::TensorValue;
use crate::process::undecided::UnknownValue;
use crate::python::numbers;
use crate::tensor::deferred::{Batch, batch};
use allocative::Allocative;
use lockstep_torch::c10d::Tensor;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::values::none::NoneType;
use starlark::values::tuple::AllocTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// Batches of an epoch.
pub(crate) const MOST: u64 = 65_536;

/// The layout of a batch of rows.
#[derive(Clone, Debug, Allocative)]
pub(crate) enum Layout {
    /// A list of tensors.
    Row,
    /// One tensor.
    Alone,
    /// A dict of them.
    Named(Vec<String>),
}

/// `TensorDataset(x, y)`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct DatasetValue {
    pub(crate) rows: u64,
    /// Its tensors, and whether each holds random numbers.
    #[allocative(skip)]
    pub(crate) tensors: Vec<(Tensor, bool)>,
    pub(crate) layout: Layout,
}
starlark_simple_value!(DatasetValue);

/// `DistributedSampler(dataset)`: how many rows each rank gets.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct SamplerValue {
    pub(crate) rows: u64,
    /// The rows of the data set, and which ranks share them.
    pub(crate) all: u64,
    pub(crate) replicas: u64,
    pub(crate) rank: u64,
    pub(crate) drop_last: bool,
    /// The index if the rows are shuffled; `None` otherwise.
    #[allocative(skip)]
    pub(crate) shuffled: Option<UnknownValue>,
}
starlark_simple_value!(SamplerValue);

impl SamplerValue {
    /// All rows in their order.
    pub(crate) fn whole(rows: u64) -> SamplerValue {
        SamplerValue { rows, all: rows, replicas: 1, rank: 0, drop_last: false, shuffled: None }
    }

    /// The rows that it takes, where they come in their order: those that are missing are the first ones
    /// again, as in torch/utils/data/distributed.py.
    pub(crate) fn indices(&self) -> Option<Vec<u64>> {
        let own = |nth: u64| {
            let at = self.rank + nth * self.replicas;
            if self.all == 0 { 0 } else { at % self.all }
        };
        self.shuffled.is_none().then(|| (0..self.rows).map(own).collect())
    }
}

impl fmt::Display for DatasetValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.utils.data.dataset.TensorDataset object at 0xADDR>")
    }
}

impl fmt::Display for SamplerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.utils.data.distributed.DistributedSampler object at 0xADDR>")
    }
}

#[starlark_value(type = "TensorDataset")]
impl<'v> StarlarkValue<'v> for DatasetValue {
    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.rows).unwrap_or(i32::MAX))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        // A part of a data set has other rows than its tensors, and no such attribute.
        let whole = self.tensors.iter().all(|(of, _)| of.shape().first() == Some(&self.rows));
        if attribute != "tensors" || !whole || self.tensors.is_empty() {
            return None;
        }
        let tensors = self.tensors.iter().map(|(of, _)| heap.alloc(TensorValue(of.clone())));
        Some(heap.alloc(AllocTuple(tensors.collect::<Vec<Value<'v>>>())))
    }

    /// A row; its contents are not followed.
    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let at = numbers::whole(index, "index").map_err(native)?;
        let rows = i64::try_from(self.rows).unwrap_or(i64::MAX);
        if !(-rows..rows).contains(&at) {
            return Err(native(crate::process::raised::raised(
                "IndexError: list index out of range",
            )));
        }
        let row = |(of, random): &(Tensor, bool)| {
            let inner = of.shape().get(1..).unwrap_or_default();
            heap.alloc(TensorValue(batch(of, inner, Batch { random: *random })))
        };
        let row: Vec<Value<'v>> = self.tensors.iter().map(row).collect();
        Ok(heap.alloc(AllocTuple(row)))
    }
}

methods_static!(SAMPLER_METHODS = sampler_methods);

#[starlark_value(type = "DistributedSampler")]
impl<'v> StarlarkValue<'v> for SamplerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(SAMPLER_METHODS.methods())
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.rows).unwrap_or(i32::MAX))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "num_samples" => Some(heap.alloc(self.rows)),
            "total_size" => Some(heap.alloc(self.rows * self.replicas)),
            "num_replicas" => Some(heap.alloc(self.replicas)),
            "rank" => Some(heap.alloc(self.rank)),
            "shuffle" => Some(Value::new_bool(self.shuffled.is_some())),
            "drop_last" => Some(Value::new_bool(self.drop_last)),
            _ => None,
        }
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        if self.rows > MOST {
            let why = anyhow::anyhow!("a sampler of more than {MOST} rows is not gone through");
            return Err(starlark::Error::new_native(why));
        }
        Ok(match (&self.shuffled, self.indices()) {
            (None, Some(indices)) => indices.into_iter().map(|at| heap.alloc(at)).collect(),
            (Some(unknown), _) => (0..self.rows).map(|_| heap.alloc(unknown.clone())).collect(),
            (None, None) => Vec::new(),
        })
    }
}

#[starlark_module]
fn sampler_methods(builder: &mut MethodsBuilder) {
    fn set_epoch<'v>(this: Value<'v>, epoch: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = (this, epoch);
        Ok(NoneType)
    }
}
