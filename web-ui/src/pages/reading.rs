//! The common parts of the step views' addresses: element types and reductions.

use super::asked::Asked;
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::{ReduceOp, ReduceOpError};

/// The element type that the address names; one that cannot be computed with is refused.
pub(super) fn dtype(asked: &mut Asked<'_>) -> Option<Dtype> {
    asked.one_of("dtype", &Dtype::COMPUTABLE, |dtype| dtype.to_string(), "dtype")
}

/// The reduction that the address names.
pub(super) fn op(asked: &mut Asked<'_>) -> Option<ReduceOp> {
    match asked.text("op")?.parse::<ReduceOp>() {
        Ok(op) => Some(op),
        Err(error) => {
            let names = ReduceOp::ALL.iter().map(|op| op.name());
            let ways = match error {
                ReduceOpError::Factor => vec![asked.with("op", "PREMUL_SUM:0.5")],
                ReduceOpError::Unknown(_) => asked.near("op", names, 3),
            };
            asked.refuse("op", &format!("{}.", sentence(&error.to_string())), ways);
            None
        }
    }
}

/// With a capital.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
