//! `BatchSampler(sampler, batch_size, drop_last)`: which rows share a batch.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::data::datasets::SamplerValue;
use crate::process::raised::raised;
use allocative::Allocative;
use starlark::environment::GlobalsBuilder;
use starlark::values::list::AllocList;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// One of them.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct BatchSamplerValue {
    pub(crate) sampler: SamplerValue,
    pub(crate) batch_size: u64,
    pub(crate) drop_last: bool,
}
starlark_simple_value!(BatchSamplerValue);

impl fmt::Display for BatchSamplerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.utils.data.sampler.BatchSampler object at 0xADDR>")
    }
}

impl BatchSamplerValue {
    fn batches(&self) -> u64 {
        match self.drop_last {
            true => self.sampler.rows / self.batch_size,
            false => self.sampler.rows.div_ceil(self.batch_size),
        }
    }
}

#[starlark_value(type = "BatchSampler")]
impl<'v> StarlarkValue<'v> for BatchSamplerValue {
    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.batches()).unwrap_or(i32::MAX))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "sampler" => Some(heap.alloc(self.sampler.clone())),
            "batch_size" => Some(heap.alloc(self.batch_size)),
            "drop_last" => Some(Value::new_bool(self.drop_last)),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "sampler" | "batch_size" | "drop_last")
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let rows = self.sampler.iterate_collect(heap)?;
        let batches = rows.chunks(self.batch_size as usize).take(self.batches() as usize);
        Ok(batches.map(|rows| heap.alloc(AllocList(rows.iter().copied()))).collect())
    }
}

#[starlark_module]
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    fn BatchSampler<'v>(
        sampler: Value<'v>,
        batch_size: i32,
        drop_last: bool,
    ) -> anyhow::Result<BatchSamplerValue> {
        let Some(own) = sampler.downcast_ref::<SamplerValue>() else {
            anyhow::bail!(
                "a BatchSampler is followed of a DistributedSampler, RandomSampler or \
                 SequentialSampler"
            );
        };
        let size = u64::try_from(batch_size).ok().filter(|size| *size > 0);
        let batch_size = size.ok_or_else(|| {
            raised(format!(
                "ValueError: batch_size should be a positive integer value, but got \
                 batch_size={batch_size}"
            ))
        })?;
        Ok(BatchSamplerValue { sampler: own.clone(), batch_size, drop_last })
    }
}
