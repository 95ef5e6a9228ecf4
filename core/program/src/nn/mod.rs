//! `torch.nn` and DistributedDataParallel: models as lists of parameters with shapes. A forward pass computes
//! only the shape of the output, and DDP says which collectives its passes issue.

pub(crate) mod ddp_model;
pub(crate) mod ddp_passes;
pub(crate) mod join;
pub(crate) mod losses;
pub(crate) mod model_values;
pub(crate) mod models;
pub(crate) mod module_arguments;
pub(crate) mod module_list;
pub(crate) mod optimizer;
pub(crate) mod output;
pub(crate) mod output_methods;
pub(crate) mod output_shape;
pub(crate) mod parameter;
pub(crate) mod parameters;
pub(crate) mod state;
pub(crate) mod submodules;
pub(crate) mod user_modules;
