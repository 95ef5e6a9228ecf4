//! The times of a training plan, in closed form, for a job whose ranks do the same, or play one of a few
//! roles, on equal links.
//!
//! Then one rank represents all of its role: its compute stream, its communication stream, and a collective
//! that takes the time of its steps (a ring's 2(n - 1) steps of a chunk each, the alpha-beta model). The
//! simulator agrees for such a job (`sim/tests/suite/ddp`), message by message; this computes the times as
//! fast as a slider needs, for any world size.

use super::links::Links;
use super::notes::{Role, TrainingRun};
use super::pipeline::Pipeline;
use lockstep_core::collective::Collective;
use lockstep_core::plan::{Action, Call, CallTimes, Op, Plan};
use lockstep_core::rank::GlobalRank;
use serde::Serialize;

/// An operation of the plan on the rank's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OpSpan {
    /// Its index in the rank's program.
    pub op: u32,
    /// The kind of span.
    pub kind: SpanKind,
    /// For a collective, when the compute stream has come to it; else when it begins.
    pub ready_ps: u64,
    /// When it begins, in picoseconds.
    pub start_ps: u64,
    /// For a collective, when the last of its ranks has begun it; else when it begins.
    pub begun_ps: u64,
    /// When it is done.
    pub end_ps: u64,
}

/// The role of an operation in a step.
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
    /// Time of its asynchronous communication: that of buckets, and a sharded optimizer's
    /// broadcasts.
    pub communication_ps: u64,
    /// Time that the compute stream waits for that.
    pub exposed_ps: u64,
}

/// The steps of a training plan, as one of its ranks takes them. The constructor is before the
/// first step.
pub fn timeline(plan: &Plan, links: impl Into<Links>) -> Vec<StepTimeline> {
    let ops = plan.programs.first().map(|program| program.ops.as_slice()).unwrap_or_default();
    let line = |op: &Op| op.at.map(|at| at.line);
    let computes = |op: &Op| matches!(&op.action, Action::Compute { name, .. } if name.starts_with("forward "));
    // A step begins where the next one's first line does, with or without an optimizer.
    let first = ops.iter().position(computes).unwrap_or(ops.len());
    let later = (first + 1..ops.len()).filter(|at| line(&ops[*at]) < line(&ops[*at - 1]));
    let begins: Vec<u32> = std::iter::once(first)
        .filter(|at| *at < ops.len())
        .chain(later)
        .map(|at| at as u32)
        .collect();
    let mut cast = Cast::new(plan, links.into(), None, vec![ops]);
    cast.play();
    cast.steps(0, &begins)
}

/// The steps of every role of a training run, including the waits of ranks of different roles for each other.
/// Collectives that `call_times` knows take its time, each alone.
pub fn timelines(
    run: &TrainingRun,
    links: impl Into<Links>,
    call_times: Option<&CallTimes>,
) -> Vec<Vec<StepTimeline>> {
    let ops = |role: &Role| {
        let program = run.plan.program(GlobalRank(role.rank));
        program.map(|program| program.ops.as_slice()).unwrap_or_default()
    };
    let programs = run.roles.iter().map(ops).collect();
    let mut cast = Cast::new(&run.plan, links.into(), call_times, programs);
    cast.play();
    let steps = run.roles.iter().enumerate().map(|(actor, role)| {
        let begins: Vec<u32> = role.steps.iter().map(|step| step.first_op).collect();
        cast.steps(actor, &begins)
    });
    steps.collect()
}

/// One rank for every role, and the collectives that they have together.
struct Cast<'a> {
    plan: &'a Plan,
    links: Links,
    call_times: Option<&'a CallTimes>,
    actors: Vec<Actor<'a>>,
    queues: Vec<Queue>,
}

/// A rank that represents all of its role.
struct Actor<'a> {
    ops: &'a [Op],
    next: usize,
    compute_ps: u64,
    /// Per operation that has begun, when the compute stream came to it.
    came_ps: Vec<u64>,
    /// Per operation, its place in its group's queue.
    place: Vec<Option<(usize, usize)>>,
    /// Per wait, how long it takes.
    waited_ps: Vec<(u32, u64)>,
    /// Computations with their spans.
    computed: Vec<OpSpan>,
}

/// The collectives of a group, in order: there is one communication stream a group.
#[derive(Default)]
struct Queue {
    /// The actors that are in the group.
    members: Vec<usize>,
    calls: Vec<Queued>,
    /// Per member, how many it has issued.
    issued: Vec<usize>,
    pipeline: Pipeline,
}

