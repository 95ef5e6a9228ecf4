//! Arrows between what belongs together: a send and its receive, the members of a collective.
//!
//! As `lockstep_analysis` pairs them: the n-th send of a rank to another belongs to the n-th
//! receive of it there; a collective has its number in common. Here for one call at a time.

use super::lanes::{OPEN, Row, Span};
use super::session::Held;
use lockstep_core::group::{BackendName, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord};
use lockstep_web_protocol::{CallId, Link, Spot};

impl Held {
    /// The links of a span to ranks in sight.
    pub(super) fn links(
        &self,
        rank: u32,
        lane: u32,
        row: Row,
        span: &Span,
        in_sight: &[u32],
    ) -> Vec<Link> {
        match row {
            Row::Messages if span.to != OPEN => {
                let from = Spot { rank, lane: Some(lane), time_ps: span.from };
                vec![Link { from, to: Spot { rank: span.what, lane: None, time_ps: span.to } }]
            }
            Row::Calls(_) => {
                let call = self.call(CallId { rank, work: span.what });
                let found = self.log.as_ref().zip(call);
                found
                    .map(|(log, call)| self.links_of(log, rank, call, in_sight))
                    .unwrap_or_default()
            }
            Row::Messages | Row::Program | Row::Stream => Vec::new(),
        }
    }

    fn links_of(
        &self,
        log: &CallLog,
        rank: u32,
        record: &CallRecord,
        in_sight: &[u32],
    ) -> Vec<Link> {
        if record.call.p2p {
            return self.other_end(log, rank, record).into_iter().collect();
        }
        let members = self.members(log, record);
        let made = members.iter().filter_map(|member| member.call.as_ref());
        let last = made.clone().max_by_key(|mark| mark.from_ps);
        // If one member did not come, nobody was the last.
        let Some(last) = last.filter(|_| members.iter().all(|member| member.call.is_some())) else {
            return Vec::new();
        };
        let spot = |mark: &lockstep_web_protocol::CallMark| Spot {
            rank: mark.id.rank,
            lane: mark.lane,
            time_ps: mark.from_ps,
        };
        let others = made.filter(|mark| mark.id != last.id && in_sight.contains(&mark.id.rank));
        others.map(|mark| Link { from: spot(last), to: spot(mark) }).collect()
    }

    /// The link of a send and its receive.
    fn other_end(&self, log: &CallLog, rank: u32, record: &CallRecord) -> Option<Link> {
        let group = log.groups.get(record.call.group.index())?;
        let peer = group.global_rank(record.call.peer?)?;
        let sends = sends(record);
        // The position among equal calls.
        let like = |from: u32, to: GlobalRank, sends: bool| {
            self.calls_of(from).iter().filter(move |call| is_of(call, record, group, to, sends))
        };
        let place = like(rank, peer, sends).position(|call| call.work == record.work)?;
        let other = like(peer.0, GlobalRank(rank), !sends).nth(place)?;
        let (send, receive) = match sends {
            true => ((rank, record), (peer.0, other)),
            false => ((peer.0, other), (rank, record)),
        };
        let spot = |(rank, call): (u32, &CallRecord), time_ps: u64| Spot {
            rank,
            lane: self.lane_of(rank, call.work),
            time_ps,
        };
        let end = receive.1.completed_ps.unwrap_or(receive.1.scheduled_ps);
        Some(Link { from: spot(send, send.1.scheduled_ps), to: spot(receive, end) })
    }
}

fn sends(record: &CallRecord) -> bool {
    record.call.op.contains("send")
}

/// True if a call is a send (or a receive) between the same ranks as `like`, to or from `peer`.
fn is_of(
    call: &CallRecord,
    like: &CallRecord,
    group: &ProcessGroup,
    peer: GlobalRank,
    is_send: bool,
) -> bool {
    // NCCL does not look at tags.
    let tags = group.backend() == BackendName::Nccl || call.call.tag == like.call.tag;
    call.call.p2p
        && tags
        && call.call.group == like.call.group
        && sends(call) == is_send
        && call.call.peer.and_then(|peer| group.global_rank(peer)) == Some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::tests::held_of;
    use lockstep_scenarios::torch_call;

    fn links(held: &Held, rank: u32, nth: usize, in_sight: &[u32]) -> Vec<Link> {
        let record = held.calls_of(rank)[nth].clone();
        held.links_of(held.log.as_ref().unwrap(), rank, &record, in_sight)
    }

    #[test]
    fn a_send_leads_to_its_receive_from_both_sides() {
        let call = torch_call("isend").unwrap();
        let held = held_of(&call.plan(&call.options()).unwrap());
        let sends = |rank: u32| sends(&held.calls_of(rank)[0]);
        let first = links(&held, 0, 0, &[]);
        let [link] = first[..] else { panic!("{first:?}") };
        let (from, to) = if sends(0) { (0, 1) } else { (1, 0) };
        assert_eq!((link.from.rank, link.to.rank), (from, to));
        assert!(link.from.time_ps <= link.to.time_ps && link.to.lane.is_some());
        // The same link from the other side.
        let other = (0..2).find(|nth| links(&held, 1, *nth, &[]) == first);
        assert!(other.is_some());
    }

    #[test]
    fn a_collective_leads_from_the_last_member_to_those_in_sight() {
        let call = torch_call("all_reduce").unwrap();
        let held = held_of(&call.plan(&call.options()).unwrap());
        let found = links(&held, 1, 0, &[0, 1, 2]);
        assert!(!found.is_empty());
        assert!(found.iter().all(|link| link.from == found[0].from && link.to.rank < 3));
        assert!(found.iter().all(|link| link.from.time_ps >= link.to.time_ps));
    }
}
