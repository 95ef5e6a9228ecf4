//! `torch`'s own functions: making tensors, joining them, devices, streams, types and settings.

pub(crate) mod amp;
pub(crate) mod callable;
pub(crate) mod checkpoint;
pub(crate) mod construction;
pub(crate) mod cuda;
pub(crate) mod globals;
pub(crate) mod joining;
pub(crate) mod settings;
pub(crate) mod streams;
