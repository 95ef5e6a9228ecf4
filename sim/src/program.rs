//! The ranks' programs: from one operation to the next, the calls that they make, and the actions when one
//! completes.

use super::compute_stream::StreamItem;
use super::record::Recorder;
use super::state::{Doing, Due, Engine, Woken, Work};
use lockstep_core::plan::{Action, Call, Op, SignalKind, exit_status};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{TensorValue, What};
use std::sync::Arc;

impl Engine {
    /// Runs a rank's program until it waits.
    pub(crate) fn run_program(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        let plan = Arc::clone(&self.plan);
        let Some(program) = plan.program(rank) else {
            return;
        };
        loop {
            let state = &mut self.ranks[rank.index()];
            match state.doing {
                Doing::Busy | Doing::Stopped | Doing::Holding | Doing::Finished | Doing::Died => {
                    return;
                }
                Doing::Blocked { op } => {
                    if !state.completed(op) {
                        return;
                    }
                    self.end_op(rank, recorder);
                    continue;
                }
                Doing::Synchronizing => {
                    if !state.idle() {
                        return;
                    }
                    self.end_op(rank, recorder);
                    continue;
                }
                Doing::Standing => {
                    self.end_op(rank, recorder);
                    continue;
                }
                Doing::Posting => state.doing = Doing::Ready,
                Doing::Ready | Doing::Draining => {
                    let pc = state.pc as usize;
                    let calls = program.ops.get(pc).map(|op| op.action.calls()).unwrap_or_default();
                    if self.choosing.is_some() && self.races_with_any(rank, calls) {
                        self.ranks[rank.index()].doing = Doing::Holding;
                        return;
                    }
                }
            }
            let state = &self.ranks[rank.index()];
            let Some(op) = program.ops.get(state.pc as usize) else {
                self.finish_program(rank, recorder);
                return;
            };
            let index = state.pc;
            recorder.record(self.now, rank, || What::OpBegan { op: index });
            self.begin_op(rank, index, op, recorder);
            if self.standing {
                return;
            }
        }
    }

    /// Ends an operation that takes its rank no time: at once, or after a moment of its own.
    fn end_at_once(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        if !self.stands {
            return self.end_op(rank, recorder);
        }
        self.ranks[rank.index()].doing = Doing::Standing;
        // In front: nothing else happens in between.
        self.woken.push_front(Woken::Rank(rank));
        self.standing = true;
    }

    fn begin_op(&mut self, rank: GlobalRank, index: u32, op: &Op, recorder: &mut Recorder) {
        match &op.action {
            Action::Compute { duration_ns, .. } if self.ranks[rank.index()].stream.is_some() => {
                let duration_ps = self.computing_ps(rank, duration_ns.saturating_mul(1000));
                self.put_on_stream(rank, StreamItem::Compute { op: index, duration_ps });
                self.end_at_once(rank, recorder);
            }
            Action::Signal(SignalKind::Stop { for_ms: None }) => {
                self.ranks[rank.index()].doing = Doing::Stopped;
            }
            Action::Compute { .. }
            | Action::Sleep { .. }
            | Action::Signal(SignalKind::Stop { .. }) => {
                let duration_ns = op.action.duration_ns().unwrap_or_default();
                let usual = duration_ns.saturating_mul(1000);
                let takes = match op.action {
                    Action::Compute { .. } => self.computing_ps(rank, usual),
                    _ => usual,
                };
                let over = self.now.saturating_add(takes);
                self.ranks[rank.index()].doing = Doing::Busy;
                self.queue.push(over, Due::Rank(rank));
            }
            Action::Wait { op, timeout_ms } => {
                if let Some(timeout_ms) = timeout_ms {
                    for work in self.ranks[rank.index()].works_of(*op) {
                        self.set_deadline(rank, work as u32, *timeout_ms);
                    }
                }
                let waited = self.plan.program(rank).and_then(|p| p.ops.get(*op as usize));
                let on_stream = waited.is_some_and(|op| self.prepared.on_stream(op.action.calls()));
                match (on_stream, timeout_ms) {
                    (true, None) => {
                        self.put_on_stream(rank, StreamItem::WaitFor { op: *op, by: index });
                        self.end_at_once(rank, recorder);
                    }
                    // `WorkNCCL::wait` with a timeout blocks the process besides.
                    _ => self.ranks[rank.index()].doing = Doing::Blocked { op: *op },
                }
            }
            Action::Query { op, what } => {
                let completed = self.ranks[rank.index()].completed(*op);
                let asked = self.plan.program(rank).and_then(|p| p.ops.get(*op as usize));
                let on_stream = asked.is_some_and(|op| self.prepared.on_stream(op.action.calls()));
                let answer = match on_stream {
                    true => what.answer_on_stream(completed),
                    false => what.answer(completed),
                };
                let answered = || What::Answered { op: index, answer: answer.to_owned() };
                recorder.record(self.now, rank, answered);
                self.end_at_once(rank, recorder);
            }
            Action::Copy(copy) => {
                match self.prepared.is_nccl(copy.group) {
                    true => self.put_on_stream(rank, StreamItem::Copy { op: index }),
                    false => self.ranks[rank.index()].memory.copy(&self.plan, copy),
                }
                self.end_at_once(rank, recorder);
            }
            Action::Synchronize => self.ranks[rank.index()].doing = Doing::Synchronizing,
            // In the words of an executor whose rank has exited.
            Action::Die { how } => {
                self.die(rank, format!("exited with status {}: {how}", exit_status(how)), recorder);
            }
            Action::Signal(SignalKind::Kill | SignalKind::End(_)) => {
                let how = op.action.ends_by().unwrap_or_default().to_owned();
                self.die(rank, how, recorder);
            }
            Action::Call { .. } | Action::Coalesced { .. } => {
                self.make_calls(rank, index, &op.action, recorder);
            }
        }
    }

