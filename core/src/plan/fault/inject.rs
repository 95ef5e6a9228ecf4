//! Faults written into a plan's programs.

use super::{Fault, FaultError, FaultKind, MAX_FAULTS, Moment};
use crate::plan::{Action, Call, Op, Plan, Program, SignalKind, Tensor, TensorData, TensorId};
use crate::rank::GlobalRank;
use std::collections::BTreeMap;

fn inject(plan: &Plan, faults: &[Fault], signals_sent: bool) -> Result<Injected, FaultError> {
    plan.check_faults(faults)?;
    let mut injected = Injected { plan: plan.clone(), signals: Vec::new() };
    let mut by_rank: BTreeMap<GlobalRank, Vec<Fault>> = BTreeMap::new();
    for fault in faults {
        by_rank.entry(fault.rank).or_default().push(*fault);
    }
    for (rank, faults) in by_rank {
        inject_rank(&mut injected, rank, &faults, signals_sent)?;
    }
    injected.plan.check()?;
    Ok(injected)
}

/// The faults of one rank, in a program of its own.
fn inject_rank(
    injected: &mut Injected,
    rank: GlobalRank,
    faults: &[Fault],
    signals_sent: bool,
) -> Result<(), FaultError> {
    let plan = &mut injected.plan;
    let mut program = plan.program(rank).cloned().unwrap_or_default();
    let places = places(&program);
    let mut dropped: Vec<(usize, usize)> = Vec::new();
    let mut inserted: Vec<(usize, Fault)> = Vec::new();
    for fault in faults {
        let place = place_of(fault, &places)?;
        match (fault.what, place, fault.when) {
            (FaultKind::Drop, Some(place), _) => dropped.push(place),
            (FaultKind::Resize { count }, Some((op, part)), _) => {
                let tensors = &mut plan.tensors;
                if let Some(call) = call_mut(&mut program.ops[op].action, part) {
                    resize(call, tensors, count).ok_or_else(|| FaultError::NoSize {
                        fault: *fault,
                        call: call.name().to_owned(),
                    })?;
                }
            }
            (_, Some((op, _)), _) => inserted.push((op, *fault)),
            (_, None, when) => match (fault.what.signal(), when) {
                (Some(what), Moment::AfterMs(after_ms)) if signals_sent => {
                    injected.signals.push(Signal { rank, after_ms, what });
                }
                _ => return Err(FaultError::WallTime { fault: *fault }),
            },
        }
    }
    drop_calls(&mut program.ops, dropped);
    // From the back, so that what is in front keeps its place; those of one place in their order.
    inserted.sort_by_key(|(op, _)| *op);
    for (op, fault) in inserted.into_iter().rev() {
        insert(&mut program.ops, op, mark(fault));
    }
    if let Some(of_rank) = injected.plan.program_of.get_mut(rank.index()) {
        *of_rank = injected.plan.programs.len() as u32;
        injected.plan.programs.push(program);
    }
    Ok(())
}

/// The places of a rank's calls: operation, and part of it.
fn places(program: &Program) -> Vec<(usize, usize)> {
    let parts = |op: &Op| 0..op.action.calls().len();
    let ops = program.ops.iter().enumerate();
    ops.flat_map(|(at, op)| parts(op).map(move |part| (at, part))).collect()
}

/// The place of its call of that number, the first of which is 1.
fn place(places: &[(usize, usize)], call: u32) -> Option<(usize, usize)> {
    (call as usize).checked_sub(1).and_then(|call| places.get(call)).copied()
}

/// The place of the call that a fault names; `None` for one by the clock.
fn place_of(
    fault: &Fault,
    places: &[(usize, usize)],
) -> Result<Option<(usize, usize)>, FaultError> {
    let Moment::Call(call) = fault.when else { return Ok(None) };
    let calls = places.len() as u32;
    place(places, call).map(Some).ok_or(FaultError::NoSuchCall { fault: *fault, calls })
}

