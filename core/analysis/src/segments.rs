//! The time of a rank as stretches that follow each other: computing, communicating, waiting for a peer, or idle.

use crate::activity::Activity;
use crate::meetings::Meetings;
use lockstep_core::rank::GlobalRank;

/// The occupation of a rank. A moment at which several things go on counts for the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Busy {
    /// It computes.
    Computing,
    /// A call moves data, or may do so.
    Communicating,
    /// Its calls wait for peers that are not ready.
    Waiting,
}

/// A stretch of a rank's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) from_ps: u64,
    pub(crate) to_ps: u64,
    pub(crate) busy: Busy,
}

/// The stretches of a rank in which it is not idle, in order; they do not overlap.
pub(crate) fn segments(activity: &Activity, meetings: &Meetings, rank: GlobalRank) -> Vec<Segment> {
    let Some(own) = activity.ranks.get(rank.index()) else { return Vec::new() };
    // Begins count +1, ends -1.
    let mut borders: Vec<(u64, Busy, i32)> =
        Vec::with_capacity(2 * (own.computations.len() + 2 * own.calls.len()));
    let mut add = |from_ps: u64, to_ps: u64, busy: Busy| {
        if to_ps > from_ps {
            borders.push((from_ps, busy, 1));
            borders.push((to_ps, busy, -1));
        }
    };
    for one in own.computations.iter().filter(|one| !one.is_pause) {
        add(one.from_ps, one.to_ps, Busy::Computing);
    }
    for (at, call) in own.calls.iter().enumerate() {
        let Some(ended_ps) = call.ended_ps else {
            add(call.ready_ps, activity.end_ps, Busy::Waiting);
            continue;
        };
        let needed = meetings.last((rank, at)).map_or(call.ready_ps, |last| last.ready_ps);
        let moves_ps = needed.clamp(call.ready_ps, ended_ps);
        add(call.ready_ps, moves_ps, Busy::Waiting);
        add(moves_ps, ended_ps, Busy::Communicating);
    }
    borders.sort_unstable();
    let mut segments: Vec<Segment> = Vec::new();
    let mut going_on = [0i32; 3];
    let mut from_ps = 0;
    for (time_ps, busy, step) in borders {
        let first = [Busy::Computing, Busy::Communicating, Busy::Waiting]
            .into_iter()
            .zip(going_on)
            .find(|(_, count)| *count > 0);
        if let Some((busy, _)) = first.filter(|_| time_ps > from_ps) {
            match segments.last_mut().filter(|last| last.to_ps == from_ps && last.busy == busy) {
                Some(last) => last.to_ps = time_ps,
                None => segments.push(Segment { from_ps, to_ps: time_ps, busy }),
            }
        }
        from_ps = time_ps;
        if let Some(count) = going_on.get_mut(busy as usize) {
            *count += step;
        }
    }
    segments
}
