//! The texts about a difference between two calls under one number: its kind, its fix, and each side.

use crate::kinds::Kind;
use crate::model::index::Made;
use crate::words;
use lockstep_core::trace::CallLog;
use lockstep_core::trace::{CallSignature, Difference};

/// `all_reduce of 300 float32`, as far as the difference is about that.
pub(crate) fn describe(log: &CallLog, made: Made<'_>, difference: Difference) -> String {
    let signature = CallSignature::of(&made.record.call);
    let op = words::op(log, made);
    let known = |text: Option<String>| text.unwrap_or_else(|| "nothing".to_owned());
    match difference {
        Difference::Op => op,
        Difference::Size => {
            let numel = known(signature.numel.map(|numel| numel.to_string()));
            format!("{op} of {numel} elements")
        }
        Difference::Dtype => {
            format!("{op} of {}", known(signature.dtype.map(|dtype| dtype.name().to_owned())))
        }
        Difference::ReduceOp => {
            format!("{op} with {}", known(signature.reduce_op.map(|op| op.name().to_owned())))
        }
        Difference::Root => {
            format!("{op} with root {}", known(signature.root.map(|root| root.to_string())))
        }
    }
}

pub(crate) fn kind_of(difference: Difference) -> Kind {
    match difference {
        Difference::Op => Kind::CollectiveMismatch,
        Difference::Size => Kind::SizeMismatch,
        Difference::Dtype => Kind::DtypeMismatch,
        Difference::ReduceOp => Kind::ReduceOpMismatch,
        Difference::Root => Kind::RootMismatch,
    }
}

pub(crate) fn fix_of(difference: Difference) -> &'static str {
    match difference {
        Difference::Op => {
            "Find the branch that sends ranks to different calls, and make every rank of the group \
             call the same collective there."
        }
        Difference::Size => {
            "Give the call a tensor of the same number of elements on every rank: look for a last \
             batch that is smaller, a filter that keeps different counts, or a shape that depends \
             on the rank."
        }
        Difference::Dtype => {
            "Cast to one dtype on every rank before the call: look for autocast, a default dtype or \
             a checkpoint that differs between ranks."
        }
        Difference::ReduceOp => "Pass the same op= on every rank.",
        Difference::Root => {
            "Pass the same src= or dst= on every rank; it must not depend on the rank."
        }
    }
}
