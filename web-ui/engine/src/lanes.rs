//! A trace as lanes of spans, sorted so that any moment is found in logarithmic time.
//!
//! Each rank has a lane for its program (if there is a plan), one for its compute stream (if it has
//! a device, or if a profiler recorded its kernels), one to four for its calls in flight, and one for the messages it sends (if they were
//! recorded). The spans of a lane never overlap.

use super::class::Class;
use lockstep_core::plan::{Action, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, Event, RecordedComputation, What, on_one_row};
use lockstep_web_protocol::call_kinds;
use lockstep_web_protocol::{RowKind, WorkAnswer};
use std::collections::{BTreeMap, VecDeque};

/// The end of a span that has none yet.
pub(super) const OPEN: u64 = u64::MAX;

/// More calls in flight on one rank than this wait for a lane to be free.
const MAX_CALL_LANES: usize = 4;

/// More answers than this are not listed.
const MAX_ANSWERS: usize = 512;

/// An act of a rank from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    /// When its stream began to carry it out; `from` when that is not known.
    pub(super) started: u64,
    pub(super) to: u64,
    pub(super) class: Class,
    /// The work's number, or the operation's index, or the message's receiver.
    pub(super) what: u32,
}

/// The lanes of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct RankLanes {
    pub(super) program: Vec<Span>,
    /// The compute stream.
    pub(super) stream: Vec<Span>,
    pub(super) calls: [Vec<Span>; MAX_CALL_LANES],
    pub(super) messages: Vec<Span>,
    /// Since when its process does nothing that takes time, and after which operation.
    free: (u64, u32),
    /// Calls that found no free lane, in call order.
    overflow: VecDeque<Span>,
}

/// The lanes of every rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    pub(super) ranks: Vec<RankLanes>,
    pub(super) end_ps: u64,
    /// When something last happened that was not the end of the job or a timeout.
    pub(super) busy_ps: u64,
    /// Queries of works and what they answered: time, rank, operation.
    answers: Vec<(u64, GlobalRank, u32, String)>,
    call_lanes: usize,
    program: bool,
    stream: bool,
    messages: bool,
    /// Messages on their way, per sender and receiver: where each is in the sender's lane.
    on_their_way: BTreeMap<(u32, u32), VecDeque<usize>>,
    /// Arrivals that a live trace tells of before the departure.
    arrived: BTreeMap<(u32, u32), VecDeque<u64>>,
}

/// The lane that a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    Program,
    Stream,
    Calls(usize),
    Messages,
}

impl Lanes {
    pub(super) fn new(world_size: u32) -> Lanes {
        Lanes { ranks: vec![RankLanes::default(); world_size as usize], ..Lanes::default() }
    }

    /// The stretch in which things happen: a hang ends long after anything did, when the watchdog
    /// comes; what is still open at the end of a recording needs room to be seen.
    pub(super) fn fit(&self) -> (u64, u64) {
        let until = match self.busy_ps {
            busy if busy > 0 && self.end_ps > busy.saturating_mul(5) => busy.saturating_mul(3) / 2,
            _ => self.end_ps.saturating_add(self.end_ps / 50),
        };
        (0, until.max(1))
    }

    /// Adds a twelfth at the end, where calls that never completed are seen to go on: a recording
    /// stops at its last event, not when the job did.
    pub(super) fn leave_room(&mut self) {
        self.end_ps = self.end_ps.saturating_add(self.end_ps / 12);
    }

    /// The answers of works, by time and rank.
    pub(super) fn answers(&self, plan: Option<&Plan>) -> Vec<WorkAnswer> {
        let mut answers = self.answers.clone();
        answers.sort_by_key(|(time, rank, op, _)| (*time, *rank, *op));
        let named = answers.into_iter().map(|(time_ps, rank, op, answer)| {
            let asked = plan.and_then(|plan| plan.program(rank)?.ops.get(op as usize));
            let question = asked.map_or("query", |op| op.action.name()).to_owned();
            WorkAnswer { time_ps, rank: rank.0, question, answer }
        });
        named.collect()
    }

