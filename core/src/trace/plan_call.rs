//! A plan's call as a trace records it. The simulator and the executors both make it from here, so
//! that their traces say the same of the same call.

use super::{Call as Recorded, Called, Frame, TensorShape};
use crate::plan::{Action, Call, CallersId, Op, Plan, SourceLine, TensorId};
use crate::rank::GlobalRank;
use std::sync::Arc;

/// The accounts of a plan's calls, which ranks share that make the same call one after the other.
#[derive(Clone, Debug, Default)]
pub struct PlanCalls {
    last: Option<(Same, Arc<Recorded>)>,
    /// The last different calls, with their shared parts.
    alike: Vec<Alike>,
    /// The index in `alike` where the next call is expected: programs repeat their calls in order.
    next: usize,
}

/// The number of different calls that are remembered.
const REMEMBERED: usize = 64;

/// A call with the shared part of its account, and the facts that decide that part.
#[derive(Clone, Debug)]
struct Alike {
    call: Call,
    at: Option<SourceLine>,
    called_from: Option<CallersId>,
    holds: bool,
    passed: (Option<TensorId>, Option<TensorId>),
    called: Arc<Called>,
}

impl Alike {
    fn is_of(&self, op: &Op, call: &Call, passed: (Option<TensorId>, Option<TensorId>)) -> bool {
        (self.at, self.called_from, self.holds, self.passed)
            == (op.at, op.called_from, holds(op), passed)
            && self.call == *call
    }
}

/// The facts on which a call's account depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Same {
    program: u32,
    op: u32,
    part: u32,
    seq: u64,
    /// The input and output that the rank passes: with a root, not every rank passes both.
    passed: (Option<TensorId>, Option<TensorId>),
}

impl PlanCalls {
    /// [`Plan::call`], shared with the rank that made the call before if that was the same one.
    pub fn call(
        &mut self,
        plan: &Plan,
        rank: GlobalRank,
        (op, part): (u32, u32),
        seq: u64,
    ) -> Option<Arc<Recorded>> {
        let operation = plan.program(rank)?.ops.get(op as usize)?;
        let passed = plan.passed(rank, operation.action.calls().get(part as usize)?);
        let program = *plan.program_of.get(rank.index())?;
        let same = Same { program, op, part, seq, passed };
        if let Some((known, call)) = &self.last
            && *known == same
        {
            return Some(Arc::clone(call));
        }
        let call = Arc::new(plan.call(rank, op, part, seq)?);
        self.last = Some((same, Arc::clone(&call)));
        Some(call)
    }
}

impl PlanCalls {
    /// The shared part of a call's account: calls of the same tensors, group and line have the same.
    pub fn called(
        &mut self,
        plan: &Plan,
        rank: GlobalRank,
        (op, part): (u32, u32),
    ) -> Option<Arc<Called>> {
        let operation = plan.program(rank)?.ops.get(op as usize)?;
        let call = operation.action.calls().get(part as usize)?;
        let passed = plan.passed(rank, call);
        let is_known = |known: &Alike| known.is_of(operation, call, passed);
        let place = match self.alike.get(self.next).is_some_and(is_known) {
            true => Some(self.next),
            false => self.alike.iter().position(is_known),
        };
        if let Some((place, known)) = place.and_then(|at| Some((at, self.alike.get(at)?))) {
            self.next = (place + 1) % self.alike.len();
            return Some(Arc::clone(&known.called));
        }
        let called = Arc::new(Called::from(&plan.call(rank, op, part, 0)?));
        let new = Alike {
            call: call.clone(),
            at: operation.at,
            called_from: operation.called_from,
            holds: holds(operation),
            passed,
            called: Arc::clone(&called),
        };
        if self.alike.len() < REMEMBERED {
            self.alike.push(new);
        } else if let Some(old) = self.alike.get_mut(self.next) {
            *old = new;
            self.next = (self.next + 1) % REMEMBERED;
        }
        Some(called)
    }
}

/// True if the operation is one call that the program waits for.
fn holds(op: &Op) -> bool {
    matches!(op.action, Action::Call { async_op: false, .. })
}

impl Plan {
    /// A trace's account of the `part`-th call (0 unless they are coalesced) that operation `op`
    /// of `rank` makes, as number `seq` of its group; `None` if it makes none.
    pub fn call(&self, rank: GlobalRank, op: u32, part: u32, seq: u64) -> Option<Recorded> {
        let operation = self.program(rank)?.ops.get(op as usize)?;
        let call = operation.action.calls().get(part as usize)?;
        let (peer, tag) = match call {
            Call::Collective { .. } => (None, 0),
            Call::Send { peer, tag, .. } => (Some(*peer), *tag),
            Call::Recv { peer, tag, .. } => (*peer, *tag),
        };
        let collective = call.collective();
        let shape = |id: Option<TensorId>| {
            let tensor = id.and_then(|id| self.tensor(id)).into_iter();
            tensor.map(|t| TensorShape { shape: vec![t.numel], dtype: t.dtype }).collect()
        };
        let (input, output) = self.passed(rank, call);
        Some(Recorded {
            op: if holds(operation) { call.name() } else { call.async_name() }.to_owned(),
            group: call.group(),
            seq: Some(seq),
            p2p: collective.is_none(),
            peer,
            tag,
            inputs: shape(input),
            outputs: shape(output),
            reduce_op: collective.and_then(|collective| collective.reduce_op()),
            root: collective.and_then(|collective| collective.root()),
            plan_op: Some(op),
            stack: self.frames_of(operation).collect(),
            record_id: None,
        })
    }

    /// The lines of an operation as the frames of a stack, without the names of functions, innermost first.
    pub fn frames_of<'a>(&'a self, op: &'a Op) -> impl Iterator<Item = Frame> + 'a {
        let path = |at: SourceLine| self.sources.get(at.source as usize).map(|s| s.path.clone());
        self.lines_of(op).map(move |at| Frame {
            function: String::new(),
            file: path(at).unwrap_or_default(),
            line: at.line,
        })
    }

    /// The tensors that `rank` really passes: a program shared with the root names the root's too.
    fn passed(&self, rank: GlobalRank, call: &Call) -> (Option<TensorId>, Option<TensorId>) {
        let (group, collective, input, output, splits) = match call {
            Call::Send { tensor, .. } => return (Some(*tensor), None),
            Call::Recv { tensor, .. } => return (None, Some(*tensor)),
            Call::Collective { group, collective, input, output, splits, .. } => {
                (group, collective, *input, *output, splits)
            }
        };
        if collective.in_place() {
            return (output, output);
        }
        let group = self.group(*group);
        let Some((group, me)) = group.and_then(|group| Some((group, group.group_rank(rank)?)))
        else {
            return (None, None);
        };
        if splits.is_some() {
            return (input, output);
        }
        // One element tells as well as many whether there is a tensor.
        let passes_input = collective.input_elements(group.size(), me, 1);
        let gets_output = collective.output_elements(group.size(), me, 1);
        (passes_input.and(input), gets_output.and(output))
    }
}
