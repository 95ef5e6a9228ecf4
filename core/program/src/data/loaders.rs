//! `torch.utils.data`: the number of batches that a rank gets, and their shapes. Their contents are not
//! followed.
#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]
#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use crate::data::batch_sampler::BatchSamplerValue;
use crate::data::datasets::{DatasetValue, Layout, MOST, SamplerValue};
use crate::data::subsets;
use crate::dist::arguments as take;
use crate::dist::values::TensorValue;
use crate::process::raised::{refused, runtime_error};
use crate::process::state::process;
use crate::process::undecided::{Number, Unknown};
use crate::python::numbers;
use crate::python::types::TypeValue;
use crate::tensor::deferred::{Batch, batch, shipped};
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::Tensor;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::values::dict::{AllocDict, UnpackDictEntries};
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// `DataLoader(dataset, batch_size = 32)`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct LoaderValue {
    dataset: DatasetValue,
    sampler: SamplerValue,
    batch_size: u64,
    drop_last: bool,
}
starlark_simple_value!(LoaderValue);

impl LoaderValue {
    /// The rows of each batch.
    fn batches(&self) -> u64 {
        match self.drop_last {
            true => self.sampler.rows / self.batch_size,
            false => self.sampler.rows.div_ceil(self.batch_size),
        }
    }
}

impl fmt::Display for LoaderValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.utils.data.dataloader.DataLoader object at 0xADDR>")
    }
}

#[starlark_value(type = "DataLoader")]
impl<'v> StarlarkValue<'v> for LoaderValue {
    fn length(&self) -> starlark::Result<i32> {
        Ok(i32::try_from(self.batches()).unwrap_or(i32::MAX))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "dataset" => Some(heap.alloc(self.dataset.clone())),
            "sampler" => Some(heap.alloc(self.sampler.clone())),
            "batch_size" => Some(heap.alloc(self.batch_size)),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "dataset" | "sampler" | "batch_size")
    }

    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let each = |nth: u64| {
            let rows = self.batch_size.min(self.sampler.rows - nth * self.batch_size);
            let tensors = self.dataset.tensors.iter().map(|(of, random)| {
                let inner = of.shape().get(1..).unwrap_or_default();
                let shape = [&[rows], inner].concat();
                heap.alloc(TensorValue(batch(of, &shape, Batch { random: *random })))
            });
            let tensors: Vec<Value<'v>> = tensors.collect();
            match (&self.dataset.layout, tensors.first()) {
                (Layout::Alone, Some(one)) => *one,
                (Layout::Named(names), _) => {
                    let names = names.iter().map(String::as_str);
                    heap.alloc(AllocDict(names.zip(tensors).collect::<Vec<_>>()))
                }
                _ => heap.alloc(tensors),
            }
        };
        Ok((0..self.batches()).map(each).collect())
    }
}

/// Adds them.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    samplers(builder);
    crate::data::batch_sampler::functions(builder);
    subsets::add(builder);
    builder.namespace("distributed", samplers);
    builder.set("Dataset", TypeValue("torch.utils.data.dataset.Dataset".to_owned()));
}

#[starlark_module]
fn samplers(builder: &mut GlobalsBuilder) {
    /// As many rows for each rank, the first ones twice where they do not go round.
    fn DistributedSampler<'v>(
        dataset: Value<'v>,
        #[starlark(default = NoneType)] num_replicas: Value<'v>,
        #[starlark(default = NoneType)] rank: Value<'v>,
        #[starlark(default = true)] shuffle: bool,
        #[starlark(default = 0)] seed: i32,
        #[starlark(default = false)] drop_last: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<SamplerValue> {
        let _ = seed;
        let replicas = match numbers::whole_or_none(num_replicas, "num_replicas")? {
            Some(replicas) => replicas,
            None => process(eval)?.dist()?.get_world_size(None).map_err(refused)?,
        };
        let replicas = u64::try_from(replicas).ok().filter(|replicas| *replicas > 0);
        let replicas = replicas.ok_or_else(|| runtime_error("num_replicas is at least 1"))?;
        let all = rows(dataset, eval)?;
        let rows = match drop_last && all % replicas != 0 {
            true => all.saturating_sub(replicas).div_ceil(replicas),
            false => all.div_ceil(replicas),
        };
        let rank = match numbers::whole_or_none(rank, "rank")? {
            Some(rank) => rank,
            None => process(eval)?.dist()?.get_rank(None).map_err(refused)?,
        };
        let Some(rank) = u64::try_from(rank).ok().filter(|rank| *rank < replicas) else {
            return Err(crate::process::raised::raised(format!(
                "ValueError: Invalid rank {rank}, rank should be in the interval [0, {}]",
                replicas - 1
            )));
        };
        let unknown = process(eval)?.unknown(Unknown::Outside(Number::Whole));
        let shuffled = shuffle.then_some(unknown);
        Ok(SamplerValue { rows, all, replicas, rank, drop_last, shuffled })
    }

    fn SequentialSampler<'v>(
        data_source: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<SamplerValue> {
        Ok(SamplerValue::whole(rows(data_source, eval)?))
    }

    fn RandomSampler<'v>(
        data_source: Value<'v>,
        #[starlark(default = false)] replacement: bool,
        #[starlark(default = NoneType)] num_samples: Value<'v>,
        #[starlark(default = NoneType)] generator: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<SamplerValue> {
        let _ = (replacement, generator);
        let all = rows(data_source, eval)?;
        let some = numbers::whole_or_none(num_samples, "num_samples")?;
        let rows = some.and_then(|some| u64::try_from(some).ok()).unwrap_or(all);
        let shuffled = Some(process(eval)?.unknown(Unknown::Outside(Number::Whole)));
        Ok(SamplerValue { rows, shuffled, ..SamplerValue::whole(all) })
    }
}