    /// Shows the calls alone, as recordings do.
    pub(super) fn show_calls_only(&mut self) {
        (self.program, self.stream, self.messages) = (false, false, false);
    }

    /// The rows of each rank, top down.
    pub(super) fn rows(&self) -> Vec<Row> {
        let calls = (0..self.call_lanes.max(1)).map(Row::Calls);
        let program = self.program.then_some(Row::Program);
        let stream = self.stream.then_some(Row::Stream);
        program
            .into_iter()
            .chain(stream)
            .chain(calls)
            .chain(self.messages.then_some(Row::Messages))
            .collect()
    }

    /// The kind of a row.
    pub(super) fn kind(&self, row: Row) -> RowKind {
        match row {
            Row::Program => RowKind::Process,
            Row::Stream => RowKind::Compute,
            Row::Calls(_) if self.stream => RowKind::Communication,
            Row::Calls(_) => RowKind::Calls,
            Row::Messages => RowKind::Messages,
        }
    }

    /// The kinds of calls that are there, ascending (`call_kinds::op_kind`), and whether one of them never ended.
    pub(super) fn kinds(&self) -> (Vec<u8>, bool) {
        let mut there = [false; call_kinds::OP_KINDS as usize];
        let mut open = false;
        for span in self.ranks.iter().flat_map(|rank| rank.calls.iter().flatten()) {
            if let Some(kind) = span.class.kind() {
                there[usize::from(kind)] = true;
            }
            open |= span.to == OPEN;
        }
        let kinds = (0..).zip(there).filter(|(_, there)| *there);
        (kinds.map(|(kind, _)| kind).collect(), open)
    }

    /// The spans of a row.
    pub(super) fn spans(&self, rank: u32, row: Row) -> &[Span] {
        let Some(lanes) = self.ranks.get(rank as usize) else { return &[] };
        match row {
            Row::Program => &lanes.program,
            Row::Stream => &lanes.stream,
            Row::Calls(lane) => lanes.calls.get(lane).map_or(&[], Vec::as_slice),
            Row::Messages => &lanes.messages,
        }
    }

    /// Takes all calls of a rank, which has none yet: what its events would come to, without an
    /// account of every call, as recordings have millions.
    pub(super) fn take_calls(&mut self, rank: GlobalRank, calls: &[CallRecord]) {
        let Some(lanes) = self.ranks.get_mut(rank.index()) else { return };
        let mut moments = Vec::with_capacity(calls.len() * 3);
        for call in calls {
            let times = [Some(call.scheduled_ps), call.started_ps, call.completed_ps];
            let known = times.into_iter().zip(Moment::ALL);
            moments.extend(known.filter_map(|(time, moment)| Some((time?, moment, call))));
        }
        // Stable, as `RankLog::events` is: what happened to a call at one time stays in order.
        moments.sort_by_key(|(time, _, _)| *time);
        if let Some((last, _, _)) = moments.last() {
            self.end_ps = self.end_ps.max(*last);
            self.busy_ps = self.busy_ps.max(*last);
        }
        for (time, moment, call) in moments {
            match moment {
                Moment::Scheduled => {
                    let span = scheduled(call.work, time, &call.call.op, call.seq);
                    self.call_lanes = self.call_lanes.max(lanes.schedule(span) + 1);
                }
                Moment::Started => lanes.start(call.work, time),
                Moment::Completed => lanes.complete(call.work, time),
            }
        }
    }

    /// Takes the computations that a profiler recorded of a rank's device.
    pub(super) fn take_computations(
        &mut self,
        rank: GlobalRank,
        computations: &[RecordedComputation],
    ) {
        let Some(lanes) = self.ranks.get_mut(rank.index()) else { return };
        self.stream |= !computations.is_empty();
        let class = Class::COMPUTE;
        lanes.stream.extend(on_one_row(computations).into_iter().map(|stretch| {
            let (from, to, what) = (stretch.from_ps, stretch.to_ps, stretch.computation as u32);
            Span { from, started: from, to, class, what }
        }));
        let last = computations.iter().map(|one| one.to_ps).max().unwrap_or(0);
        self.end_ps = self.end_ps.max(last);
        self.busy_ps = self.busy_ps.max(last);
    }

