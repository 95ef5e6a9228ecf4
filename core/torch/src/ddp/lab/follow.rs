//! Follows a run's timeline into the passes of a rank.

use super::waits::wait;
use super::{
    BucketFate, CallKind, CallSpan, LabRun, LayerSpan, ParamFate, Pass, Raised, bucket_of, moments,
};
use crate::ddp::timeline::{OpSpan, SpanKind, StepTimeline};
use crate::ddp::{CallNote, DdpOp, StepNotes};
use lockstep_core::collective::Collective;
use lockstep_core::plan::{Action, Op, TimedCall};
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::collections::BTreeSet;

impl LabRun<'_> {
    /// A pass of rank 0, from 0; none past the last.
    pub fn pass(&self, number: u32) -> Option<Pass> {
        self.pass_of(0, number)
    }

    /// A pass of a rank.
    pub fn pass_of(&self, rank: u32, number: u32) -> Option<Pass> {
        let pass = self.followed(rank, number)?;
        Some(Pass { agreement: self.agreement(rank, number), ..pass })
    }

    /// The same without what depends on the passes before.
    pub(super) fn followed(&self, rank: u32, number: u32) -> Option<Pass> {
        let notes = self.notes(rank).get(number as usize)?;
        let times = self.times(rank).get(number as usize)?;
        let mut of = Follower::new(self, rank, notes, times);
        let StepNotes { kind, sync, rebuilds, .. } = *notes;
        let last = number as usize + 1 == self.notes(rank).len();
        let raised = self.raised(rank).filter(|_| last);
        let raised = raised.map(|text| Raised { here: notes.raises, text });
        let waits_for = self.waits_for(rank).filter(|_| last);
        let mut pass =
            Pass { number, rank, kind, sync, rebuilds, raised, waits_for, ..Pass::default() };
        of.layers(&mut pass);
        of.calls(&mut pass);
        of.gradients(&mut pass);
        of.buckets(&mut pass);
        pass.end_ps = of.at(times.end_ps);
        wait(&mut pass, &of.unwaited);
        let counts = self.setting.training.options.static_graph;
        let calls = (0..).zip(&pass.calls);
        let waits = calls.into_iter().all(|(at, call)| call.blocking || !of.unwaited.contains(&at));
        moments::write(&mut pass, &of.order, counts, waits);
        Some(pass)
    }

    /// The operations of a rank: those of the notes are its role's first rank's.
    pub(super) fn ops(&self, rank: u32) -> &[Op] {
        let role = self.run.roles.get(self.run.role(rank));
        let program = self.run.plan.program(GlobalRank(role.map_or(0, |role| role.rank)));
        program.map(|program| program.ops.as_slice()).unwrap_or_default()
    }

    /// The size of the group in which an operation of a rank is made.
    pub(super) fn ranks_of(&self, rank: u32, op: u32) -> u32 {
        let plan = &self.run.plan;
        let action = self.ops(rank).get(op as usize).map(|op| &op.action);
        let group = match action {
            Some(Action::Call { call, .. }) => plan.group(call.group()),
            _ => None,
        };
        group.map_or(plan.world_size, |group| group.size())
    }
}

/// Goes through the notes of a pass.
struct Follower<'a> {
    run: &'a LabRun<'a>,
    rank: u32,
    notes: &'a StepNotes,
    spans: &'a [OpSpan],
    start_ps: u64,
    /// Gradients with their times, in order.
    order: Vec<(u32, u64)>,
    /// Calls that nobody waits for, as indices into [`Pass::calls`].
    unwaited: BTreeSet<usize>,
}