/// Before which of a rank's operations faults put one of their own.
fn inserted(plan: &Plan, faults: &[Fault]) -> BTreeMap<GlobalRank, Vec<u32>> {
    let mut inserted: BTreeMap<GlobalRank, Vec<u32>> = BTreeMap::new();
    for fault in faults {
        if let (Moment::Call(call), Some(program)) = (fault.when, plan.program(fault.rank))
            && !matches!(fault.what, FaultKind::Drop | FaultKind::Resize { .. })
            && let Some((op, _)) = place(&places(program), call)
        {
            inserted.entry(fault.rank).or_default().push(op as u32);
        }
    }
    inserted
}

/// Begins the names of operations that stand for faults and are no signals.
const INJECTED: &str = "injected ";

/// Ends the name of a tensor that a fault gave another size.
const RESIZED: &str = " (resized)";

/// The operation that a fault before a call is.
fn mark(fault: Fault) -> Action {
    let sleep = |name: &str, duration_ns| Action::Sleep { name: name.into(), duration_ns };
    match fault.what {
        FaultKind::Kill => Action::Signal(SignalKind::Kill),
        FaultKind::Stop { for_ms } => Action::Signal(SignalKind::Stop { for_ms }),
        FaultKind::Delay { by_ms } => sleep("injected delay", by_ms.saturating_mul(1_000_000)),
        FaultKind::Drop | FaultKind::Resize { .. } => sleep("injected fault", 0),
    }
}

fn call_mut(action: &mut Action, part: usize) -> Option<&mut Call> {
    action.calls_mut().get_mut(part)
}

/// True if a call has one number of elements, which a fault can change.
fn has_size(call: &Call) -> bool {
    match call {
        Call::Collective { splits: Some(_), .. } | Call::Collective { count: 0, .. } => false,
        Call::Collective { collective, .. } => !collective.is_barrier(),
        Call::Send { .. } | Call::Recv { .. } => true,
    }
}

/// Gives the call another number of elements; `None` if it has none.
fn resize(call: &mut Call, tensors: &mut Vec<Tensor>, wanted: u64) -> Option<()> {
    if !has_size(call) {
        return None;
    }
    match call {
        Call::Collective { count, input, output, .. } => {
            for tensor in [input, output].into_iter().flatten() {
                let parts = tensors.get(tensor.index())?.numel / *count;
                another(tensor, tensors, parts.saturating_mul(wanted))?;
            }
            *count = wanted;
            Some(())
        }
        Call::Send { tensor, .. } | Call::Recv { tensor, .. } => another(tensor, tensors, wanted),
    }
}

/// Calls pass whole tensors: one of another size is another tensor.
fn another(tensor: &mut TensorId, tensors: &mut Vec<Tensor>, numel: u64) -> Option<()> {
    let mut other = tensors.get(tensor.index())?.clone();
    other.name.push_str(RESIZED);
    other.numel = numel;
    // Its initial values may be longer than its new size.
    let bytes = usize::try_from(other.bytes()).unwrap_or(usize::MAX);
    if other.data.0.len() > bytes {
        other.data = TensorData::default();
    }
    *tensor = TensorId(tensors.len() as u32);
    tensors.push(other);
    Some(())
}

/// Removes calls; operations that asked for their works no longer do.
fn drop_calls(ops: &mut [Op], mut dropped: Vec<(usize, usize)>) {
    dropped.sort_unstable();
    dropped.dedup();
    for (op, part) in dropped.into_iter().rev() {
        let Some(operation) = ops.get_mut(op) else { continue };
        if let Action::Coalesced { calls, .. } = &mut operation.action
            && calls.len() > 1
        {
            calls.remove(part);
            continue;
        }
        let name = format!("injected drop of {}", operation.action.name()).into();
        operation.action = Action::Sleep { name, duration_ns: 0 };
        for later in ops.iter_mut().skip(op + 1) {
            if let Action::Wait { op: of, .. } | Action::Query { op: of, .. } = later.action
                && of as usize == op
            {
                let name = "no work to wait for: its call was dropped".into();
                later.action = Action::Sleep { name, duration_ns: 0 };
            }
        }
    }
}

