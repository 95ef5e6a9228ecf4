//! `torch.utils.data`: how many batches a rank gets, of which shape. What is in them is not followed.

pub(crate) mod batch_sampler;
pub(crate) mod datasets;
pub(crate) mod loaders;
pub(crate) mod subsets;
pub(crate) mod user_datasets;
