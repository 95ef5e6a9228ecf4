//! Reductions, element by element, to the bit.
//!
//! A reducing call is: every rank's tensor times [`premultiplier`] (where the operation has one),
//! then the schedule's steps with [`combine`](fn@combine), then the result divided by [`divisor`] (where it
//! has one). Simulator and host executor both call these, which is what makes their floats the
//! same bits for the same schedule.
//!
//! Sources: gloo's `math.h` (order of operands, NaN in MIN and MAX), NCCL's
//! `src/device/reduce_kernel.h` and `hostToDevRedOp` in `src/enqueue.cc` (AVG, PREMUL_SUM, float8),
//! and results recorded from PyTorch (`tests/data/pytorch`).

mod allowed;
mod combine;
mod float;
mod op;
mod scale;
#[cfg(test)]
mod tests;

pub use allowed::{Refused, allowed};
pub use combine::{combine, combine_to};
pub use op::{Factor, ReduceOp, ReduceOpError};
pub use scale::{divide, divisor, premultiplier, premultiply};
pub use scale::{multiply, quotient};

/// Walks whole elements of `N` bytes in both runs, as far as both go.
#[inline(always)]
fn each_pair<const N: usize>(
    into: &mut [u8],
    incoming: &[u8],
    f: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (into, _) = into.as_chunks_mut::<N>();
    let (incoming, _) = incoming.as_chunks::<N>();
    for (a, b) in into.iter_mut().zip(incoming) {
        *a = f(*a, *b);
    }
}

/// Combines into a place of its own for the results.
#[inline(always)]
fn each_triple<const N: usize>(
    local: &[u8],
    incoming: &[u8],
    into: &mut [u8],
    mut f: impl FnMut([u8; N], [u8; N]) -> [u8; N],
) {
    let (into, _) = into.as_chunks_mut::<N>();
    let pairs = local.as_chunks::<N>().0.iter().zip(incoming.as_chunks::<N>().0);
    for (into, (a, b)) in into.iter_mut().zip(pairs) {
        *into = f(*a, *b);
    }
}

/// The number of pairs for which `f` is true.
#[inline(always)]
fn count_pairs<const N: usize>(
    into: &[u8],
    incoming: &[u8],
    f: impl Fn([u8; N], [u8; N]) -> bool,
) -> u32 {
    let pairs = into.as_chunks::<N>().0.iter().zip(incoming.as_chunks::<N>().0);
    pairs.map(|(a, b)| u32::from(f(*a, *b))).sum()
}

/// Walks whole elements of `N` bytes.
#[inline(always)]
fn each<const N: usize>(elements: &mut [u8], f: impl Fn([u8; N]) -> [u8; N]) {
    let (elements, _) = elements.as_chunks_mut::<N>();
    for element in elements {
        *element = f(*element);
    }
}
