//! `torch.utils.data`: the number of batches that a rank gets, and their shapes. Their contents are not
//! followed.

pub(crate) mod batch_sampler;
pub(crate) mod datasets;
pub(crate) mod loaders;
pub(crate) mod subsets;
pub(crate) mod user_datasets;
