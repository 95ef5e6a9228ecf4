//! The time that each call of a plan takes on its own: all its ranks begin together, on links that nothing else uses.
//!
//! Simulated message by message, a recorded job of a thousand ranks has tens of millions of messages. With this
//! table its calls are not simulated again and again: each distinct call is, once. What is left out is that messages
//! of different calls meet at a rank's port.

use crate::config::{SimConfig, SimError};
use crate::engine::simulate;
use crate::topology::Topology;
use lockstep_core::collective::Collective;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Action, Call, CallTimes, Op, Plan, Program};
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A plan whose collectives send more messages than this takes a minute to simulate message by message.
const MANY_MESSAGES: u64 = 1 << 24;

impl SimConfig {
    /// The same for a simulation of which only the calls are kept, not the messages. The collectives of a plan with
    /// tens of millions of messages each take the time that they have alone, unless a machine's times are given.
    ///
    /// # Errors
    /// When a call makes no plan.
    pub fn for_calls_of(self, plan: &Plan) -> Result<SimConfig, SimError> {
        let call_times = match self.call_times {
            None if steps_of(plan) > MANY_MESSAGES => {
                times_alone(plan, self.topology)?.map(Arc::new)
            }
            known => known,
        };
        Ok(SimConfig { record_messages: false, call_times, ..self })
    }
}

/// The number of messages of a plan's collectives, as their schedules have them: a step of a rank is one.
pub fn steps_of(plan: &Plan) -> u64 {
    let mut known: HashMap<(GroupId, Collective, u64), u64> = HashMap::new();
    let mut per_program: Vec<u64> = Vec::with_capacity(plan.programs.len());
    for program in &plan.programs {
        let mut steps = 0_u64;
        for call in program.ops.iter().flat_map(|op| op.action.calls()) {
            let Call::Collective { group, collective, count, .. } = call else { continue };
            let of_call = known.entry((*group, *collective, *count)).or_insert_with(|| {
                plan.schedule(call)
                    .and_then(Result::ok)
                    .map_or(0, |schedule| u64::from(schedule.steps()))
            });
            steps = steps.saturating_add(*of_call);
        }
        per_program.push(steps);
    }
    let of_rank = |program: &u32| per_program.get(*program as usize).copied().unwrap_or(0);
    plan.program_of.iter().map(of_rank).fold(0, u64::saturating_add)
}

/// The times of a plan's calls, each alone on a topology. `None` if a call says how it is carried out: by an
/// algorithm, a schedule or with uneven parts of its own.
///
/// # Errors
/// When a call makes no plan.
pub(crate) fn times_alone(plan: &Plan, topology: Topology) -> Result<Option<CallTimes>, SimError> {
    let mut seen: HashSet<(GroupId, Collective, u64)> = HashSet::new();
    // Groups that lie alike take the same time for the same call.
    let mut known: BTreeMap<(Vec<u32>, BackendName, Collective, u64), u64> = BTreeMap::new();
    let mut times = CallTimes::new(format!("a network ({topology}), each call alone"));
    for call in plan.programs.iter().flat_map(|own| &own.ops).flat_map(|op| op.action.calls()) {
        let Call::Collective { group: id, collective, count, input, output, .. } = call else {
            continue;
        };
        if Call::collective_of(*id, *collective, *count, *input, *output) != *call {
            return Ok(None);
        }
        if !seen.insert((*id, *collective, *count)) {
            continue;
        }
        let Some((timed, group)) = plan.timed_call(call).zip(plan.group(*id)) else { continue };
        let key = (nodes(group, topology), group.backend(), timed.collective, timed.bytes);
        let takes_ps = match known.get(&key) {
            Some(takes_ps) => *takes_ps,
            None => {
                let takes_ps = time_alone(plan, (call, group), topology)?;
                known.insert(key, takes_ps);
                takes_ps
            }
        };
        times.set_collective(timed, takes_ps);
    }
    Ok(Some(times))
}

/// The nodes of a group's members, numbered as they come.
fn nodes(group: &ProcessGroup, topology: Topology) -> Vec<u32> {
    let each = match topology.ranks_per_node() {
        0 => u32::MAX,
        each => each,
    };
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let node = |rank: &GlobalRank| {
        let next = numbers.len() as u32;
        *numbers.entry(rank.0 / each).or_insert(next)
    };
    group.ranks().iter().map(node).collect()
}

