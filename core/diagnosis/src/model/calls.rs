//! Compares two calls by their signatures.

use lockstep_core::trace::CallRecord;
use lockstep_core::trace::CallSignature;

pub(crate) fn alike(a: &CallRecord, b: &CallRecord) -> bool {
    CallSignature::of(&a.call).difference(&CallSignature::of(&b.call)).is_none()
}
