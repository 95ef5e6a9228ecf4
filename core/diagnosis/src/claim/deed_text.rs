//! The texts about a deviation: calls that were skipped, added or swapped, and what to do about them.

use crate::facts::alternatives::Alternatives;
use crate::facts::deed::Deed;
use crate::model::ddp_frames::DdpPart;
use crate::words;

/// `Rank 2 left out all_reduce #7 of dp (train.py:88).`
pub(crate) fn skipped(who: &str, deed: &Deed, group: &str) -> String {
    let line = words::at_line(deed.line.clone());
    let likely = if deed.alternatives == Alternatives::None { "" } else { " most likely" };
    if let Some(pause) = deed.pause {
        return format!(
            "{who}{likely} never called {} #{} of {group}{line}: it is one of #{} to #{}, which are all \
             alike, and {}.",
            deed.named(),
            pause.seq,
            deed.seq,
            deed.last_seq,
            pause.said()
        );
    }
    if deed.last_seq > deed.seq {
        return format!(
            "{who}{likely} never called one {} of {group} that the others call{line}: one of \
             #{} to #{}, which are all alike, so the recording cannot tell which.",
            deed.named(),
            deed.seq,
            deed.last_seq
        );
    }
    let more = if deed.count > 1 { format!(" and {} more", deed.count - 1) } else { String::new() };
    let (op, purpose) = (deed.named(), deed.ddp.map_or("", ddp_purpose));
    format!("{who}{likely} never called {op} #{} of {group}{line}{more}{purpose}.", deed.seq)
}

/// `Rank 0 made 1 call more of dp than the others: …`; of a plan, whose later calls it may not have
/// come to, `Rank 0's program makes 8 calls …`. The others may make calls from that line as well:
/// [`crate::facts::call_sites::nobody_else`] says where they do not.
pub(crate) fn extra(who: &str, deed: &Deed, group: &str) -> String {
    let line = words::at_line(deed.line.clone());
    let likely = if deed.alternatives == Alternatives::None { "" } else { " most likely" };
    let calls = words::count(deed.count, "call");
    let made = match deed.planned {
        true => format!("{who}'s program{likely} makes"),
        false => format!("{who}{likely} made"),
    };
    format!(
        "{made} {calls} more of {group} than the others: {} at #{}{line}.",
        deed.named(),
        deed.seq
    )
}

/// `Rank 1 made two calls of dp in the other order: …`
pub(crate) fn swapped(who: &str, deed: &Deed, group: &str) -> String {
    let (other, other_line) = deed.other.clone().unwrap_or_default();
    let likely = if deed.alternatives == Alternatives::None { "" } else { " most likely" };
    if deed.count > 2 {
        let count = deed.count;
        let orders = if other.is_empty() { other } else { format!(": {other}") };
        return format!("{who}{likely} made {count} calls of {group} in another order{orders}.");
    }
    format!(
        "{who}{likely} made two calls of {group} in the other order: {other}{} before {}{}.",
        words::at_line(other_line),
        deed.named(),
        words::at_line(deed.line.clone()),
    )
}

/// `Rank 2's backward pass left parameters without a gradient …`
pub(crate) fn unused(who: &str, deed: &Deed, group: &str) -> String {
    let line = words::at_line(deed.line.clone());
    format!(
        "{who} ran the backward pass like the others, but never called {} #{} of {group}{line}, \
         with which DDP reduces a bucket: some of the bucket's parameters got no gradient.",
        deed.op, deed.seq
    )
}

/// The purpose of a call that DDP makes by itself, as a clause; empty for its buckets, of which others tell.
fn ddp_purpose(part: DdpPart) -> &'static str {
    match part {
        DdpPart::Verify => {
            ", with which DistributedDataParallel's constructor compares the parameters of all ranks"
        }
        DdpPart::ModuleStates => {
            ", with which DistributedDataParallel's constructor copies the first rank's parameters and \
             buffers to all ranks"
        }
        DdpPart::Forward | DdpPart::Backward => "",
    }
}

/// The fix of a call that a rank leaves out.
pub(crate) fn fix_skipped(ddp: Option<DdpPart>) -> String {
    match ddp {
        Some(DdpPart::Verify | DdpPart::ModuleStates) => {
            "Wrap the model in DistributedDataParallel on every rank of the group, in the same place: look \
             for an exception that is swallowed there, or a condition that is not the same on all ranks."
        }
        Some(DdpPart::Forward | DdpPart::Backward) => {
            "Run the same passes on every rank: look for a batch that one rank skips (an out of \
             memory error that is caught, a NaN), and for no_sync() around different steps."
        }
        None => FIX_SKIPPED,
    }
    .to_owned()
}

const FIX_SKIPPED: &str = "Make the call on every rank of the group, or on none: look for a \
    `continue`, an early return, \
     an exception that is swallowed, or a condition that is not the same on all ranks.";

/// The fix of calls in another order.
pub(crate) const FIX_SWAPPED: &str = "Make the calls of a group in the same order on every rank; never \
    let the order depend on the rank, a set or a dict that ranks build differently.";

/// The fix of a call that only some ranks make.
pub(crate) const FIX_EXTRA: &str = "Make the call on every rank of the group, or on none: look for a \
                                    branch around it, such as `if rank == 0:` around logging or a \
                                    checkpoint.";

/// The fix of parameters that get no gradient.
pub(crate) const FIX_UNUSED: &str = "Pass find_unused_parameters=True to \
    DistributedDataParallel, or let every parameter take part in the loss on every rank (add \
    0 * output.sum() of the branch that is not taken).";

/// Said of a call left out that is one of several in a row.
pub(crate) const ONE_OF_MANY: &str = " The calls before are like it: it may have left out any of them instead, or left \
                           their loop early, as with fewer batches (uneven data).";
