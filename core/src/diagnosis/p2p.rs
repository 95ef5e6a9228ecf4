//! Sends and receives: which belong together, and which nobody answers.
//!
//! Between two ranks, the n-th send of a group and tag meets the n-th receive. A ring buffer may
//! have dropped the first ones of either side, so recordings are paired from the calls that are
//! still pending; those are in order as well.

use super::index::{Job, Made};
use super::words;
use crate::group::GroupId;
use crate::rank::GlobalRank;
use std::collections::BTreeMap;

/// A send or receive that has not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingP2p<'a> {
    pub(super) made: Made<'a>,
    pub(super) peer: GlobalRank,
    /// The call of the peer that it meets, if the peer made it.
    pub(super) partner: Option<Made<'a>>,
}

/// The calls of one direction between two ranks: group, sender, receiver, tag.
type Lane = (GroupId, GlobalRank, GlobalRank, u32);

/// Every send and receive that has not completed, ascending by rank and call.
pub(super) fn pending<'a>(job: &Job<'a>) -> Vec<PendingP2p<'a>> {
    let mut lanes: BTreeMap<Lane, [Vec<Made<'a>>; 2]> = BTreeMap::new();
    for (rank, log) in job.log.logs() {
        for record in log.calls.iter().filter(|record| record.call.p2p) {
            let call = &record.call;
            let peer = job.group(call.group).and_then(|group| words::peer(group, record));
            // A receive from any source waits for nobody in particular.
            let Some(peer) = peer.filter(|peer| *peer != rank) else { continue };
            let made = Made { rank, record };
            let sends = call.op.contains("send");
            let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
            let sides = lanes.entry((call.group, from, to, call.tag)).or_default();
            let [send, receive] = sides;
            if sends { send.push(made) } else { receive.push(made) }
        }
    }
    let mut found = Vec::new();
    for ((_, from, to, _), [mut sends, mut receives]) in lanes {
        if !(complete(job, from) && complete(job, to)) {
            sends.retain(Made::pending);
            receives.retain(Made::pending);
        }
        let longest = sends.len().max(receives.len());
        for at in 0..longest {
            let (send, receive) = (sends.get(at).copied(), receives.get(at).copied());
            for (made, partner, peer) in [(send, receive, to), (receive, send, from)] {
                if let Some(made) = made.filter(Made::pending) {
                    found.push(PendingP2p { made, peer, partner });
                }
            }
        }
    }
    found.sort_by_key(|pending| (pending.made.rank, pending.made.record.work));
    found
}

/// True if everything that the rank ever called is in its log.
fn complete(job: &Job<'_>, rank: GlobalRank) -> bool {
    let first = job.rank(rank).and_then(|log| log.calls.first());
    first.is_some_and(|first| matches!(first.record_id, None | Some(0)))
}
