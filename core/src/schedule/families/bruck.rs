//! Bruck's algorithms: ceil(log2 n) rounds for any group size (Bruck, Ho, Kipnis, Upfal, Weathersby
//! 1997, "Efficient algorithms for all-to-all communications in multiport message-passing systems",
//! section 3 for all_to_all, "index", and section 4 for all_gather, "concatenation"). Few messages,
//! but all_to_all sends each part up to log2 n times: for short messages.

use super::tree;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds, left, right};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// Bruck's.
pub(super) struct Bruck;

impl Family for Bruck {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllGather | Collective::AllToAll)
    }

    fn steps(&self, call: Call) -> u32 {
        match call.collective {
            // The last step puts the parts in order.
            Collective::AllGather => rounds(call.size) + 1,
            // Before each round, and after the last, a step moves parts inside the rank.
            _ => 2 * rounds(call.size) + 1,
        }
    }

    /// all_gather keeps the parts in its own order; all_to_all packs what a round sends, receives as
    /// much, and keeps parts for later rounds.
    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        let n = call.size;
        match call.collective {
            _ if n == 1 => 0,
            Collective::AllGather => n,
            _ => Places { n }.kept(n),
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        match call.collective {
            Collective::AllGather => all_gather(call.size, participant.0, step, actions),
            _ => all_to_all(call.size, participant.0, step, actions),
        }
    }

    fn is_rotation(&self, _call: Call) -> bool {
        true
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        match call.collective {
            _ if step.is_last() => {
                "every rank puts the parts in order; nothing is sent.".to_owned()
            }
            Collective::AllGather => format!(
                "every rank sends all the parts it has, or what is still missing, to {}.",
                left(1 << step.at.min(63))
            ),
            _ if step.at.is_multiple_of(2) => {
                "every rank packs the parts of the next round; nothing is sent.".to_owned()
            }
            _ => {
                let bit = step.at / 2;
                let to = right(1 << bit.min(63));
                format!("every rank sends the parts whose way has bit {bit} to {to}.")
            }
        }
    }
}

impl Explain for Bruck {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::AllGather => Explained {
                formula: Formula::new(Formula::LOG_UP, Formula::ALL_BUT_ONE, Holds::Always),
                idea: "In round s every rank sends all it has to the one 2ˢ places to its left; a \
                    turn at the end puts the parts in order.",
                used_by: "MPICH for short messages when n is no power of two; NCCL's PAT is its \
                    relative.",
                cost: "The fewest rounds for any n and no byte too many; the last copy inside each \
                    rank is its price.",
            },
            _ => Explained {
                formula: Formula::new(Formula::LOG, "n/2·log₂(n)", Holds::PowersOfTwo),
                idea: "In round s every part whose way has bit s set moves 2ˢ places to the right.",
                used_by: "MPICH up to 256 bytes a part.",
                cost: "log₂ n latencies instead of many messages, but a part travels as often as \
                    its way has bits: log₂ n / 2 times the bytes.",
            },
        }
    }
}

/// ceil(log2 n).
fn rounds(n: u32) -> u32 {
    tree::depth(n)
}

/// `(a + b) mod n`.
fn ahead(a: u32, b: u32, n: u32) -> u32 {
    ((u64::from(a) + u64::from(b)) % u64::from(n)) as u32
}

/// Place i of scratch is for the part of rank r + i: round k fills places 2^k to 2^(k+1) - 1 from
/// rank r + 2^k, whose first places they are.
fn all_gather(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let own = Slice::one(Buffer::Input, 0);
    if n == 1 {
        actions.push(Action::Copy { from: own, into: Slice::one(Buffer::Output, 0) });
        return;
    }
    let scratch = |places| Slice::run(Buffer::Scratch, places);
    if step == rounds(n) {
        let into = Slice::run(Buffer::Output, rank..n);
        actions.push(Action::Copy { from: scratch(0..n - rank), into });
        if rank > 0 {
            let into = Slice::run(Buffer::Output, 0..rank);
            actions.push(Action::Copy { from: scratch(n - rank..n), into });
        }
        return;
    }
    if step == 0 {
        actions.push(Action::Copy { from: own, into: scratch(0..1) });
    }
    let distance = 1 << step;
    let count = distance.min(n - distance);
    let from = if step == 0 { own } else { scratch(0..count) };
    actions.push(Action::Send { peer: GroupRank(ahead(rank, n - distance, n)), from });
    let peer = GroupRank(ahead(rank, distance, n));
    actions.push(Action::Receive { peer, into: scratch(distance..distance + count) });
}

/// The places of all_to_all: place i of rank r begins as its part for rank r + i. Round k moves
/// every place that has bit k in its number 2^k ranks on, so that it has gone i ranks in the end.
#[derive(Clone, Copy)]
struct Places {
    n: u32,
}

impl Places {
    /// The number of places below `end` that have bit `round`: where `end` is in that round's message.
    fn before(end: u32, round: u32) -> u32 {
        let (end, bit) = (u64::from(end), 1u64 << round);
        let whole = end / (2 * bit) * bit;
        (whole + (end % (2 * bit)).saturating_sub(bit)) as u32
    }

    /// The chunk where `place` of the message being packed is.
    fn packed(place: u32, round: u32) -> u32 {
        Places::before(place, round)
    }

    /// The chunk where `place` of the message that came is. No round has more places than round 0.
    fn came(self, place: u32, round: u32) -> u32 {
        self.n / 2 + Places::before(place, round)
    }

    /// The chunk where `place` is kept between two rounds.
    fn kept(self, place: u32) -> u32 {
        self.n / 2 * 2 + place
    }
}

fn all_to_all(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let scratch = |chunk| Slice::one(Buffer::Scratch, chunk);
    let places = Places { n };
    let round = step / 2;
    if step % 2 == 1 {
        let count = Places::before(n, round);
        let start = places.came(0, round);
        let peer = GroupRank(ahead(rank, 1 << round, n));
        actions.push(Action::Send { peer, from: Slice::run(Buffer::Scratch, 0..count) });
        let peer = GroupRank(ahead(rank, n - (1 << round), n));
        let into = Slice::run(Buffer::Scratch, start..start + count);
        actions.push(Action::Receive { peer, into });
        return;
    }
    if step == 0 {
        let (from, into) = (Slice::one(Buffer::Input, rank), Slice::one(Buffer::Output, rank));
        actions.push(Action::Copy { from, into });
    }
    let bit = |place: u32, round: u32| place >> round & 1 == 1;
    for place in 1..n {
        let sent_now = bit(place, round);
        let came_now = round > 0 && bit(place, round - 1);
        let from = if came_now {
            scratch(places.came(place, round - 1))
        } else if place.trailing_zeros() >= round {
            Slice::one(Buffer::Input, ahead(rank, place, n))
        } else {
            scratch(places.kept(place))
        };
        let into = if sent_now {
            scratch(Places::packed(place, round))
        } else if !came_now {
            continue;
        } else if place.ilog2() < round {
            Slice::one(Buffer::Output, ahead(rank, n - place, n))
        } else {
            scratch(places.kept(place))
        };
        actions.push(Action::Copy { from, into });
    }
}