/// Pictures and their classes: as many rows, each of a shape.
fn pictures(rows: u64, shape: &[u64]) -> DatasetValue {
    let pictures = shipped(Dtype::Float32, &[&[rows], shape].concat());
    let classes = shipped(Dtype::Int64, &[rows]);
    let tensors = vec![(pictures, false), (classes, false)];
    DatasetValue { rows, tensors, layout: Layout::Row }
}

/// `torchvision.datasets`, whose sizes are known.
#[starlark_module]
pub(crate) fn of_torchvision(builder: &mut GlobalsBuilder) {
    fn MNIST<'v>(
        #[starlark(default = NoneType)] root: Value<'v>,
        #[starlark(default = true)] train: bool,
        #[starlark(kwargs)] told: Value<'v>,
    ) -> anyhow::Result<DatasetValue> {
        let _ = (root, told);
        Ok(pictures(if train { 60_000 } else { 10_000 }, &[1, 28, 28]))
    }

    fn FashionMNIST<'v>(
        #[starlark(default = NoneType)] root: Value<'v>,
        #[starlark(default = true)] train: bool,
        #[starlark(kwargs)] told: Value<'v>,
    ) -> anyhow::Result<DatasetValue> {
        let _ = (root, told);
        Ok(pictures(if train { 60_000 } else { 10_000 }, &[1, 28, 28]))
    }

    fn CIFAR10<'v>(
        #[starlark(default = NoneType)] root: Value<'v>,
        #[starlark(default = true)] train: bool,
        #[starlark(kwargs)] told: Value<'v>,
    ) -> anyhow::Result<DatasetValue> {
        let _ = (root, told);
        Ok(pictures(if train { 50_000 } else { 10_000 }, &[3, 32, 32]))
    }

    fn FakeData<'v>(
        #[starlark(default = 1000)] size: i32,
        #[starlark(default = NoneType)] image_size: Value<'v>,
        #[starlark(default = 10)] num_classes: i32,
        #[starlark(default = NoneType)] transform: Value<'v>,
        #[starlark(kwargs)] told: Value<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<DatasetValue> {
        let _ = (num_classes, transform, told);
        let shape = take::counts(image_size, "image_size", heap)?;
        let rows = u64::try_from(size).unwrap_or_default();
        Ok(pictures(rows, shape.as_deref().unwrap_or(&[3, 224, 224])))
    }
}

/// The number of rows of a data set.
fn rows<'v>(dataset: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<u64> {
    if let Some(dataset) = dataset.downcast_ref::<DatasetValue>() {
        return Ok(dataset.rows);
    }
    let own = crate::classes::special_methods::length(dataset, eval)
        .map_err(starlark::Error::into_anyhow)?;
    let length = match own {
        Some(length) => length,
        None => dataset.length().map_err(starlark::Error::into_anyhow)?,
    };
    Ok(u64::try_from(length).unwrap_or(0))
}