/// Inserts an operation before another; operations that refer to later ones by index still refer to the same
/// ones.
fn insert(ops: &mut Vec<Op>, at: usize, action: Action) {
    for later in ops.iter_mut().skip(at) {
        if let Action::Wait { op, .. } | Action::Query { op, .. } = &mut later.action
            && *op as usize >= at
        {
            *op += 1;
        }
    }
    let line = ops.get(at).and_then(|op| op.at);
    ops.insert(at, Op::new(action, line));
}

/// A signal that a process is to be sent by the clock, by whoever runs it. One that comes with an operation is
/// an operation itself, [`Action::Signal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The rank that gets the signal.
    pub rank: GlobalRank,
    /// Milliseconds after the start.
    pub after_ms: u64,
    /// The signal that is sent.
    pub what: SignalKind,
}

/// A plan with its faults written into it, and the signals of the clock, which it cannot hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The plan as it is run.
    pub plan: Plan,
    /// The signals that the executor sends.
    pub signals: Vec<Signal>,
}

impl Plan {
    /// Checks that the plan has the ranks and calls that faults name, without writing them into it. A size with which the
    /// plan cannot be run shows only in [`Plan::with_faults`].
    ///
    /// # Errors
    /// The first fault that names something that the plan lacks.
    pub fn check_faults(&self, faults: &[Fault]) -> Result<(), FaultError> {
        if faults.len() > MAX_FAULTS {
            return Err(FaultError::TooMany(faults.len()));
        }
        for fault in faults {
            if fault.rank.0 >= self.world_size {
                let last = self.world_size.saturating_sub(1);
                return Err(FaultError::NoSuchRank { fault: *fault, last });
            }
            let program = self.program(fault.rank);
            let Some((op, part)) = place_of(fault, &program.map(places).unwrap_or_default())?
            else {
                continue;
            };
            let call = program.and_then(|program| program.ops.get(op)?.action.calls().get(part));
            if let (FaultKind::Resize { .. }, Some(call)) = (fault.what, call)
                && !has_size(call)
            {
                return Err(FaultError::NoSize { fault: *fault, call: call.name().to_owned() });
            }
        }
        Ok(())
    }

    /// The plan with faults, for an executor that can send signals.
    ///
    /// # Errors
    /// When a fault names something that the plan lacks.
    pub fn with_faults(&self, faults: &[Fault]) -> Result<Injected, FaultError> {
        inject(self, faults, true)
    }

    /// The plan with faults, for the simulator.
    ///
    /// # Errors
    /// When a fault names something that the plan lacks, or wall time.
    pub fn with_simulated_faults(&self, faults: &[Fault]) -> Result<Plan, FaultError> {
        inject(self, faults, false).map(|injected| injected.plan)
    }

    /// True if faults were written into the plan, as far as that shows: signals, delays, calls left out or of another size.
    pub fn has_injected_faults(&self) -> bool {
        let is_fault = |op: &Op| match &op.action {
            Action::Signal(_) => true,
            Action::Sleep { name, .. } => name.starts_with(INJECTED),
            _ => false,
        };
        self.programs.iter().flat_map(|program| &program.ops).any(is_fault)
            || self.tensors.iter().any(|tensor| tensor.name.ends_with(RESIZED))
    }

    /// A function from the number of operations before a place in a rank's program without faults
    /// to that number once faults are written into it: some faults are operations of their own.
    pub fn places_with_faults(&self, faults: &[Fault]) -> impl Fn(GlobalRank, u32) -> u32 + use<> {
        let inserted = inserted(self, faults);
        move |rank, before| {
            let of_rank = inserted.get(&rank).map_or(&[][..], Vec::as_slice);
            before.saturating_add(of_rank.iter().filter(|op| **op < before).count() as u32)
        }
    }
}
