//! A training run of DDP, simulated: the time of each of its steps on one rank, for worlds whose whole trace
//! would be too large.

use crate::config::{SimConfig, SimError};
use crate::engine::simulate;
use lockstep_core::collective::Collective;
use lockstep_core::plan::{Action, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Outcome, What};
use lockstep_torch::ddp::TrainingRun;
use serde::Serialize;
use std::collections::BTreeMap;

/// A pass forward and backward of a rank, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SimulatedStep {
    /// The beginning of the forward pass, with its broadcasts before the first layer.
    #[serde(skip)]
    pub forward_ps: u64,
    /// When its first layer begins.
    pub start_ps: u64,
    /// When the last layer's backward pass is done.
    pub backward_end_ps: u64,
    /// When the next step begins, or the rank has nothing more to do.
    pub end_ps: u64,
    /// Time that it computes: layers and the optimizer.
    pub compute_ps: u64,
    /// Time that it waits for reductions, and for a sharded optimizer's broadcasts.
    pub exposed_ps: u64,
}

impl SimulatedStep {
    /// Time that it does not compute, for whatever communication.
    pub fn waiting_ps(&self) -> u64 {
        self.end_ps.saturating_sub(self.start_ps).saturating_sub(self.compute_ps)
    }
}

/// Messages that the collectives of a plan send together, which is the bound on its simulation: rings of
/// `all_reduce` and `all_gather`, trees of `broadcast`.
pub fn messages(plan: &Plan) -> u64 {
    let mut ranks_of = vec![0u64; plan.programs.len()];
    for program in &plan.program_of {
        if let Some(ranks) = ranks_of.get_mut(*program as usize) {
            *ranks += 1;
        }
    }
    let of_call = |call: &lockstep_core::plan::Call| {
        let group = plan.group(call.group());
        let others =
            u64::from(group.map_or(plan.world_size, |group| group.size())).saturating_sub(1);
        match call.collective() {
            Some(Collective::AllReduce { .. }) => 2 * others,
            Some(Collective::Broadcast { .. }) => others.min(1),
            _ => others,
        }
    };
    let each = plan.programs.iter().map(|program| {
        let calls = program.ops.iter().flat_map(|op| op.action.calls());
        calls.map(of_call).fold(0, u64::saturating_add)
    });
    each.zip(ranks_of).map(|(each, ranks)| each.saturating_mul(ranks)).fold(0, u64::saturating_add)
}

/// Simulates all ranks of a run, rings as a whole, and answers with rank 0's steps and how it ended.
/// Steps that it does not come to the end of are none of them.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_training(
    run: &TrainingRun,
    config: &SimConfig,
) -> Result<(Vec<SimulatedStep>, Option<Outcome>), SimError> {
    simulate_rank(run, 0, config)
}

/// The same with another rank's steps.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_rank(
    run: &TrainingRun,
    rank: u32,
    config: &SimConfig,
) -> Result<(Vec<SimulatedStep>, Option<Outcome>), SimError> {
    let notes = run.roles.get(run.role(rank)).map_or(&[][..], |role| &role.steps);
    let config = SimConfig {
        record_messages: false,
        record_ranks: Some(vec![rank]),
        max_value_bytes: 0,
        ..config.clone()
    };
    let trace = simulate(&run.plan, &config)?;
    // The time of an operation's stream if a device carries it out; else the time of the process.
    let mut on_stream: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut in_process: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for event in &trace.events {
        let (spans, op, begins) = match event.what {
            What::StreamBegan { op } => (&mut on_stream, op, true),
            What::StreamEnded { op } => (&mut on_stream, op, false),
            What::OpBegan { op } => (&mut in_process, op, true),
            What::OpEnded { op } => (&mut in_process, op, false),
            _ => continue,
        };
        match begins {
            true => drop(spans.insert(op, (event.time_ps, event.time_ps))),
            false => spans.entry(op).or_default().1 = event.time_ps,
        }
    }
    let span = |op: u32| on_stream.get(&op).or(in_process.get(&op)).copied().unwrap_or_default();
    let ops = run.plan.program(GlobalRank(rank)).map(|program| program.ops.as_slice());
    let ops = ops.unwrap_or_default();
    // A step without layers begins with what its stream comes to first: its process posts calls
    // ahead of the device.
    let first_of = |step: usize| {
        let (own, next) = (notes.get(step)?, notes.get(step + 1));
        let until = next.map_or(ops.len() as u32, |next| next.first_op);
        let on_device = || (own.first_op..until).find(|op| on_stream.contains_key(op));
        let layer = own.layers.first().map(|layer| layer.op);
        Some(layer.or_else(on_device).unwrap_or(own.first_op))
    };
    // Others may go on after it: whoever is last to take what it sends.
    let end_ps = on_stream.values().chain(in_process.values()).map(|(_, end)| *end).max();
    let end_ps = end_ps.unwrap_or(0);
    let outcome = trace.end.map(|end| end.outcome);
    // A process puts layers on its stream ahead of it.
    let computes = |op: u32| {
        let op = ops.get(op as usize).map(|op| &op.action);
        matches!(op, Some(Action::Compute { .. }))
    };
    let began = |op: u32| {
        let streams = !on_stream.is_empty() && computes(op);
        on_stream.contains_key(&op) || (!streams && in_process.contains_key(&op))
    };
    let ended = |step: usize| match first_of(step + 1) {
        Some(next) => began(next),
        None => outcome == Some(Outcome::Completed),
    };
    let ended = notes.iter().enumerate().take_while(|(number, _)| ended(*number));
    let steps = ended.map(|(number, notes)| {
        let next = first_of(number + 1);
        let last = next.map_or(ops.len(), |op| op as usize);
        let first = first_of(number).unwrap_or(0) as usize;
        let within = ops.get(first..last).unwrap_or_default();
        let waits = (first as u32..).zip(within);
        let waits = waits.filter(|(_, op)| matches!(op.action, Action::Wait { .. }));
        let on_device = !on_stream.is_empty();
        let waited = waits.map(|(op, _)| match (on_device, on_stream.get(&op)) {
            (true, None) => 0,
            _ => span(op).1 - span(op).0,
        });
        let computed = (first as u32..).zip(within);
        let computed = computed.filter(|(_, op)| matches!(op.action, Action::Compute { .. }));
        let computed = computed.map(|(op, _)| span(op).1 - span(op).0);
        let start_ps = span(first as u32).0;
        let forward = match on_device {
            true => on_stream.get(&notes.first_op),
            false => in_process.get(&notes.first_op),
        };
        SimulatedStep {
            forward_ps: forward.map_or(start_ps, |(from, _)| *from),
            start_ps,
            backward_end_ps: notes.layers.iter().map(|layer| span(layer.op).1).max().unwrap_or(0),
            end_ps: next.map_or(end_ps, |op| span(op).0),
            compute_ps: computed.sum(),
            exposed_ps: waited.sum(),
        }
    });
    Ok((steps.collect(), outcome))
}
