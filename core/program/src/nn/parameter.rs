//! One parameter, buffer or gradient of a model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) at: usize,
    pub(crate) index: usize,
    pub(crate) grad: bool,
    /// True for a buffer; buffers are numbered after the parameters.
    pub(crate) buffer: bool,
    pub(crate) graded: Arc<AtomicBool>,
}