/// A collective in its group's queue.
#[derive(Clone)]
struct Queued {
    /// Per member, when its compute stream came to it.
    ready_ps: Vec<Option<u64>>,
    /// The duration on an otherwise idle network, in picoseconds.
    duration_ps: u64,
    /// The world size, root and bytes of a broadcast.
    broadcast: Option<(u32, u32, u64)>,
    /// When all have begun it, and when it is done.
    span_ps: Option<(u64, u64)>,
}

impl<'a> Cast<'a> {
    fn new(
        plan: &'a Plan,
        links: Links,
        call_times: Option<&'a CallTimes>,
        programs: Vec<&'a [Op]>,
    ) -> Cast<'a> {
        let mut queues: Vec<Queue> = plan.groups.iter().map(|_| Queue::default()).collect();
        for (actor, ops) in programs.iter().enumerate() {
            for call in ops.iter().flat_map(|op| op.action.calls()) {
                if let Some(queue) = queues.get_mut(call.group().index())
                    && queue.members.last() != Some(&actor)
                {
                    queue.members.push(actor);
                    queue.issued.push(0);
                }
            }
        }
        let actors = programs.into_iter().map(|ops| Actor {
            ops,
            next: 0,
            compute_ps: 0,
            came_ps: Vec::with_capacity(ops.len()),
            place: vec![None; ops.len()],
            waited_ps: Vec::new(),
            computed: Vec::new(),
        });
        Cast { plan, links, call_times, actors: actors.collect(), queues }
    }

    /// Every rank goes on until none can.
    fn play(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for actor in 0..self.actors.len() {
                while self.step(actor) {
                    moved = true;
                }
            }
        }
    }

    /// Carries out the next operation of an actor, if it need not wait for another one.
    fn step(&mut self, actor: usize) -> bool {
        let Some(of) = self.actors.get_mut(actor) else { return false };
        let Some(operation) = of.ops.get(of.next) else { return false };
        let op = of.next as u32;
        if of.came_ps.len() == of.next {
            of.came_ps.push(of.compute_ps);
            if let [call @ Call::Collective { .. }] = operation.action.calls() {
                self.issue(actor, call);
            }
        }
        let Some(of) = self.actors.get_mut(actor) else { return false };
        let done = |place: Option<(usize, usize)>| {
            let (group, index) = place?;
            self.queues.get(group)?.calls.get(index)?.span_ps.map(|(_, end)| end)
        };
        match &operation.action {
            Action::Compute { name, duration_ns } => {
                let kind = match name.split(' ').next() {
                    Some("forward") => SpanKind::Forward,
                    Some("backward") => SpanKind::Backward,
                    _ => SpanKind::Optimizer,
                };
                let start_ps = of.compute_ps;
                of.compute_ps = start_ps.saturating_add(duration_ns.saturating_mul(1000));
                let (ready_ps, begun_ps, end_ps) = (start_ps, start_ps, of.compute_ps);
                of.computed.push(OpSpan { op, kind, ready_ps, start_ps, begun_ps, end_ps });
            }
            Action::Call { async_op: false, call } if !call.is_p2p() => {
                match done(of.place[of.next]) {
                    Some(end_ps) => of.compute_ps = end_ps,
                    None => return false,
                }
            }
            Action::Wait { op: of_call, .. } => {
                let place = of.place.get(*of_call as usize).copied().flatten();
                match (place, done(place)) {
                    (Some(_), None) => return false,
                    (_, end_ps) => {
                        let end_ps = end_ps.unwrap_or(0).max(of.compute_ps);
                        of.waited_ps.push((op, end_ps - of.compute_ps));
                        of.compute_ps = end_ps;
                    }
                }
            }
            _ => {}
        }
        of.next += 1;
        true
    }

    /// An actor has come to a collective; when all of its group have, it is carried out.
    fn issue(&mut self, actor: usize, call: &Call) {
        let Call::Collective { group, collective, count, output, .. } = call else { return };
        let Some(queue) = self.queues.get_mut(group.index()) else { return };
        let Some(member) = queue.members.iter().position(|of| *of == actor) else { return };
        let Some(of) = self.actors.get_mut(actor) else { return };
        let index = queue.issued.get(member).copied().unwrap_or(0);
        if let Some(issued) = queue.issued.get_mut(member) {
            *issued += 1;
        }
        if queue.calls.len() == index {
            let size = self.plan.group(*group).map_or(1, |group| group.size());
            let tensor = output.and_then(|id| self.plan.tensor(id));
            let bytes = tensor.map_or(1, |tensor| tensor.dtype.size_bytes());
            let timed = self.call_times.and_then(|times| {
                let of_call = self.plan.timed_call(call)?;
                times.collective(&of_call)
            });
            let by_links = || self.links.duration_ps(*collective, size, *count, bytes);
            let duration_ps = timed.unwrap_or_else(by_links);
            let broadcast = match collective {
                Collective::Broadcast { root } if timed.is_none() => {
                    Some((size, root.0, count.saturating_mul(bytes)))
                }
                _ => None,
            };
            let ready_ps = vec![None; queue.members.len()];
            queue.calls.push(Queued { ready_ps, duration_ps, broadcast, span_ps: None });
        }
        if let Some(place) = of.place.get_mut(of.next) {
            *place = Some((group.index(), index));
        }
        let before = index.checked_sub(1).and_then(|before| queue.calls.get(before));
        let free_ps = before.and_then(|call| call.span_ps).map_or(0, |(_, end)| end);
        let after_broadcast = before.is_some_and(|call| call.broadcast.is_some());
        let Some(call) = queue.calls.get_mut(index) else { return };
        if let Some(ready) = call.ready_ps.get_mut(member) {
            *ready = Some(of.compute_ps);
        }
        let all: Option<Vec<u64>> = call.ready_ps.iter().copied().collect();
        if let Some(all) = all {
            let come_ps = all.into_iter().max().unwrap_or(0);
            let start_ps = come_ps.max(free_ps);
            let end_ps = match call.broadcast {
                Some((size, root, bytes)) => {
                    // Behind another one its ranks begin as they come; behind anything else at once.
                    let ready_ps = if after_broadcast { come_ps } else { start_ps };
                    queue.pipeline.broadcast(&self.links, size, root, bytes, ready_ps)
                }
                None => {
                    queue.pipeline.meet();
                    None
                }
            };
            let end_ps = end_ps.unwrap_or(start_ps.saturating_add(call.duration_ps));
            call.span_ps = Some((start_ps, end_ps.max(start_ps)));
        }
    }

    /// The spans of an actor, cut into steps at these operations.
    fn steps(&self, actor: usize, begins: &[u32]) -> Vec<StepTimeline> {
        let Some(of) = self.actors.get(actor) else { return Vec::new() };
        let mut spans = of.computed.clone();
        for (op, place) in (0u32..).zip(&of.place) {
            spans.extend(place.and_then(|place| self.span(of, op, place)));
        }
        spans.sort_by_key(|span| span.op);
        let came = |op: u32| of.came_ps.get(op as usize).copied().unwrap_or(of.compute_ps);
        let mut steps = Vec::new();
        for (number, &begin) in begins.iter().enumerate() {
            let end = begins.get(number + 1).copied();
            // The constructor's calls are listed with the first step.
            let from = if number == 0 { 0 } else { begin };
            let within = |op: u32| op >= from && end.is_none_or(|end| op < end);
            let mut step = StepTimeline {
                start_ps: came(begin),
                end_ps: end.map_or(of.compute_ps, came),
                backward_end_ps: came(begin),
                ..StepTimeline::default()
            };
            let first = spans.partition_point(|span| span.op < from);
            let own = spans.iter().skip(first).take_while(|span| within(span.op));
            step.spans = own.copied().collect();
            for span in &step.spans {
                match span.kind {
                    SpanKind::Backward => step.backward_end_ps = span.end_ps,
                    SpanKind::Bucket => {
                        let took = span.end_ps - span.begun_ps;
                        step.communication_ps = step.communication_ps.saturating_add(took);
                    }
                    _ => {}
                }
            }
            let waits = of.waited_ps.iter().filter(|(op, _)| within(*op));
            step.exposed_ps = waits.map(|(_, waited)| *waited).fold(0, u64::saturating_add);
            steps.push(step);
        }
        steps
    }

    fn span(&self, of: &Actor<'_>, op: u32, (group, index): (usize, usize)) -> Option<OpSpan> {
        let queue = self.queues.get(group)?;
        let (begun_ps, end_ps) = queue.calls.get(index)?.span_ps?;
        let free_ps = index.checked_sub(1).and_then(|before| queue.calls.get(before)?.span_ps);
        let ready_ps = of.came_ps.get(op as usize).copied()?;
        let action = &of.ops.get(op as usize)?.action;
        let kind = match action {
            Action::Call { async_op: true, .. } => SpanKind::Bucket,
            _ => SpanKind::Blocking,
        };
        let start_ps = ready_ps.max(free_ps.map_or(0, |(_, end)| end));
        Some(OpSpan { op, kind, ready_ps, start_ps, begun_ps, end_ps })
    }
}