    /// Takes the next event of its rank.
    pub(super) fn take(&mut self, event: &Event, plan: Option<&Plan>) {
        let time = event.time_ps;
        self.end_ps = self.end_ps.max(time);
        let ends = matches!(
            event.what,
            What::TimedOut { .. }
                | What::Result { .. }
                | What::Finished
                | What::Died { .. }
                | What::Unresponsive { .. }
        );
        if !ends {
            self.busy_ps = self.busy_ps.max(time);
        }
        let streams = self.stream;
        let Some(lanes) = self.ranks.get_mut(event.rank.index()) else { return };
        match &event.what {
            What::OpBegan { op } => {
                self.program = true;
                if streams {
                    lanes.went_on(time);
                }
                let class = op_class(plan, event.rank, *op);
                lanes.program.push(Span { from: time, started: time, to: OPEN, class, what: *op });
            }
            What::OpEnded { op } => {
                end_op(&mut lanes.program, *op, time);
                lanes.free = (time, *op);
            }
            What::Scheduled { work, call } => {
                let lane = lanes.schedule(scheduled(*work, time, &call.op, call.seq));
                self.call_lanes = self.call_lanes.max(lane + 1);
            }
            What::Started { work } => lanes.start(*work, time),
            What::Completed { work } => lanes.complete(*work, time),
            What::Sent { peer, slice, .. } => {
                self.messages = true;
                let (from, to) = (event.rank.0, peer.0);
                // A row shows one message at a time: an earlier one that is still on its way
                // is cut where the next one leaves.
                if let Some(last) = lanes.messages.last_mut()
                    && last.to > time
                {
                    last.to = time;
                }
                let class = Class::message(slice.map_or(from, |slice| slice.chunk));
                let arrived = self.arrived.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                let until = arrived.map_or(OPEN, |arrived| arrived.max(time));
                lanes.messages.push(Span { from: time, started: time, to: until, class, what: to });
                if arrived.is_none() {
                    let at = lanes.messages.len() - 1;
                    self.on_their_way.entry((from, to)).or_default().push_back(at);
                }
            }
            What::Received { peer, .. } => {
                let sent = self.on_their_way.get_mut(&(peer.0, event.rank.0));
                let Some(at) = sent.and_then(VecDeque::pop_front) else {
                    let early = self.arrived.entry((peer.0, event.rank.0)).or_default();
                    early.push_back(time);
                    return;
                };
                let sender = self.ranks.get_mut(peer.index());
                if let Some(span) = sender.and_then(|lanes| lanes.messages.get_mut(at))
                    && span.to == OPEN
                {
                    span.to = time.max(span.from);
                }
            }
            What::StreamBegan { op } => {
                self.stream = true;
                let class = match op_class(plan, event.rank, *op) {
                    Class::WAITING => Class::STREAM_WAITING,
                    class => class,
                };
                lanes.stream.push(Span { from: time, started: time, to: OPEN, class, what: *op });
            }
            What::StreamEnded { op } => end_op(&mut lanes.stream, *op, time),
            What::Answered { op, answer } => {
                if self.answers.len() < MAX_ANSWERS {
                    self.answers.push((time, event.rank, *op, answer.clone()));
                }
            }
            What::Finished | What::TimedOut { .. } if streams => lanes.went_on(time),
            What::TimedOut { .. }
            | What::Result { .. }
            | What::Finished
            | What::Died { .. }
            | What::Unresponsive { .. }
            // They overlap: those of a rank are taken together.
            | What::Kernel { .. } => {}
        }
    }
}

