//! A GOAL file as a plan: sends and receives that go on in the background, waits, and computing.

use super::graph::{Kind, Next, Operation, sequence};
use super::text::parse;
use super::{GoalError, MAX_GOAL_BYTES};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Call, Fill, Plan, PlanBuilder, ProgramBuilder, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::collections::BTreeMap;

/// The contents of a GOAL file, as far as a plan can hold them.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The plan: a program a rank, on tensors of bytes.
    pub plan: Plan,
    /// Operations that start later than the file lets them, because a program does one thing after
    /// the other: those behind a calc or a message that they do not require. At most this many;
    /// exactly, for ranks of up to 8,192 operations.
    pub held_back: u64,
}

/// Reads a GOAL file.
///
/// A send counts as ended for its rank when it is on its way, as LogGOPSim's eager sends do. All operations
/// of a rank have one processor and one network card, whatever `cpu` and `nic` say.
///
/// # Errors
/// The text is not GOAL, waits for itself, or has something that a plan cannot express.
pub fn read(name: &str, text: &str) -> Result<Goal, GoalError> {
    if text.len() > MAX_GOAL_BYTES {
        return Err(GoalError::TooLong { bytes: text.len() });
    }
    let ranks = parse(text)?;
    let mut plan = PlanBuilder::new(name, ranks.len() as u32, BackendName::Host)?;
    let source = plan.source(name, "");
    let messages = ranks.iter().flatten().filter_map(|operation| match operation.kind {
        Kind::Send { bytes, .. } | Kind::Receive { bytes, .. } => Some(bytes),
        Kind::Calc { .. } => None,
    });
    let sizes: std::collections::BTreeSet<u64> = messages.collect();
    let mut tensors = BTreeMap::new();
    for bytes in sizes {
        let tensor = plan.tensor(format!("{bytes} bytes"), Dtype::Uint8, bytes, Fill::Zeros);
        tensors.insert(bytes, tensor);
    }
    let (mut held_back, mut programs) = (0, Vec::with_capacity(ranks.len()));
    for (operations, rank) in ranks.iter().zip(0..) {
        let sequence = sequence(operations).map_err(|index| GoalError::Cycle {
            rank: GlobalRank(rank),
            line: operations[index].line,
        })?;
        held_back += sequence.held_back;
        programs.push(sequence.steps);
    }
    let plan = plan.every_rank(|rank, program| {
        let (operations, steps) = (&ranks[rank.index()], &programs[rank.index()]);
        add(program, operations, steps, &tensors, source);
    })?;
    Ok(Goal { plan, held_back })
}

/// Writes one rank's program.
fn add(
    program: &mut ProgramBuilder,
    operations: &[Operation],
    steps: &[Next],
    tensors: &BTreeMap<u64, TensorId>,
    source: u32,
) {
    let mut works: Vec<Option<u32>> = vec![None; operations.len()];
    let tensor = |bytes: &u64| tensors.get(bytes).copied().unwrap_or(TensorId(0));
    let group = GroupId::WORLD;
    for step in steps {
        match *step {
            Next::Await(index) => {
                if let Some(work) = works[index as usize].take() {
                    program.wait(work);
                }
            }
            Next::Start(index) => {
                let operation = &operations[index as usize];
                program.line(source, u32::try_from(operation.line).unwrap_or(u32::MAX));
                let call = match operation.kind {
                    Kind::Calc { ns } => {
                        program.compute("calc", ns);
                        continue;
                    }
                    Kind::Send { bytes, to, tag } => {
                        Call::Send { group, peer: GroupRank(to), tensor: tensor(&bytes), tag }
                    }
                    Kind::Receive { bytes, from, tag } => {
                        Call::Recv { group, peer: from.map(GroupRank), tensor: tensor(&bytes), tag }
                    }
                };
                works[index as usize] = Some(program.async_op().call(call));
            }
        }
    }
    // A rank is done when its messages are.
    works.into_iter().flatten().for_each(|work| {
        program.wait(work);
    });
}
