//! The choices that a plan leaves open: a receive from any source takes the first message, and every rank
//! that gets data from it afterwards may end with other numbers in each run.

use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;

/// The ranks whose numbers may follow from such an order: those that receive from any source in a group where
/// that can be more than one rank, and all ranks that their calls reach, at any time.
pub(crate) fn ranks_left_open(plan: &Plan) -> BTreeSet<GlobalRank> {
    let mut open = BTreeSet::new();
    let mut reaches: Vec<(GlobalRank, GlobalRank)> = Vec::new();
    for rank in (0..plan.world_size).map(GlobalRank) {
        let ops = plan.program(rank).map_or(&[][..], |program| &program.ops);
        for call in ops.iter().flat_map(|op| op.action.calls()) {
            let Some(group) = plan.group(call.group()) else { continue };
            match call {
                Call::Recv { peer: None, .. } if group.ranks().len() > 2 => {
                    open.insert(rank);
                }
                Call::Send { peer, .. } => {
                    reaches.extend(group.global_rank(*peer).map(|peer| (rank, peer)));
                }
                Call::Collective { .. } => {
                    reaches.extend(group.ranks().first().map(|first| (rank, *first)));
                    reaches.extend(group.ranks().first().map(|first| (*first, rank)));
                }
                Call::Recv { .. } => {}
            }
        }
    }
    if open.is_empty() {
        return open;
    }
    reaches.sort_unstable();
    reaches.dedup();
    loop {
        let known = open.len();
        for (from, to) in &reaches {
            if open.contains(from) {
                open.insert(*to);
            }
        }
        if open.len() == known {
            return open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::rank::GroupRank;

    #[test]
    fn who_hears_of_an_open_order_is_open_too() {
        let mut plan = PlanBuilder::new("p", 4, BackendName::Host).unwrap();
        let tensor = plan.tensor("t", Dtype::Float32, 1, Fill::Rank);
        let call = |peer: Option<u32>, sends: bool| {
            let (group, peer) = (GroupId::WORLD, peer.map(GroupRank));
            match (sends, peer) {
                (true, Some(peer)) => Call::Send { group, peer, tensor, tag: 0 },
                _ => Call::Recv { group, peer, tensor, tag: 0 },
            }
        };
        // 1 and 2 send to 0, which takes both as they come and tells 1; 3 is told by nobody.
        let plan = plan.every_rank(|rank, program| match rank.0 {
            0 => {
                program.call(call(None, false));
                program.call(call(None, false));
                program.call(call(Some(1), true));
            }
            1 => {
                program.call(call(Some(0), true));
                program.call(call(Some(0), false));
            }
            2 => {
                program.call(call(Some(0), true));
            }
            _ => {}
        });
        let open = ranks_left_open(&plan.unwrap());
        assert_eq!(open.into_iter().map(|rank| rank.0).collect::<Vec<_>>(), [0, 1]);
    }
}