impl RankLanes {
    /// Puts a call into the first lane that is free, and says which.
    fn schedule(&mut self, span: Span) -> usize {
        let free = self.calls.iter().position(|lane| lane.last().is_none_or(|s| s.to <= span.from));
        match free {
            Some(lane) => {
                self.calls[lane].push(span);
                lane
            }
            None => {
                self.overflow.push_back(span);
                MAX_CALL_LANES - 1
            }
        }
    }

    /// Shows that the process was free until now, if it was for any time: what it enqueued goes on
    /// without it, which is not a gap.
    fn went_on(&mut self, now: u64) {
        let (from, after) = self.free;
        let busy = self.program.last().is_some_and(|last| last.to > from);
        if now > from && !busy {
            let class = Class::FREE;
            self.program.push(Span { from, started: from, to: now, class, what: after });
        }
    }

    fn call(&mut self, work: u32) -> Option<&mut Span> {
        let shown = self.calls.iter_mut().filter_map(|lane| {
            let at = lane.binary_search_by_key(&work, |span| span.what).ok()?;
            lane.get_mut(at)
        });
        shown.chain(self.overflow.iter_mut().filter(|span| span.what == work)).next()
    }

    fn start(&mut self, work: u32, time: u64) {
        if let Some(span) = self.call(work) {
            span.started = time;
        }
    }

    fn complete(&mut self, work: u32, time: u64) {
        let Some(span) = self.call(work) else { return };
        span.to = time.max(span.from);
        if span.started == OPEN {
            // Nothing is known of its wait: it is shown as carried out all along.
            span.started = span.from;
        }
        // A lane may have become free for a call that had none.
        while let Some(mut next) = self.overflow.pop_front() {
            if next.to != OPEN && next.to <= time {
                continue;
            }
            let free = self.calls.iter_mut().find(|lane| {
                lane.last().is_none_or(|last| last.to <= time && last.what < next.what)
            });
            match free {
                Some(lane) => {
                    next.from = next.from.max(time);
                    lane.push(next);
                }
                None => {
                    self.overflow.push_front(next);
                    break;
                }
            }
        }
    }
}

fn end_op(program: &mut Vec<Span>, op: u32, time: u64) {
    let Some(last) = program.last_mut().filter(|span| span.what == op && span.to == OPEN) else {
        return;
    };
    if last.from == time {
        // It took no time: there is nothing to see.
        program.pop();
    } else {
        last.to = time;
    }
}

fn op_class(plan: Option<&Plan>, rank: GlobalRank, op: u32) -> Class {
    let action = plan.and_then(|plan| plan.program(rank)?.ops.get(op as usize));
    match action.map(|op| &op.action) {
        Some(Action::Compute { .. }) => Class::COMPUTE,
        Some(Action::Sleep { .. } | Action::Signal(_)) => Class::SLEEP,
        _ => Class::WAITING,
    }
}

/// A moment of a call.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Scheduled,
    Started,
    Completed,
}

impl Moment {
    /// In their order.
    const ALL: [Moment; 3] = [Moment::Scheduled, Moment::Started, Moment::Completed];
}

