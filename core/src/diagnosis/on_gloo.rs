//! What gloo does with calls that do not agree. It compares nothing: a message fits into the room
//! for it or it does not. A plan's calls wait for each other where they differ, so that the finding
//! stands where the mistake is; what PyTorch would show instead is said with it.
//!
//! Seen on PyTorch 2.7.1 (`gloo/transport/tcp/pair.cc`: `op.preamble.length <= op.nbytes`).

use super::causes::{Cause, Scene};
use super::report::Kind;
use crate::group::{BackendName, GroupId};

/// Adds it to what is said of a mismatch in a plan's call.
pub(super) fn tell(scene: &Scene<'_, '_>, cause: &mut Cause) {
    if !cause.group.is_some_and(|group| planned(scene, group)) {
        return;
    }
    let one_way = matches!(
        cause.op.as_deref(),
        Some("broadcast" | "scatter" | "gather" | "send" | "recv" | "isend" | "irecv")
    );
    cause.message += match (cause.kind, one_way) {
        (Kind::SizeMismatch, true) => {
            " gloo itself does not compare sizes: what is smaller than the room for it leaves the \
             rest as it was, and the ranks go on with that; what is larger ends the receiver's \
             process (SIGABRT)."
        }
        (Kind::SizeMismatch, false) => {
            " gloo itself does not compare sizes: a rank that gets more than it has room for ends \
             (SIGABRT), others go on with wrong values, or raise that its connection was closed."
        }
        (Kind::DtypeMismatch, _) => {
            " gloo itself does not compare types: it takes the bytes for the receiver's type, and \
             where they fit, the ranks go on with wrong values; where there are more of them than \
             room, the receiver's process ends (SIGABRT)."
        }
        (Kind::ReduceOpMismatch, _) => {
            " gloo itself does not compare operations: each rank reduces with its own, and the \
             ranks go on with wrong values."
        }
        _ => "",
    };
}

/// What is said of a send and a receive of different sizes in a plan.
pub(super) fn of_message(scene: &Scene<'_, '_>, group: GroupId, fits: bool) -> &'static str {
    match (planned(scene, group), fits) {
        (false, _) => "",
        (true, true) => {
            " gloo itself does not compare sizes: the rest of the receiver's tensor stays as it \
             was, and both go on."
        }
        (true, false) => {
            " gloo itself ends the receiver's process there (SIGABRT), for more comes than it has \
             room for."
        }
    }
}

/// Whether it is a call of a plan, on gloo.
fn planned(scene: &Scene<'_, '_>, group: GroupId) -> bool {
    let group = scene.job.group(group);
    let gloo = group.is_some_and(|group| group.backend() == BackendName::Gloo);
    gloo && scene.job.log.plan.is_some()
}
