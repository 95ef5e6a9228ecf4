//! PAT, parallel aggregated trees: for each rank's part a binomial tree over the ranks behind it,
//! all trees at once, with what a rank sends for several of them in one message (Jeaugey 2025,
//! "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"; NCCL 2.23,
//! `src/include/collectives.h`, `PatAGAlgorithm` and `PatRSAlgorithm`). ceil(log2 n) rounds for any
//! n, as Bruck's, but the farthest ranks exchange the least: all_gather begins with the largest
//! distance, and reduce_scatter goes the same way back. Here everything is aggregated; NCCL
//! aggregates as much as its buffers hold.
//!
//! Between two rounds a step moves parts inside the rank, from and to places where what is sent
//! lies together.

use super::tree;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// Parallel aggregated trees.
pub(super) struct Pat;

impl Family for Pat {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllGather | Collective::ReduceScatter { .. })
    }

    fn steps(&self, call: Call) -> u32 {
        2 * tree::depth(call.size) + 1
    }

    /// Chunks of scratch: for a round's sends, its receives, and (of reduce_scatter) the sums so far.
    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        let n = call.size;
        match call.collective {
            Collective::AllGather => n / 2 * 2,
            _ if n == 1 => 0,
            _ => n / 2 * 2 + n.div_ceil(2),
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        let rank = Trees { n: call.size, rank: participant.0 };
        match call.collective {
            Collective::AllGather => rank.all_gather(step, actions),
            _ => rank.reduce_scatter(step, actions),
        }
    }

    fn step_text(&self, _call: Call, step: Step) -> String {
        let text = match step.at.is_multiple_of(2) {
            true => {
                "every rank puts what came in its place, and together what it sends next; nothing \
                 is sent."
            }
            false => {
                "every rank sends, in one message, the parts of all trees in which it has a child \
                 at this distance."
            }
        };
        text.to_owned()
    }
}

impl Explain for Pat {
    fn explained(&self, _collective: Collective) -> Explained {
        Explained {
            formula: Formula::new(Formula::LOG_UP, Formula::ALL_BUT_ONE, Holds::Always),
            idea: "For each rank's part a binomial tree, all of them at once; what a rank sends \
                for several trees goes in one message. The farthest ranks exchange the least.",
            used_by: "NCCL 2.23 and newer, for all_gather and reduce_scatter with one rank a node.",
            cost: "Logarithmic latencies for any number of ranks, and no part is sent twice.",
        }
    }
}

/// A rank's places in all trees: it is `offset` behind the root of the tree of rank `rank - offset`.
#[derive(Clone, Copy)]
struct Trees {
    n: u32,
    rank: u32,
}

impl Trees {
    /// The root of the tree in which this rank is at `offset`.
    fn root(self, offset: u32) -> u32 {
        (self.rank + (self.n - offset)) % self.n
    }

    /// The edges at `distance`: the nearer end's offset of each; the farther one's is `distance`
    /// more.
    fn edges(self, distance: u32) -> impl Iterator<Item = u32> {
        let below = u64::from(self.n - distance);
        (0..below).step_by(2 * distance as usize).map(|offset| offset as u32)
    }

    /// The number of those edges.
    fn count(self, distance: u32) -> u32 {
        (self.n - distance).div_ceil(2 * distance)
    }

    fn sent(self, index: u32) -> Slice {
        Slice::one(Buffer::Scratch, index)
    }

    fn came(self, index: u32) -> Slice {
        Slice::one(Buffer::Scratch, self.n / 2 + index)
    }

    /// The sum so far of an even offset.
    fn sum(self, offset: u32) -> Slice {
        Slice::one(Buffer::Scratch, self.n / 2 * 2 + offset / 2)
    }

    /// Sends the packed parts to `to` and receives as many from `from`.
    fn exchange(self, distance: u32, to: u32, from: u32, actions: &mut Vec<Action>) {
        let count = self.count(distance);
        let came = self.came(0).chunk;
        let packed = Slice::run(Buffer::Scratch, 0..count);
        let into = Slice::run(Buffer::Scratch, came..came + count);
        actions.push(Action::Send { peer: GroupRank(to), from: packed });
        actions.push(Action::Receive { peer: GroupRank(from), into });
    }

    fn ahead(self, distance: u32) -> u32 {
        ((u64::from(self.rank) + u64::from(distance)) % u64::from(self.n)) as u32
    }

    fn all_gather(self, step: u32, actions: &mut Vec<Action>) {
        let rounds = tree::depth(self.n);
        let distance = |round: u32| 1u32 << (rounds - 1 - round);
        let (round, own) = (step / 2, Slice::one(Buffer::Input, 0));
        if step % 2 == 1 {
            let distance = distance(round);
            self.exchange(distance, self.ahead(distance), self.root(distance), actions);
            return;
        }
        let part = |offset| Slice::one(Buffer::Output, self.root(offset));
        if round == 0 {
            actions.push(Action::Copy { from: own, into: part(0) });
        }
        // The received parts go to their places.
        if round > 0 {
            let before = distance(round - 1);
            for (index, offset) in (0..).zip(self.edges(before)) {
                let into = part(offset + before);
                actions.push(Action::Copy { from: self.came(index), into });
            }
        }
        if round == rounds {
            return;
        }
        for (index, offset) in (0..).zip(self.edges(distance(round))) {
            // The rank's own is sent in every round, and stays there.
            if offset == 0 && round > 0 {
                continue;
            }
            // Odd multiples of the last distance have just come, as the edges of that round.
            let before = 2 * distance(round);
            let from = if offset == 0 {
                own
            } else if offset % (2 * before) == before {
                self.came(offset / (2 * before))
            } else {
                part(offset)
            };
            actions.push(Action::Copy { from, into: self.sent(index) });
        }
    }

    fn reduce_scatter(self, step: u32, actions: &mut Vec<Action>) {
        let rounds = tree::depth(self.n);
        let (round, result) = (step / 2, Slice::one(Buffer::Output, 0));
        let input = |offset| Slice::one(Buffer::Input, self.root(offset));
        if self.n == 1 {
            actions.push(Action::Copy { from: input(0), into: result });
            return;
        }
        if step % 2 == 1 {
            let distance = 1 << round;
            self.exchange(distance, self.root(distance), self.ahead(distance), actions);
            return;
        }
        // A sum that is sent in this round goes straight to where it is sent from.
        let place = |offset: u32| {
            if round == rounds {
                result
            } else if offset >> round & 1 == 1 {
                self.sent(offset >> (round + 1))
            } else {
                self.sum(offset)
            }
        };
        // An offset that got something in the first round has its sum in scratch since then.
        let so_far = |offset: u32| match round {
            0 | 1 => input(offset),
            _ if offset + 1 < self.n => self.sum(offset),
            _ => input(offset),
        };
        if round > 0 {
            for (index, offset) in (0..).zip(self.edges(1 << (round - 1))) {
                let (local, from) = (so_far(offset), self.came(index));
                actions.push(Action::Reduce { local, from, into: place(offset) });
            }
        }
        if round == rounds {
            return;
        }
        // Parts that are sent without having received anything in the last round.
        let distance = 1u32 << round;
        for offset in self.edges(distance).map(|near| near + distance) {
            if round == 0 || offset + (distance >> 1) >= self.n {
                actions.push(Action::Copy { from: so_far(offset), into: place(offset) });
            }
        }
    }
}
