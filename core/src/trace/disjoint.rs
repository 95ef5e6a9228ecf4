//! Ranks whose recordings have no collective in common: they are of different steps.

use super::CallLog;
use crate::group::GroupId;
use crate::rank::GlobalRank;
use std::collections::BTreeMap;
use std::fmt;

/// Two ranks that recorded collectives of one group, and no one that both made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disjoint {
    /// The group's description, or its name if it has none.
    pub group: String,
    /// The rank that recorded the earlier collectives, and the numbers of its first and its last one.
    pub earlier: (GlobalRank, [u64; 2]),
    /// The other one.
    pub later: (GlobalRank, [u64; 2]),
}

impl fmt::Display for Disjoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((rank, [first, last]), (other, [from, to])) = (self.earlier, self.later);
        write!(
            f,
            "rank {rank}'s collectives of {} are #{first} to #{last} and rank {other}'s #{from} to #{to}: none is in \
             both, so the recordings are of different steps",
            self.group
        )
    }
}

impl CallLog {
    /// The two ranks that are farthest apart in the first group of which recordings of two ranks have no collective
    /// in common; `None` if there are none.
    pub fn disjoint(&self) -> Option<Disjoint> {
        let mut seen: BTreeMap<GroupId, BTreeMap<GlobalRank, [u64; 2]>> = BTreeMap::new();
        for (rank, own) in self.logs() {
            for record in own.calls.iter().filter(|record| !record.call.p2p) {
                let Some(seq) = record.seq else { continue };
                let of_rank = seen.entry(record.call.group).or_default();
                let [first, last] = of_rank.entry(rank).or_insert([seq, seq]);
                (*first, *last) = (seq.min(*first), seq.max(*last));
            }
        }
        seen.iter().find_map(|(group, ranks)| {
            let earlier = ranks.iter().min_by_key(|(rank, [_, last])| (*last, **rank))?;
            let later = ranks.iter().max_by_key(|(rank, [first, _])| (*first, **rank))?;
            let group = self.groups.get(group.index()).map_or("?", |group| group.label());
            (earlier.1[1] < later.1[0]).then(|| Disjoint {
                group: group.to_owned(),
                earlier: (*earlier.0, *earlier.1),
                later: (*later.0, *later.1),
            })
        })
    }
}