impl<'a> Follower<'a> {
    fn new(
        run: &'a LabRun<'a>,
        rank: u32,
        notes: &'a StepNotes,
        times: &'a StepTimeline,
    ) -> Follower<'a> {
        let spans = &times.spans;
        let (order, unwaited) = (Vec::new(), BTreeSet::new());
        let mut of = Follower { run, rank, notes, spans, start_ps: 0, order, unwaited };
        // The first step's own collectives come before what `timeline` calls its start.
        let ops = notes.layers.iter().map(|note| note.op).chain(notes.calls.iter().map(|n| n.op));
        let first = ops.min().and_then(|op| of.span(op)).map(|span| span.ready_ps);
        of.start_ps = first.unwrap_or(times.start_ps).min(times.start_ps);
        of
    }

    fn span(&self, op: u32) -> Option<&'a OpSpan> {
        let at = self.spans.binary_search_by_key(&op, |span| span.op).ok()?;
        self.spans.get(at)
    }

    /// A time of the run as one of the pass.
    fn at(&self, ps: u64) -> u64 {
        ps.saturating_sub(self.start_ps)
    }

    fn layers(&self, pass: &mut Pass) {
        for note in &self.notes.layers {
            let Some(span) = self.span(note.op) else { continue };
            let (start_ps, end_ps) = (self.at(span.start_ps), self.at(span.end_ps));
            let (layer, forward) = (note.layer, note.forward);
            pass.layers.push(LayerSpan { layer, forward, start_ps, end_ps });
            match forward {
                true => pass.forward_end_ps = end_ps,
                false => pass.backward_end_ps = end_ps,
            }
        }
        let optimizer = self.spans.iter().find(|span| span.kind == SpanKind::Optimizer);
        pass.optimizer = optimizer.map(|span| (self.at(span.start_ps), self.at(span.end_ps)));
    }

    fn calls(&mut self, pass: &mut Pass) {
        let first_backward = self.notes.layers.iter().find(|note| !note.forward).map(|n| n.op);
        let optimizer = self.spans.iter().find(|span| span.kind == SpanKind::Optimizer);
        let optimizer = optimizer.map(|span| span.op);
        let waited = self.run.waited(self.rank, self.notes);
        for note in &self.notes.calls {
            if !waited.contains(&note.op) {
                self.unwaited.insert(pass.calls.len());
            }
            let Some(span) = self.span(note.op) else { continue };
            let blocking = span.kind == SpanKind::Blocking;
            let (start_ps, end_ps) = (self.at(span.start_ps), self.at(span.end_ps));
            let ready_ps = self.at(span.ready_ps);
            let waits = blocking && end_ps > ready_ps;
            pass.calls.push(CallSpan {
                kind: CallKind::of(&note.call),
                purpose: note.call.purpose,
                bytes: note.call.bytes(),
                blocking,
                ready_ps,
                start_ps,
                peers_ps: span.begun_ps.saturating_sub(span.start_ps),
                ranks: self.ranks(note.op),
                end_ps,
                latency_ps: self.latency_ps(note),
                launched_by: note.launched_by.and_then(|at| {
                    self.notes.gradients.get(at as usize).map(|gradient| gradient.param)
                }),
                waited_ps: waits.then_some((ready_ps, end_ps)),
            });
            let backward = first_backward.is_some_and(|op| note.op > op);
            if blocking && backward && optimizer.is_none_or(|op| note.op < op) {
                pass.backward_end_ps = pass.backward_end_ps.max(end_ps);
            }
        }
    }

    /// The size of the group in which an operation is made.
    fn ranks(&self, op: u32) -> u32 {
        self.run.ranks_of(self.rank, op)
    }

    fn latency_ps(&self, note: &CallNote) -> u64 {
        // On a machine whose calls are timed as a whole: what the call takes without its bytes.
        let timed = self.run.call_times.as_ref().and_then(|times| {
            let op = self.run.ops(self.rank).get(note.op as usize)?;
            let call = self.run.plan().timed_call(op.action.calls().first()?)?;
            times.collective(&TimedCall { bytes: 0, ..call })
        });
        if let Some(timed) = timed {
            return timed;
        }
        let size = self.ranks(note.op);
        let collective = match note.call.op {
            DdpOp::AllReduce { reduce_op } => Collective::AllReduce { op: reduce_op },
            DdpOp::Broadcast { root } => Collective::Broadcast { root: GroupRank(root) },
            DdpOp::AllGather => Collective::AllGather,
        };
        self.run.setting.links.duration_ps(collective, size, 0, 0)
    }

    fn gradients(&mut self, pass: &mut Pass) {
        let none =
            ParamFate { ready_ps: None, bucket: None, marked: false, ready_moment: u32::MAX };
        pass.params = vec![none; self.run.model.trained().count()];
        for &param in &self.notes.marked {
            if let Some(fate) = pass.params.get_mut(param as usize) {
                fate.marked = true;
            }
        }
        let counts = self.run.setting.training.options.static_graph;
        for note in &self.notes.gradients {
            let after = note.after.and_then(|op| self.span(op));
            let ready_ps = after.map_or(pass.forward_end_ps, |span| self.at(span.end_ps));
            if let Some(fate) = pass.params.get_mut(note.param as usize) {
                if counts || fate.ready_ps.is_none() {
                    fate.ready_ps = Some(ready_ps);
                }
                self.order.push((note.param, ready_ps));
            }
        }
    }

    fn buckets(&self, pass: &mut Pass) {
        // When each gradient comes, and after how many others: gradients of a layer come at one
        // time, yet one after the other. Unused ones are marked ready just before the first.
        let mut comes: Vec<Option<(u64, usize)>> = vec![None; pass.params.len()];
        if let Some((_, first)) = self.order.first() {
            for (comes, _) in comes.iter_mut().zip(&pass.params).filter(|(_, of)| of.marked) {
                *comes = Some((*first, 0));
            }
        }
        for (after, (param, ps)) in (1..).zip(&self.order) {
            if let Some(comes) = comes.get_mut(*param as usize) {
                *comes = Some((*ps, after));
            }
        }
        // The first bucket that is never full, and the latest of the buckets before.
        let mut never: Option<u32> = None;
        let mut latest: Option<((u64, usize), u32)> = None;
        for (number, bucket) in (0u32..).zip(&self.notes.buckets) {
            for &param in &bucket.indices {
                if let Some(fate) = pass.params.get_mut(param as usize) {
                    fate.bucket = Some(number);
                }
            }
            let comes = bucket.indices.iter().map(|param| {
                let comes = comes.get(*param as usize).copied().flatten();
                comes.map(|comes| (comes, *param))
            });
            let comes: Option<Vec<_>> = comes.collect();
            let full = comes.and_then(|comes| comes.into_iter().max());
            let mut fate = BucketFate {
                params: bucket.indices.clone(),
                bytes: bucket.bytes,
                limit: (bucket.limit > 0 && bucket.limit < u64::MAX).then_some(bucket.limit),
                full_ps: full.map(|((ps, _), _)| ps),
                last: full.map(|(_, param)| param),
                moments: [u32::MAX; 3],
                ..BucketFate::default()
            };
            if let (Some((comes, _)), Some((most, earlier))) = (full, latest)
                && most > comes
            {
                fate.held_by = Some(earlier);
            }
            if full.is_none() {
                never = never.or(Some(number));
            }
            if let Some((comes, _)) = full
                && latest.is_none_or(|(most, _)| comes > most)
            {
                latest = Some((comes, number));
            }
            pass.buckets.push(fate);
        }
        pass.delayed = self.notes.calls.iter().any(|note| bucket_of(note.call.purpose).is_some())
            && self.notes.calls.iter().all(is_delayed);
        for (index, call) in (0u32..).zip(&pass.calls) {
            let Some(fate) = call.of_bucket().and_then(|b| pass.buckets.get_mut(b as usize)) else {
                continue;
            };
            match &mut fate.span_ps {
                Some((_, end)) => *end = call.end_ps,
                none => {
                    *none = Some((call.start_ps, call.end_ps));
                    fate.launch_ps = Some(call.ready_ps);
                    fate.launched_by = call.launched_by;
                    if call.start_ps > call.ready_ps {
                        let before = pass.calls.get(..index as usize).unwrap_or_default();
                        let busy = before.iter().rposition(|other| other.end_ps == call.start_ps);
                        fate.behind = busy.map(|index| index as u32);
                    }
                }
            }
        }
        for (number, fate) in (0u32..).zip(&mut pass.buckets) {
            if fate.span_ps.is_none() && fate.full_ps.is_some() {
                fate.held_by = never.filter(|never| *never < number).or(fate.held_by);
            }
        }
    }
}

fn is_delayed(note: &CallNote) -> bool {
    bucket_of(note.call.purpose).is_none() || note.launched_by.is_none()
}