/// A call from when it is made; the numbers of neighbours differ in whether they are odd, so that
/// they are told apart.
fn scheduled(work: u32, time: u64, op: &str, seq: Option<u64>) -> Span {
    let class = Class::of_op(op, seq.unwrap_or(0) % 2 == 1);
    Span { from: time, started: OPEN, to: OPEN, class, what: work }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::group::GroupId;
    use lockstep_core::trace::{CallState, Called, RankLog};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn record(work: u32, at: u64, times: (Option<u64>, Option<u64>)) -> CallRecord {
        let called = Called {
            op: "all_reduce".to_owned(),
            group: GroupId(0),
            p2p: false,
            peer: None,
            tag: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reduce_op: None,
            root: None,
            stack: Arc::default(),
        };
        let (started, completed) = times;
        CallRecord {
            work,
            state: CallState::Scheduled,
            seq: Some(u64::from(work)),
            record_id: None,
            plan_op: None,
            scheduled_ps: at,
            started_ps: started.map(|after| at + after),
            completed_ps: completed.map(|after| at + after),
            call: Arc::new(called),
        }
    }

    proptest! {
        #[test]
        fn calls_come_to_the_same_lanes_as_their_events(
            drawn in prop::collection::vec(
                (0u64..30, (prop::option::of(0u64..9), prop::option::of(0u64..40))), 0..40),
        ) {
            let mut at = 0;
            let mut calls = Vec::new();
            for (work, (after, times)) in (0u32..).zip(drawn) {
                at += after / 4;
                calls.push(record(work, at, times));
            }
            let rank = GlobalRank(0);
            let log = RankLog { calls, ..RankLog::default() };
            let (mut by_calls, mut by_events) = (Lanes::new(1), Lanes::new(1));
            by_calls.take_calls(rank, &log.calls);
            for event in log.events(rank) {
                by_events.take(&event, None);
            }
            prop_assert_eq!(&by_calls.ranks[0].calls, &by_events.ranks[0].calls);
            let rest = |lanes: &Lanes| (lanes.end_ps, lanes.busy_ps, lanes.call_lanes);
            prop_assert_eq!(rest(&by_calls), rest(&by_events));
        }
    }

    fn span(from: u64, what: u32) -> Span {
        Span { from, started: OPEN, to: OPEN, class: Class::COMPUTE, what }
    }

    #[test]
    fn recorded_kernels_lie_on_the_compute_row() {
        let mut lanes = Lanes::new(1);
        let kernel = |from_ps, to_ps, name: &str| {
            let name = name.into();
            RecordedComputation { from_ps, to_ps, name }
        };
        lanes.take_computations(GlobalRank(0), &[kernel(0, 50, "gemm"), kernel(10, 20, "copy")]);
        let spans = lanes.spans(0, Row::Stream).iter();
        let seen: Vec<_> = spans.map(|span| (span.from, span.to, span.what)).collect();
        assert_eq!(seen, [(0, 10, 0), (10, 20, 1), (20, 50, 0)]);
        assert_eq!(lanes.rows(), [Row::Stream, Row::Calls(0)]);
        assert_eq!((lanes.end_ps, lanes.kind(Row::Stream)), (50, RowKind::Compute));
    }

    /// A compute stream that waits for ever does not set the end of the timeline.
    #[test]
    fn what_never_ends_does_not_lengthen_the_job() {
        let mut lanes = Lanes::new(1);
        let began = Event { time_ps: 5, rank: GlobalRank(0), what: What::StreamBegan { op: 0 } };
        lanes.take(&began, None);
        lanes.take_computations(GlobalRank(0), &[]);
        assert_eq!((lanes.end_ps, lanes.busy_ps), (5, 5));
    }

    #[test]
    fn a_process_that_only_enqueues_is_no_gap() {
        let mut lanes = RankLanes { free: (5, 3), ..RankLanes::default() };
        lanes.went_on(5);
        assert!(lanes.program.is_empty(), "it was free for no time");
        lanes.went_on(40);
        let shown: Vec<_> = lanes.program.iter().map(|s| (s.class, s.from, s.to, s.what)).collect();
        assert_eq!(shown, [(Class::FREE, 5, 40, 3)]);
    }

    #[test]
    fn calls_in_flight_lie_in_lanes_of_their_own_and_never_overlap() {
        let mut lanes = RankLanes::default();
        for work in 0..6 {
            lanes.schedule(span(u64::from(work), work));
        }
        assert_eq!(lanes.overflow.len(), 2);
        lanes.complete(0, 10);
        lanes.complete(4, 12);
        lanes.complete(1, 13);
        let shown: Vec<Vec<_>> = lanes
            .calls
            .iter()
            .map(|lane| lane.iter().map(|s| (s.what, s.from, s.to)).collect())
            .collect();
        assert_eq!(shown[0], [(0, 0, 10), (4, 10, 12), (5, 12, OPEN)]);
        assert_eq!(shown[1], [(1, 1, 13)]);
    }
}
