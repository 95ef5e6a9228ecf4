//! Pairwise exchange: n - 1 steps, in each of which every rank sends to one rank and receives from
//! one (Thakur, Rabenseifner, Gropp 2005, section 4, on all-to-all and on reduce-scatter). With a
//! power of two of ranks these are the same rank, r XOR step; else r + step and r - step.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds, left, right};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// One partner a step.
pub(super) struct Pairwise;

impl Family for Pairwise {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllToAll | Collective::ReduceScatter { .. })
    }

    /// One for a single rank, whose part is copied.
    fn steps(&self, call: Call) -> u32 {
        (call.size - 1).max(1)
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        let (n, rank) = (call.size, participant);
        let input = |rank: GroupRank| Slice::one(Buffer::Input, rank.0);
        let (to, from) = partners(n, rank.0, step + 1);
        match call.collective {
            Collective::AllToAll => {
                let output = |rank: GroupRank| Slice::one(Buffer::Output, rank.0);
                if step == 0 {
                    actions.push(Action::Copy { from: input(rank), into: output(rank) });
                }
                if n > 1 {
                    actions.push(Action::Send { peer: to, from: input(to) });
                    actions.push(Action::Receive { peer: from, into: output(from) });
                }
            }
            _ => {
                let result = Slice::one(Buffer::Output, 0);
                if n == 1 {
                    actions.push(Action::Copy { from: input(rank), into: result });
                    return;
                }
                let local = if step == 0 { input(rank) } else { result };
                actions.push(Action::Send { peer: to, from: input(to) });
                actions.push(Action::ReceiveReduce { peer: from, local, into: result });
            }
        }
    }

    fn ranks_are_alike(&self, _call: Call) -> bool {
        true
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let distance = step.at + 1;
        if call.size.is_power_of_two() {
            return format!("every rank r exchanges parts with rank r XOR {distance}.");
        }
        let (right, left) = (right(distance.into()), left(distance.into()));
        format!("every rank sends {right} its part and gets its own from {left}.")
    }
}

impl Explain for Pairwise {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::AllToAll => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, Formula::ALL_BUT_ONE, Holds::Always),
                idea: "n − 1 steps; in each, every rank exchanges with one partner, and no two \
                    meet at a port.",
                used_by: "MPICH for long messages; NCCL orders its grouped sends and receives in \
                    this way.",
                cost: "No port ever waits for another's message: the least time for many bytes, at \
                    a latency each step.",
            },
            _ => Explained {
                formula: Formula::new(Formula::ALL_BUT_ONE, Formula::ALL_BUT_ONE, Holds::Always),
                idea: "n − 1 steps; in each, every rank exchanges one part with one partner.",
                used_by: "MPICH's reduce_scatter for long messages.",
                cost: "The ring's bytes and latencies without its neighbours; where far links are \
                    slow, the ring is better.",
            },
        }
    }
}

/// The ranks that `rank` sends to and receives from at `distance`.
fn partners(n: u32, rank: u32, distance: u32) -> (GroupRank, GroupRank) {
    if n.is_power_of_two() {
        return (GroupRank(rank ^ distance), GroupRank(rank ^ distance));
    }
    let (n, rank, distance) = (u64::from(n), u64::from(rank), u64::from(distance));
    let at = |place: u64| GroupRank((place % n) as u32);
    (at(rank + distance), at(rank + n - distance))
}