    fn die(&mut self, rank: GlobalRank, how: String, recorder: &mut Recorder) {
        self.ranks[rank.index()].doing = Doing::Died;
        self.unfinished -= 1;
        recorder.record(self.now, rank, || What::Died { how: how.clone() });
        self.died.get_or_insert((rank, how));
    }

    /// Makes an operation's calls, all of them before the program or its stream waits for one.
    fn make_calls(
        &mut self,
        rank: GlobalRank,
        index: u32,
        action: &Action,
        recorder: &mut Recorder,
    ) {
        let calls = action.calls();
        let on_stream = self.prepared.on_stream(calls);
        for (part, call) in (0..).zip(calls) {
            let work = self.make_call(rank, index, part, call, recorder);
            match on_stream {
                true => self.put_on_stream(rank, StreamItem::Release { work }),
                false => self.release(rank, work, recorder),
            }
        }
        // c10d's NCCL barrier makes the process wait for its device.
        let barrier = calls.iter().any(|call| call.collective().is_some_and(|c| c.is_barrier()));
        match (action.is_async(), on_stream && !barrier) {
            (true, _) => self.end_at_once(rank, recorder),
            (false, true) => {
                self.put_on_stream(rank, StreamItem::WaitFor { op: index, by: index });
                self.end_at_once(rank, recorder);
            }
            (false, false) => self.ranks[rank.index()].doing = Doing::Blocked { op: index },
        }
    }

    /// Hands a call to its stream or channel.
    pub(crate) fn release(&mut self, rank: GlobalRank, work: u32, recorder: &mut Recorder) {
        let plan = Arc::clone(&self.plan);
        let Work { op, part, .. } = self.ranks[rank.index()].works[work as usize];
        let Some(operation) = plan.program(rank).and_then(|own| own.ops.get(op as usize)) else {
            return;
        };
        let action = &operation.action;
        let Some(call) = action.calls().get(part as usize) else { return };
        if call.is_p2p() && self.prepared.is_nccl(call.group()) {
            self.put_on_p2p_stream(rank, work, (op, action), call, recorder);
        } else if call.is_p2p() {
            self.post(rank, work, call, recorder);
        } else if let Some(member) = plan.group(call.group()).and_then(|g| g.group_rank(rank)) {
            let channel = self.prepared.channel(call.group(), member);
            self.channels[channel as usize].enqueue(work);
            self.woken.push_back(Woken::Channel(channel));
        }
    }

    pub(crate) fn end_op(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        let state = &mut self.ranks[rank.index()];
        let op = state.pc;
        state.pc += 1;
        state.doing = Doing::Ready;
        recorder.record(self.now, rank, || What::OpEnded { op });
    }

    /// Numbers a call, records it and sets its deadline.
    fn make_call(
        &mut self,
        rank: GlobalRank,
        op: u32,
        part: u32,
        call: &Call,
        recorder: &mut Recorder,
    ) -> u32 {
        let group = call.group();
        let state = &mut self.ranks[rank.index()];
        let numbers = match call.is_p2p() {
            true => &mut **state.p2p.get_or_insert_default(),
            false => &mut state.collectives,
        };
        let seq = numbers.next(group);
        let work = state.works.len() as u32;
        state.works.push(Work { op, part, seq, completed: false });
        state.in_flight += 1;
        recorder.scheduled(self.now, (&self.plan, rank), (op, part), (work, seq));
        let timeout_ms = self.plan.group(group).map_or(u64::MAX, |group| group.timeout_ms());
        self.set_deadline(rank, work, timeout_ms);
        work
    }

    /// Marks a call completed on its rank and wakes whoever waits for it.
    pub(crate) fn complete(&mut self, rank: GlobalRank, work: u32, recorder: &mut Recorder) {
        let state = &mut self.ranks[rank.index()];
        let done = &mut state.works[work as usize];
        done.completed = true;
        let op = done.op;
        state.in_flight -= 1;
        recorder.record(self.now, rank, || What::Completed { work });
        if state.doing == (Doing::Blocked { op })
            || matches!(state.doing, Doing::Draining | Doing::Synchronizing)
        {
            self.woken.push_back(Woken::Rank(rank));
        }
        if state.stream.as_ref().is_some_and(|stream| stream.waits_for(op)) {
            self.woken.push_back(Woken::Stream(rank));
        }
    }

    fn finish_program(&mut self, rank: GlobalRank, recorder: &mut Recorder) {
        let state = &mut self.ranks[rank.index()];
        if !state.idle() {
            state.doing = Doing::Draining;
            return;
        }
        state.doing = Doing::Finished;
        self.unfinished -= 1;
        if let Some(paths) = &mut self.paths {
            paths.ended();
        }
        let program = self.plan.program_of[rank.index()] as usize;
        for &tensor in &self.prepared.used[program] {
            if let Some(bytes) = state.memory.get(tensor) {
                let what = || What::Result { tensor, value: TensorValue::of(bytes) };
                recorder.record(self.now, rank, what);
            }
        }
        recorder.record(self.now, rank, || What::Finished);
    }
}
