//! The behaviour of gloo with calls that do not agree. It compares nothing: a message fits into the
//! room for it or it does not. A plan's calls wait for each other where they differ, so that the
//! finding stands where the mistake is; what PyTorch would show instead is said with it.
//!
//! Seen on PyTorch 2.7.1 (`gloo/transport/tcp/pair.cc`: `op.preamble.length <= op.nbytes`).

use crate::claim::Claim;
use crate::facts::Facts;
use crate::kinds::Kind;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::trace::Called;

/// Adds it to what is said of a mismatch in a plan's call.
pub(crate) fn tell(facts: &Facts<'_, '_>, claim: &mut Claim) {
    if !claim.group.is_some_and(|group| carried_out(facts, group)) {
        return;
    }
    let one_way = matches!(
        claim.op.as_deref(),
        Some("broadcast" | "scatter" | "gather" | "send" | "recv" | "isend" | "irecv")
    );
    claim.message.said += match (claim.kind, one_way) {
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
        (Kind::RootMismatch, _) => {
            " gloo itself does not compare roots: each rank sends and receives as the root that it \
             names has it. Who sends to a rank that does not receive from it, or receives from one \
             that does not send to it, is stuck until the timeout; the others go on as if nothing \
             were wrong."
        }
        _ => "",
    };
}

/// The words about a send and a receive of a plan that do not fit.
pub(crate) fn of_message(facts: &Facts<'_, '_>, got: &Called, sent: &Called) -> &'static str {
    let bytes = |call: &Called| {
        let tensor = call.inputs.iter().chain(&call.outputs).next()?;
        Some(call.payload().saturating_mul(tensor.dtype.size_bytes())).filter(|bytes| *bytes > 0)
    };
    match (bytes(got), bytes(sent)) {
        (Some(room), Some(bytes)) if carried_out(facts, got.group) => match bytes <= room {
            true => {
                " Lockstep stops there. A real job on gloo would not hang in this call: gloo moves the \
                 bytes and compares nothing, and the receiver goes on with wrong values."
            }
            false => {
                " Lockstep stops there. In a real job gloo ends the receiver's process (SIGABRT), \
                 which has no room for so many bytes."
            }
        },
        _ => "",
    }
}

/// The words about a rank that died while others wait for it in a call. A receive from any source
/// waits on: it may come from another rank.
pub(crate) fn of_death(facts: &Facts<'_, '_>, call: Option<&Called>) -> &'static str {
    let from_any = |call: &Called| call.p2p && call.peer.is_none();
    match call.is_some_and(|call| carried_out(facts, call.group) && !from_any(call)) {
        true => {
            " On gloo a call that waits for data from a process that has ended raises \"Connection \
             closed by peer\" at once, and not at its timeout."
        }
        false => "",
    }
}

/// True for calls that Lockstep itself carried out, on gloo.
fn carried_out(facts: &Facts<'_, '_>, group: GroupId) -> bool {
    let group = facts.job.group(group);
    let gloo = group.is_some_and(|group| group.backend() == BackendName::Gloo);
    gloo && !facts.job.log.recorded
}
