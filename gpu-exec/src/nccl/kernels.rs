//! The kernel for each operation: names into `kernels.cu`, which is compiled when a rank starts.

use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;

/// The text that NVRTC compiles. It includes nothing: no header has to be on the machine.
pub(super) const SOURCE: &str = include_str!("kernels.cu");

/// The kernel that keeps a device busy.
pub(super) const COMPUTE: &str = "compute";

/// The kernel for one step of a reduction, as `lockstep_core::reduce::combine`; `None` for pairs
/// that it leaves alone.
pub(super) fn combine(dtype: Dtype, op: ReduceOp) -> Option<String> {
    if !op.supports(dtype) {
        return None;
    }
    let dtype = dtype.as_real();
    let what = match (dtype, op) {
        (Dtype::Bool, ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor) => "bor",
        (Dtype::Bool, ReduceOp::Product | ReduceOp::Min | ReduceOp::Band) => "band",
        (_, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_)) => "sum",
        (_, ReduceOp::Product) => "product",
        (_, ReduceOp::Min) => "min",
        (_, ReduceOp::Max) => "max",
        (_, ReduceOp::Band) => "band",
        (_, ReduceOp::Bor) => "bor",
        (_, ReduceOp::Bxor) => "bxor",
    };
    Some(format!("{dtype}_{what}"))
}

/// The kernel for `lockstep_core::reduce::premultiply`.
pub(super) fn premultiply(dtype: Dtype) -> String {
    format!("{}_premultiply", dtype.as_real())
}

/// The kernel for `lockstep_core::reduce::divide`.
pub(super) fn divide(dtype: Dtype) -> String {
    format!("{dtype}_divide")
}
