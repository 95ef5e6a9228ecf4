//! Room for messages that come over TCP: for each channel its largest.
//!
//! The size of a message is known from its sender's program, and the receiver may expect another one: the
//! mismatch is found when the message has arrived.

use super::wiring::ChannelKey;
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::{Action, Layout};
use std::collections::{BTreeMap, BTreeSet};

/// The largest message of every channel of a plan, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Landings {
    most: BTreeMap<ChannelKey, u64>,
}

impl Landings {
    /// Those of a plan that was checked.
    pub(super) fn of(plan: &Plan) -> Landings {
        let mut landings = Landings::default();
        for rank in (0..plan.world_size).map(GlobalRank) {
            let ops = plan.program(rank).map_or(&[][..], |program| &program.ops);
            // Programs repeat themselves, and one size of a schedule is as good as another of it.
            let mut seen = BTreeSet::new();
            for call in ops.iter().flat_map(|op| op.action.calls()) {
                let me = plan.group(call.group()).and_then(|group| group.group_rank(rank));
                let Some(me) = me else { continue };
                match call {
                    Call::Send { group, peer, tensor, tag } => {
                        let key =
                            ChannelKey { group: *group, from: me, to: *peer, tag: Some(*tag) };
                        landings.add(key, plan.tensor(*tensor).map_or(0, |tensor| tensor.bytes()));
                    }
                    Call::Recv { .. } => {}
                    Call::Collective { group, splits, .. } => {
                        let Some(signature) = plan.signature(rank, call) else { continue };
                        let (schedule, bytes) = (signature.schedule, signature.dtype.size_bytes());
                        let layout = Layout::new(schedule.clone(), signature.count, bytes);
                        let layout = layout.with_splits(splits.clone());
                        if seen.insert((*group, schedule, signature.count, bytes, splits)) {
                            landings.add_collective(*group, me, &layout, bytes);
                        }
                    }
                }
            }
        }
        landings
    }

    fn add_collective(
        &mut self,
        group: lockstep_core::group::GroupId,
        me: GroupRank,
        layout: &Layout,
        element_bytes: u64,
    ) {
        let schedule = layout.schedule();
        let mut actions = Vec::new();
        for step in 0..schedule.steps() {
            schedule.actions(me, step, &mut actions);
            for action in &actions {
                if let Action::Send { peer, from } = *action {
                    let key = ChannelKey { group, from: me, to: peer, tag: None };
                    self.add(key, layout.elements(me, from).saturating_mul(element_bytes));
                }
            }
        }
    }

    fn add(&mut self, key: ChannelKey, bytes: u64) {
        let most = self.most.entry(key).or_default();
        *most = bytes.max(*most);
    }

    /// The bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.most.values().copied().fold(0, u64::saturating_add)
    }

    /// Those of the channels that `rank` reads.
    pub(super) fn of_rank(&self, plan: &Plan, rank: GlobalRank) -> Vec<(ChannelKey, u64)> {
        let reads = |key: &ChannelKey| {
            plan.group(key.group).and_then(|group| group.group_rank(rank)) == Some(key.to)
        };
        let own = self.most.iter().filter(|(key, _)| reads(key));
        own.map(|(key, bytes)| (*key, *bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::schedule::Algorithm;

    #[test]
    fn a_ring_lands_chunks_and_a_send_its_tensor() {
        let mut plan = PlanBuilder::new("landings", 4, BackendName::Host).unwrap();
        let large = plan.tensor("large", Dtype::Float32, 400_000, Fill::Zeros);
        let sent = plan.tensor("sent", Dtype::Uint8, 77, Fill::Zeros);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan
            .every_rank(|rank, program| {
                let (world, ring) = (GroupId::WORLD, Some(Algorithm::Ring));
                for _ in 0..3 {
                    program.collective_by(world, sum, 400_000, None, Some(large), ring);
                }
                match rank.0 {
                    0 => drop(program.send(world, GroupRank(1), sent)),
                    1 => drop(program.recv(world, GroupRank(0), sent)),
                    _ => {}
                }
            })
            .unwrap();
        let landings = Landings::of(&plan);
        let segments = plan.schedule(plan.programs[0].ops[0].action.calls().first().unwrap());
        let segments = u64::from(segments.unwrap().unwrap().segments());
        let chunk = 4 * 400_000 / 4 / segments;
        assert_eq!(landings.bytes(), 4 * chunk + 77);
        let of_one = landings.of_rank(&plan, GlobalRank(1));
        let sizes: Vec<u64> = of_one.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(sizes, [chunk, 77]);
        assert!(of_one.iter().all(|(key, _)| key.from == GroupRank(0)));
    }
}
