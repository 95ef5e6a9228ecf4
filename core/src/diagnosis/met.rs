//! Sends and receives of which both sides were called, and which ended on neither. A dump holds no
//! tags: two calls that seem to meet may never.

use super::causes::{Cause, Scene, evidence};
use super::report::{Certainty, Kind};
use super::words;
use crate::rank::GlobalRank;
use crate::trace::Outcome;

/// True if a rank's sends or receives have met the other side's, and have ended on neither.
pub(super) fn stands_in_one(scene: &Scene<'_, '_>, rank: GlobalRank) -> bool {
    let from = scene.p2p.partition_point(|pending| pending.made.rank < rank);
    let mut own = scene.p2p.iter().skip(from).take_while(|pending| pending.made.rank == rank);
    own.any(|pending| pending.partner.is_some_and(|partner| partner.pending()))
}

/// The first pair of a recording that seems to have met and has ended on neither side, where nothing
/// else is wrong. Of a run or a simulation the tags are known.
pub(super) fn never_completed(scene: &Scene<'_, '_>) -> Option<Cause> {
    let log = scene.job.log;
    if !log.recorded {
        return None;
    }
    let both = scene.p2p.iter().filter_map(|pending| {
        let partner = pending.partner.filter(|partner| partner.pending())?;
        pending.made.record.call.op.contains("send").then_some((pending.made, partner))
    });
    let (send, receive) = both.min_by_key(|(send, receive)| {
        let since = send.record.scheduled_ps.max(receive.record.scheduled_ps);
        (since, send.rank, receive.rank, send.record.work)
    })?;
    let mut pair = vec![send.rank, receive.rank];
    pair.sort_unstable();
    Some(Cause {
        kind: Kind::CallNeverCompleted,
        culprits: Vec::new(),
        also_victims: pair,
        group: Some(send.record.call.group),
        seq: send.record.seq,
        op: Some(send.record.call.op.clone()),
        certainty: match log.outcome {
            Outcome::TimedOut => Certainty::Likely,
            _ => Certainty::Undecidable,
        },
        message: format!(
            "Rank {} waits in {}, and rank {} in {}: they seem to meet, and neither saw its call end. \
             Their tags may differ, which a dump does not hold (gloo and MPI heed them, NCCL does not); \
             or the network or a device stalled, or the job was still running when this was recorded.",
            send.rank,
            words::call(log, send),
            receive.rank,
            words::call(log, receive),
        ),
        fix: "If the job was hung, compare the tag= of the two calls, then look at the network and the \
              devices. If it was running, record again when it hangs."
            .to_owned(),
        evidence: vec![evidence(scene, send, "waits in"), evidence(scene, receive, "waits in")],
    })
}