/// The time that a call takes if all members of its group make it together, in picoseconds.
fn time_alone(
    plan: &Plan,
    (call, group): (&Call, &ProcessGroup),
    topology: Topology,
) -> Result<u64, SimError> {
    let mut call = call.clone();
    let mut groups = vec![group.clone().with_timeout_ms(u64::MAX)];
    if call.group() != GroupId::WORLD {
        groups.splice(0..0, plan.groups.first().cloned());
        if let Call::Collective { group, .. } = &mut call {
            *group = GroupId(1);
        }
    }
    let op = Op::new(Action::call(call, false), None);
    let ranks = (0..plan.world_size).map(GlobalRank);
    let alone = Plan {
        name: plan.name.clone(),
        world_size: plan.world_size,
        ranks_per_node: plan.ranks_per_node,
        groups,
        tensors: plan.tensors.clone(),
        programs: vec![Program::default(), Program { ops: vec![op] }],
        program_of: ranks.map(|rank| u32::from(group.group_rank(rank).is_some())).collect(),
        sources: Vec::new(),
        schedules: Vec::new(),
        callers: Vec::new(),
    };
    let config = SimConfig {
        topology,
        max_value_bytes: 0,
        record_messages: false,
        record_ranks: Some(Vec::new()),
        ..SimConfig::default()
    };
    Ok(simulate(&alone, &config)?.end.map_or(0, |end| end.time_ps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::trace::{CallLog, RankLog, Trace};

    /// Two calls of the world and one of each half, which go around rings; ranks compute for `own_ns` before the first.
    fn plan(own_ns: [u64; 4]) -> Plan {
        let mut plan = PlanBuilder::new("alone", 4, BackendName::Nccl).unwrap();
        let halves = [[0, 1], [2, 3]].map(|ranks| {
            let ranks = ranks.map(GlobalRank).to_vec();
            plan.group(ProcessGroup::new("half", BackendName::Nccl, ranks).unwrap())
        });
        let [large, of_world, small, of_half] = [1 << 20, 4 << 20, 1 << 10, 2 << 10]
            .map(|numel| plan.tensor("x", Dtype::Float32, numel, Fill::Unknown));
        let of_small = plan.tensor("x", Dtype::Float32, 4 << 10, Fill::Unknown);
        let plan = plan.every_rank(|rank, program| {
            let half = halves[rank.index() / 2];
            program.compute("forward", own_ns[rank.index()]);
            let mut gather = |group, count, input, output| {
                program.collective(group, Collective::AllGather, count, Some(input), Some(output));
            };
            gather(GroupId::WORLD, 1 << 20, large, of_world);
            gather(half, 1 << 10, small, of_half);
            gather(GroupId::WORLD, 1 << 10, small, of_small);
        });
        plan.unwrap()
    }

    fn simulated(plan: &Plan, topology: Topology, alone: bool) -> Trace {
        let times = times_alone(plan, topology).unwrap().unwrap();
        let call_times = alone.then(|| Arc::new(times));
        let record_messages = false;
        simulate(plan, &SimConfig { topology, call_times, record_messages, ..SimConfig::default() })
            .unwrap()
    }

    /// Messages of different calls meet nowhere if ranks come together and all do alike: then the times are those of
    /// the messages.
    #[test]
    fn calls_that_begin_together_take_the_time_of_their_messages() {
        let plan = plan([1000; 4]);
        let ends = |alone| {
            let trace = simulated(&plan, Topology::default(), alone);
            let log = CallLog::of(&trace);
            let of_rank = |own: &RankLog| {
                own.calls.iter().map(|call| call.completed_ps.unwrap()).collect::<Vec<u64>>()
            };
            log.logs().map(|(_, own)| of_rank(own)).collect::<Vec<_>>()
        };
        let by_messages = ends(false);
        assert!(by_messages.iter().all(|own| own.len() == 3 && own[0] > 1_000_000));
        assert_eq!(by_messages, ends(true));
    }

    /// The last rank of a call decides when it ends.
    #[test]
    fn a_late_rank_holds_the_others_up() {
        let [early, late] = [[1000; 4], [1000, 1000, 1_001_000, 1000]].map(|own_ns| {
            let trace = simulated(&plan(own_ns), Topology::default(), true);
            trace.end.unwrap().time_ps
        });
        assert_eq!(late - early, 1_000_000_000);
    }

    #[test]
    fn steps_are_those_of_all_ranks() {
        let schedules = |plan: &Plan| -> u64 {
            let calls = (0..4).map(GlobalRank).flat_map(|rank| &plan.program(rank).unwrap().ops);
            let calls = calls.flat_map(|op| op.action.calls());
            calls.map(|call| u64::from(plan.schedule(call).unwrap().unwrap().steps())).sum()
        };
        let plan = plan([0; 4]);
        assert_eq!(steps_of(&plan), schedules(&plan));
    }
}
