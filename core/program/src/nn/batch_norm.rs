//! Batch norms: their parameters and their running statistics.

use crate::nn::module_arguments::Rest;
use crate::nn::modules::layer;
use crate::nn::output_shape::Shape;
use crate::python::numbers;
use lockstep_core::dtype::Dtype;
use lockstep_torch::ddp::model::module;
use starlark::values::{Heap, Value};

/// `nn.BatchNorm1d`, `nn.BatchNorm2d` and `nn.SyncBatchNorm`, with the statistics that DDP broadcasts.
pub(crate) fn batch_norm<'v>(
    name: &str,
    args: &Rest<'_, 'v>,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    let features = args.get("num_features", 0).unwrap_or_else(Value::new_none);
    let features = u64::try_from(numbers::whole(features, "num_features")?)?;
    let has = |name: &str, nth| args.get(name, nth).is_none_or(Value::to_bool);
    let (affine, tracks) = (has("affine", 3), has("track_running_stats", 4));
    let size = [features];
    let params: [(&str, &[u64]); 2] = [("weight", &size), ("bias", &size)];
    let buffers: [(&str, &[u64], Dtype); 3] = [
        ("running_mean", &size, Dtype::Float32),
        ("running_var", &size, Dtype::Float32),
        ("num_batches_tracked", &[], Dtype::Int64),
    ];
    let params = if affine { &params[..] } else { &[] };
    let buffers = if tracks { &buffers[..] } else { &[] };
    Ok(layer(&module(name, params, buffers, Dtype::Float32, 1), Shape::Same, heap))
}