/// The arguments of a DataLoader that change no batch.
const UNSEEN: [&str; 6] = [
    "prefetch_factor",
    "timeout",
    "worker_init_fn",
    "generator",
    "multiprocessing_context",
    "pin_memory_device",
];

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn TensorDataset<'v>(
        #[starlark(args)] tensors: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<DatasetValue> {
        let given: Vec<Tensor> = tensors
            .items
            .iter()
            .map(|of| crate::tensor::value::like(*of))
            .collect::<Result<_, _>>()?;
        let sizes = |of: &Tensor| of.shape().first().copied();
        let rows = given.first().and_then(sizes);
        let alike = given.iter().all(|of| sizes(of) == rows);
        let Some(rows) = rows.filter(|_| alike) else {
            let text = "AssertionError: Size mismatch between tensors";
            return Err(anyhow::Error::new(crate::process::raised::Raised {
                text: text.to_owned(),
                help: None,
            }));
        };
        let process = process(eval)?;
        let mut tensors = Vec::new();
        for of in given {
            let fill = process.dist()?.fill_of(&of);
            tensors.push((of, matches!(fill, Some(Fill::Seeded { .. }))));
        }
        Ok(DatasetValue { rows, tensors, layout: Layout::Row })
    }

    fn DataLoader<'v>(
        dataset: Value<'v>,
        #[starlark(default = 1)] batch_size: i32,
        #[starlark(default = NoneType)] shuffle: Value<'v>,
        #[starlark(default = NoneType)] sampler: Value<'v>,
        #[starlark(default = NoneType)] batch_sampler: Value<'v>,
        #[starlark(require = named, default = false)] drop_last: bool,
        #[starlark(require = named, default = 0)] num_workers: i32,
        #[starlark(require = named, default = false)] pin_memory: bool,
        #[starlark(require = named, default = false)] persistent_workers: bool,
        #[starlark(require = named, default = NoneType)] collate_fn: Value<'v>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (num_workers, pin_memory, persistent_workers);
        if let Some((name, _)) = named.entries.iter().find(|(name, _)| !UNSEEN.contains(name)) {
            anyhow::bail!("a DataLoader's {name} is not followed here");
        }
        let (batch_size, sampler, drop_last) = match batch_sampler {
            none if none.is_none() => (batch_size, sampler, drop_last),
            own => {
                let Some(own) = own.downcast_ref::<BatchSamplerValue>() else {
                    anyhow::bail!("only a BatchSampler is a batch_sampler here");
                };
                if batch_size != 1 || shuffle.to_bool() || !sampler.is_none() || drop_last {
                    return Err(crate::process::raised::raised(
                        "ValueError: batch_sampler option is mutually exclusive with batch_size, \
                         shuffle, sampler, and drop_last",
                    ));
                }
                let size = i32::try_from(own.batch_size).unwrap_or(i32::MAX);
                (size, eval.heap().alloc(own.sampler.clone()), own.drop_last)
            }
        };
        if !collate_fn.is_none() {
            let own = sampler.downcast_ref::<SamplerValue>();
            let size = u64::try_from(batch_size).ok().filter(|size| *size > 0);
            let Some(size) = size else { anyhow::bail!("a batch has rows") };
            let sizes = (size, drop_last);
            return subsets::collated(dataset, own, shuffle.to_bool(), sizes, collate_fn, eval);
        }
        let own = match dataset.downcast_ref::<DatasetValue>().cloned() {
            Some(dataset) => Some(dataset),
            None => match subsets::of_subset(dataset, eval)? {
                Some(dataset) => Some(dataset),
                None => crate::data::user_datasets::of_program(dataset, eval)?,
            },
        };
        let Some(dataset) = own else {
            anyhow::bail!(
                "a DataLoader is taken of TensorDataset(x, y) here, or of a class with __len__ and \
                 __getitem__, whose shapes are known: TensorDataset(torch.randn(1000, 10), \
                 torch.randn(1000, 5))"
            );
        };
        let own = sampler.downcast_ref::<SamplerValue>().cloned();
        anyhow::ensure!(
            own.is_some() || sampler.is_none(),
            "only a DistributedSampler, RandomSampler or SequentialSampler samples here"
        );
        if own.is_some() && shuffle.to_bool() {
            let text = "sampler option is mutually exclusive with shuffle";
            return Err(refused(lockstep_torch::c10d::DistError::new(
                lockstep_torch::c10d::ErrorKind::ValueError,
                text,
            )));
        }
        let sampler = own.unwrap_or_else(|| SamplerValue::whole(dataset.rows));
        let batch_size = u64::try_from(batch_size).ok().filter(|size| *size > 0);
        let Some(batch_size) = batch_size else { anyhow::bail!("a batch has rows") };
        let loader = LoaderValue { dataset, sampler, batch_size, drop_last };
        anyhow::ensure!(loader.batches() <= MOST, "at most {MOST} batches an epoch");
        Ok(eval.heap().alloc(loader))
    }
}
