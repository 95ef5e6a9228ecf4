//! When everything of a training plan happens, in closed form, for a job whose ranks all do the
//! same on equal links.
//!
//! Then one rank stands for all: its compute stream, its communication stream, and a collective
//! that takes what its steps take (a ring's 2(n - 1) steps of a chunk each, the alpha-beta model).
//! The simulator says the same of such a job (`sim/tests/ddp.rs`), message by message; this says it
//! in the time that a slider needs, for any world size.

use super::links::Links;
use crate::plan::{Action, Call, Plan};
use serde::{Deserialize, Serialize};

/// A link between two neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingLink {
    /// From a message's departure to its arrival, in picoseconds.
    pub latency_ps: u64,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

/// An operation of the plan on the rank's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OpSpan {
    /// Its index in the rank's program.
    pub op: u32,
    /// What it is.
    pub kind: SpanKind,
    /// For a collective, when the compute stream has come to it; else when it begins.
    pub ready_ps: u64,
    /// When it begins, in picoseconds.
    pub start_ps: u64,
    /// When it is done.
    pub end_ps: u64,
}

/// What an operation is to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// A layer's forward pass.
    Forward,
    /// A layer's backward pass.
    Backward,
    /// The optimizer's step.
    Optimizer,
    /// A collective that the stream waits for at once.
    Blocking,
    /// A bucket's collective.
    Bucket,
}

/// A step of a training run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepTimeline {
    /// Its operations, by index.
    pub spans: Vec<OpSpan>,
    /// When it begins, in picoseconds.
    pub start_ps: u64,
    /// When the last layer's backward pass is done.
    pub backward_end_ps: u64,
    /// When it ends.
    pub end_ps: u64,
    /// How long its buckets are communicated.
    pub communication_ps: u64,
    /// How long the compute stream waits for its buckets, and for a sharded optimizer's broadcasts.
    pub exposed_ps: u64,
}

/// The steps of a training plan, as one of its ranks takes them. The constructor is before the
/// first step.
pub fn timeline(plan: &Plan, links: impl Into<Links>) -> Vec<StepTimeline> {
    let links = links.into();
    let mut steps: Vec<StepTimeline> = Vec::new();
    let mut step = StepTimeline::default();
    let (mut compute_ps, mut done_ps) = (0u64, Vec::new());
    // One communication stream a group.
    let mut free_ps = vec![0u64; plan.groups.len()];
    let ops = plan.programs.first().map(|program| program.ops.as_slice()).unwrap_or_default();
    let mut constructing = true;
    for (op, operation) in (0u32..).zip(ops) {
        done_ps.push(compute_ps);
        match &operation.action {
            Action::Compute { name, duration_ns } => {
                let kind = match name.split(' ').next() {
                    Some("forward") => SpanKind::Forward,
                    Some("backward") => SpanKind::Backward,
                    _ => SpanKind::Optimizer,
                };
                let (start_ps, ready_ps) = (compute_ps, compute_ps);
                compute_ps = compute_ps.saturating_add(duration_ns.saturating_mul(1000));
                step.spans.push(OpSpan { op, kind, ready_ps, start_ps, end_ps: compute_ps });
                match kind {
                    SpanKind::Backward => step.backward_end_ps = compute_ps,
                    SpanKind::Forward if constructing => {
                        constructing = false;
                        step.start_ps = start_ps;
                    }
                    _ => {}
                }
            }
            Action::Call { call, async_op } => {
                let Call::Collective { group, collective, count, output, .. } = call else {
                    continue;
                };
                let size = plan.group(*group).map_or(1, |group| group.size());
                let tensor = output.and_then(|id| plan.tensor(id));
                let bytes = tensor.map_or(1, |tensor| tensor.dtype.size_bytes());
                let free = free_ps.get(group.index()).copied().unwrap_or(0);
                let start_ps = compute_ps.max(free);
                let duration = links.duration_ps(*collective, size, *count, bytes);
                let end_ps = start_ps.saturating_add(duration);
                if let Some(free) = free_ps.get_mut(group.index()) {
                    *free = end_ps;
                }
                done_ps[op as usize] = end_ps;
                let kind = if *async_op { SpanKind::Bucket } else { SpanKind::Blocking };
                step.spans.push(OpSpan { op, kind, ready_ps: compute_ps, start_ps, end_ps });
                match async_op {
                    true => step.communication_ps = step.communication_ps.saturating_add(duration),
                    false => compute_ps = end_ps,
                }
            }
            Action::Wait { op, .. } => {
                let waited = done_ps.get(*op as usize).copied().unwrap_or(0);
                let exposed = waited.saturating_sub(compute_ps);
                step.exposed_ps = step.exposed_ps.saturating_add(exposed);
                compute_ps = compute_ps.max(waited);
            }
            _ => {}
        }
        // A step ends where the next one's first line begins, with or without an optimizer.
        let next = ops.get(op as usize + 1);
        let line = |op: Option<&crate::plan::Op>| op.and_then(|op| op.at).map(|at| at.line);
        let (own, next) = (line(Some(operation)), line(next));
        let over = match next {
            None => true,
            Some(next) => own.is_some_and(|own| next < own),
        };
        if over && !constructing {
            step.end_ps = compute_ps;
            steps.push(std::mem::take(&mut step));
            step.start_ps = compute_ps;
            step.backward_end_ps = compute_ps;
        }
    }
    steps
}
