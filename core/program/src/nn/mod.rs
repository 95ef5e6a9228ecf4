//! `torch.nn` and DistributedDataParallel. `parameter` is what a parameter is known by, `modules` the tree of modules,
//! `calls` their forward passes and `backward` the backward pass, in which DDP reduces (`ddp_passes`).

pub(crate) mod backward;
pub(crate) mod batch_norm;
pub(crate) mod calls;
pub(crate) mod checkpoints;
pub(crate) mod ddp_passes;
pub(crate) mod functional;
pub(crate) mod join;
pub(crate) mod layer_class;
pub(crate) mod layers;
pub(crate) mod losses;
pub(crate) mod module_arguments;
pub(crate) mod module_methods;
pub(crate) mod module_values;
pub(crate) mod modules;
pub(crate) mod optimizer;
pub(crate) mod output;
pub(crate) mod output_methods;
pub(crate) mod output_shape;
pub(crate) mod parameter;
pub(crate) mod parameters;
pub(crate) mod results;
pub(crate) mod sequence_layers;
pub(crate) mod state;
pub(crate) mod sync_batch_norm;
pub(crate) mod unfollowed_names;
pub(crate) mod wrapped_models;
