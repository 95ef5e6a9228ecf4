//! One collective in several groups at once, as in a dimension of a device mesh.

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Fill, Plan, PlanBuilder, PlanError};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::{Algorithm, Schedule};

/// One collective called once in each of several groups, side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupsLab {
    /// The number of ranks of the job.
    pub world_size: u32,
    /// Ranks a node; 0 for one node that holds all.
    pub ranks_per_node: u32,
    /// The groups; a rank is in one of them at most, and does nothing if it is in none.
    pub groups: Vec<Vec<GlobalRank>>,
    /// The call.
    pub collective: Collective,
    /// The algorithm by which each group carries it out.
    pub algorithm: Algorithm,
    /// Elements a rank: those of the tensor of an in-place call, else those of one rank's part.
    pub count: u64,
    /// The element type.
    pub dtype: Dtype,
    /// Every group's timeout, in milliseconds.
    pub timeout_ms: u64,
}

impl GroupsLab {
    /// The plan: one operation on every rank that is in a group.
    ///
    /// # Errors
    /// When the world is empty, a group is empty, has a rank twice or one outside the world, the
    /// root is outside a group, or the algorithm does not apply.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let GroupsLab { collective, algorithm, dtype, .. } = *self;
        let name = format!("{algorithm} {collective} in {} groups", self.groups.len());
        let mut plan = PlanBuilder::new(name, self.world_size, BackendName::Host)?;
        plan.ranks_per_node(self.ranks_per_node);
        let count = if collective.is_barrier() { 0 } else { self.count };
        let root = collective.root().unwrap_or(GroupRank(0));
        let mut of_rank = vec![None; self.world_size as usize];
        for (index, ranks) in self.groups.iter().enumerate() {
            let group =
                ProcessGroup::new(format!("{}", index + 1), BackendName::Host, ranks.clone())?;
            let size = group.size();
            // The plan's check would say the same of every rank, but later and with more words.
            Schedule::new(collective, algorithm, size)?;
            let id = plan.group(group);
            let input = collective.input_elements(size, root, count);
            let output = collective.output_elements(size, root, count);
            let fill = if collective.in_place() { Fill::Iota } else { Fill::Zeros };
            let input = input.map(|numel| plan.tensor("input", dtype, numel, Fill::Iota));
            let output = output.map(|numel| plan.tensor("output", dtype, numel, fill));
            for rank in ranks {
                if let Some(place) = of_rank.get_mut(rank.index()) {
                    *place = Some((id, input, output));
                }
            }
        }
        plan.timeout_ms(self.timeout_ms);
        plan.every_rank(|rank, program| {
            let called: Option<(GroupId, _, _)> = of_rank.get(rank.index()).copied().flatten();
            if let Some((group, input, output)) = called {
                program.collective_by(group, collective, count, input, output, Some(algorithm));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::reduce::ReduceOp;

    fn lab(groups: &[&[u32]]) -> GroupsLab {
        let groups = groups.iter().map(|ranks| ranks.iter().copied().map(GlobalRank).collect());
        GroupsLab {
            world_size: 8,
            ranks_per_node: 4,
            groups: groups.collect(),
            collective: Collective::AllReduce { op: ReduceOp::Sum },
            algorithm: Algorithm::Ring,
            count: 16,
            dtype: Dtype::Float32,
            timeout_ms: 1000,
        }
    }

    #[test]
    fn every_rank_calls_in_its_own_group() {
        let plan = lab(&[&[0, 4], &[1, 5], &[2, 6]]).plan().unwrap();
        assert_eq!((plan.groups.len(), plan.ranks_per_node), (4, 4));
        for rank in (0..8).map(GlobalRank) {
            let ops = &plan.program(rank).unwrap().ops;
            let member = plan.groups[1..].iter().position(|group| group.group_rank(rank).is_some());
            let called =
                ops.first().and_then(|op| Some(op.action.calls().first()?.group().index()));
            assert_eq!(called, member.map(|index| index + 1), "rank {rank}");
        }
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        assert!(lab(&[&[0, 0]]).plan().is_err());
        assert!(lab(&[&[0, 9]]).plan().is_err());
        assert!(lab(&[&[]]).plan().is_err());
    }
}
