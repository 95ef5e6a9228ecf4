//! The signature that two calls must share to be the same collective.

use super::{Call, Called, TensorShape};
use crate::dtype::Dtype;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;

/// The values that the members of a group must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSignature<'a> {
    /// The call's name.
    pub op: &'a str,
    /// Elements, where every member must have the same number.
    pub numel: Option<u64>,
    /// The element type; `None` where the call has no tensor or the type is not known.
    pub dtype: Option<Dtype>,
    /// The operation that combines elements; `None` where the call reduces nothing or it is not known.
    pub reduce_op: Option<ReduceOp>,
    /// The root; `None` where the call has none or it is not known.
    pub root: Option<GroupRank>,
}

/// The first thing that two signatures disagree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The call's name.
    Op,
    /// The number of elements.
    Size,
    /// The element type.
    Dtype,
    /// The operation that combines elements.
    ReduceOp,
    /// The root.
    Root,
}

impl<'a> CallSignature<'a> {
    /// The known values of a call.
    pub fn of(call: &'a Called) -> CallSignature<'a> {
        let tensors = compared(call);
        let dtype = typed(call).first().map(|tensor| tensor.dtype);
        CallSignature {
            op: &call.op,
            numel: (!tensors.is_empty()).then(|| numel(tensors)),
            dtype: dtype.filter(|dtype| *dtype != Dtype::Unknown),
            reduce_op: call.reduce_op,
            root: call.root,
        }
    }

    /// The difference, or `None` if the calls match as far as both are known.
    pub fn difference(&self, other: &CallSignature<'_>) -> Option<Difference> {
        fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            matches!((a, b), (Some(a), Some(b)) if a != b)
        }
        if self.op != other.op {
            Some(Difference::Op)
        } else if differ(self.numel, other.numel) {
            Some(Difference::Size)
        } else if differ(self.dtype, other.dtype) {
            Some(Difference::Dtype)
        } else if differ(self.reduce_op, other.reduce_op) {
            Some(Difference::ReduceOp)
        } else if differ(self.root, other.root) {
            Some(Difference::Root)
        } else {
            None
        }
    }
}

/// The tensors whose sizes every member must agree on: none where PyTorch lets them differ
/// (`all_to_all` with splits) or does not know the call.
fn compared(call: &Called) -> &[TensorShape] {
    let (inputs, outputs) = (call.inputs.as_slice(), call.outputs.as_slice());
    match call.op.as_str() {
        "all_reduce" | "broadcast" | "reduce" | "all_reduce_coalesced" => {
            // In-place calls of a plan have an output only.
            if inputs.is_empty() { outputs } else { inputs }
        }
        "all_gather" | "gather" => inputs,
        "reduce_scatter" | "scatter" => outputs,
        _ => &[],
    }
}

/// The tensors whose type every member must agree on: those of `all_to_all` too, whose sizes may differ.
fn typed(call: &Called) -> &[TensorShape] {
    match call.op.starts_with("all_to_all") {
        true if call.inputs.is_empty() => &call.outputs,
        true => &call.inputs,
        false => compared(call),
    }
}

/// Elements of all tensors.
pub fn numel(tensors: &[TensorShape]) -> u64 {
    tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.numel()))
}

/// True if two calls under one number of a group cannot be the same collective, as far as both are known.
pub(crate) fn calls_differ(a: &Call, b: &Call) -> bool {
    let (a, b) = (Called::from(a), Called::from(b));
    CallSignature::of(&a).difference(&CallSignature::of(&b)).is_some()
}
