//! Channels: a rank's communication stream of one group, which carries out the group's collectives
//! one after the other, step by step of their schedule.
//!
//! A message belongs to a sequence number and a signature. One that no active call matches stays
//! in the mailbox: for ever, if the rank called something else at that number. That is how ranks
//! that disagree hang here, as they do with NCCL.
//!
//! Switches that take part in a group's schedules have channels too. A switch makes no calls: it
//! takes up a call when a message of it comes, the earliest first. What it does is not in the
//! trace; what ranks send to it and get from it is, under numbers behind all ranks'.

use super::active::{Active, Extras, premultiplied, received_into};
use super::call_time::Timed;
use super::laid::Laid;
use super::marks::Marks;
use super::record::Recorder;
use super::shared_memory::Touch;
use super::state::{BegunCall, Due, Engine, Work, memory_of};
use lockstep_core::collective::Splits;
use lockstep_core::plan::{Call, Signature};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce;
use lockstep_core::schedule::{Action, Buffer, Grid, Layout};
use lockstep_core::trace::What;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Carries a channel's calls on as far as they go now.
    pub(crate) fn run_channel(&mut self, index: u32, recorder: &mut Recorder) {
        loop {
            let channel = &mut self.channels[index as usize];
            let Some(active) = channel.active.as_mut().filter(|active| !active.done) else {
                let started = match channel.is_switch {
                    true => self.start_switch(index, recorder),
                    false => !self.is_chosen(index) && self.start_queued(index, recorder),
                };
                match started {
                    true => continue,
                    false => return,
                }
            };
            if active.whole {
                return;
            }
            if active.step < active.steps {
                let last = active.step + 1 == active.steps;
                let counted = self.counted.as_ref().is_some_and(|counted| counted.wait(index));
                if !active.waiting.is_empty() || counted || (last && active.has_unread()) {
                    return;
                }
                if active.left > self.now {
                    self.queue.push(active.left, Due::Sent(index));
                    return;
                }
                active.step += 1;
            }
            if active.step < active.steps {
                self.begin_step(index, recorder);
            } else if self.wait_for_time(index) {
                return;
            } else {
                self.finish_call(index, recorder);
            }
        }
    }

    /// Begins the first call that waits for the stream; false if there is none.
    pub(crate) fn start_queued(&mut self, index: u32, recorder: &mut Recorder) -> bool {
        let Some(work) = self.channels[index as usize].queue.pop() else {
            return false;
        };
        self.start_call(index, work, recorder);
        true
    }

    fn start_call(&mut self, index: u32, work: u32, recorder: &mut Recorder) {
        let channel = &mut self.channels[index as usize];
        let (rank, me) = (channel.rank, channel.me);
        let Work { op, part, seq, .. } = self.ranks[rank.index()].works[work as usize];
        let operation = self.plan.program(rank).and_then(|program| program.ops.get(op as usize));
        let Some(call) = operation.and_then(|op| op.action.calls().get(part as usize)) else {
            return;
        };
        let Call::Collective { group, input, output, splits, .. } = call else {
            return;
        };
        let last = self.last_begun.get(group.index()).and_then(Option::as_ref);
        let begun = match last.filter(|last| last.call == *call) {
            Some(last) => Arc::clone(last),
            None => {
                let Some(signature) = self.plan.signature(rank, call) else { return };
                let (signature, signature_number) = numbered(&mut self.signatures, signature);
                let timed = self.time_of(call).filter(|_| signature.schedule.steps() > 0);
                let laid =
                    self.lays_steps.then(|| Laid::ends(&layout_of(&signature, splits), timed));
                let laid = laid.flatten();
                let call = call.clone();
                let begun = Arc::new(BegunCall { call, signature, signature_number, timed, laid });
                if self.last_begun.len() <= group.index() {
                    self.last_begun.resize(self.plan.groups.len(), None);
                }
                self.last_begun[group.index()] = Some(Arc::clone(&begun));
                begun
            }
        };
        let (signature, signature_number) = (Arc::clone(&begun.signature), begun.signature_number);
        let steps = signature.schedule.steps();
        let single = self.single_time_of((rank, *group, seq)).filter(|_| steps > 0);
        let timed = single.or(begun.timed);
        let element_bytes = signature.dtype.size_bytes();
        let layout = layout_of(&signature, splits);
        // A time of one call on one rank is not the other ranks'.
        let laid = begun.laid.as_ref().filter(|_| single.is_none());
        let laid = laid.map(|ends| Laid::new(Arc::clone(ends), self.now));
        let scratch = if self.prepared.values {
            let elements = layout.grid(me, Buffer::Scratch).elements;
            vec![0; (elements * element_bytes) as usize]
        } else {
            Vec::new()
        };
        let grids = cuts(&mut self.last_cuts, &layout, me);
        let memory = &mut self.ranks[rank.index()].memory;
        let scaled_input = premultiplied(&signature, memory, *input, *output);
        let has_marks = self.whole.is_none() && self.meetings.is_none() && self.counted.is_none();
        let marks = match has_marks {
            true => Marks::new(&signature, me).map(Arc::new),
            false => None,
        };
        let extras = Extras { scaled_input, scratch, marks, laid, ..Extras::default() };
        let channel = &mut self.channels[index as usize];
        channel.active = Some(Active {
            work,
            seq,
            uneven: splits.is_some(),
            input: *input,
            output: *output,
            step: 0,
            steps,
            is_rotation: signature.schedule.is_rotation()
                && grids.iter().all(Grid::has_equal_chunks),
            waiting: Vec::new(),
            left: 0,
            done: false,
            whole: false,
            timed,
            extras: extras.boxed(),
            grids,
            signature,
            signature_number,
        });
        if self.network.has_cores()
            && let Some(active) = channel.active.as_mut()
        {
            let (touched, lending_steps) = (active.touched_by(me), active.lending_steps(me));
            let extras = active.extras.get_or_insert_default();
            (extras.touched, extras.lending_steps) = (touched, lending_steps);
        }
        recorder.record(self.now, rank, || What::Started { work });
        let begun = self.network.begin_call(self.now, rank);
        if steps > 0 && !self.begin_whole(index) && !self.begin_timed(index) {
            self.begin_step(index, recorder);
            if let Some(active) = self.channels[index as usize].active.as_mut() {
                active.left = active.left.max(begun.unwrap_or(0));
            }
        }
    }

    /// Lets a switch take up the earliest call that it has messages of; false if there is none.
    fn start_switch(&mut self, index: u32, recorder: &mut Recorder) -> bool {
        let channel = &mut self.channels[index as usize];
        let waiting = channel.mailbox().iter().filter_map(|place| self.messages.get(*place));
        let Some(first) = waiting.min_by_key(|message| message.seq) else {
            return false;
        };
        let (seq, signature_number, channel_group) = (first.seq, first.signature, channel.group);
        let me = channel.me;
        let called = self.signatures.iter().find(|(_, number)| **number == signature_number);
        let Some(signature) = called.map(|(signature, _)| Arc::clone(signature)) else {
            return false;
        };
        let dtype = signature.dtype;
        let layout = layout_of(&signature, &None);
        let grids = cuts(&mut self.last_cuts, &layout, me);
        let scratch = layout.grid(me, Buffer::Scratch);
        let bytes = scratch.elements.saturating_mul(dtype.size_bytes());
        let timed = self.is_timed(channel_group, seq, signature_number);
        let laid = self.laid_by(channel_group, seq, signature_number);
        let extras = Extras {
            scratch: if self.prepared.values { vec![0; bytes as usize] } else { Vec::new() },
            marks: Marks::new(&signature, me).map(Arc::new),
            laid: laid.map(|ends| Laid::new(ends, 0)),
            ..Extras::default()
        };
        let channel = &mut self.channels[index as usize];
        channel.active = Some(Active {
            work: 0,
            seq,
            steps: signature.schedule.steps(),
            is_rotation: false,
            signature,
            signature_number,
            uneven: false,
            input: None,
            output: None,
            step: 0,
            waiting: Vec::new(),
            left: 0,
            done: false,
            whole: false,
            timed: timed.then_some(Timed::Until(0)),
            extras: extras.boxed(),
            grids,
        });
        self.begin_step(index, recorder);
        true
    }

    /// The last of a step's counted messages has arrived.
    pub(crate) fn end_step(&mut self, index: u32, recorder: &mut Recorder) {
        if let Some(counted) = &mut self.counted {
            counted.of(index).end();
            // Most steps are over now, and have another one behind them.
            if let Some(active) = self.channels[index as usize].active.as_mut()
                && active.left <= self.now
                && active.waiting.is_empty()
                && active.step + 1 < active.steps
            {
                active.step += 1;
                self.begin_step(index, recorder);
                if self.counted.as_ref().is_some_and(|counted| counted.wait(index)) {
                    return;
                }
            }
        }
        self.run_channel(index, recorder);
    }

    /// A message has arrived: the step takes it, or it waits in the mailbox.
    pub(crate) fn deliver(&mut self, message: u32, recorder: &mut Recorder) {
        let Some(to) = self.messages.get(message).map(|message| message.to) else {
            return;
        };
        if self.stands_still(to) {
            return;
        }
        if self.accept(to, message, recorder) {
            self.run_channel(to, recorder);
            return;
        }
        let channel = &mut self.channels[to as usize];
        channel.keep(message);
        if channel.is_switch && !channel.is_busy() {
            self.run_channel(to, recorder);
        }
    }

    /// Stores or reduces a message if the channel's step waits for it.
    pub(super) fn accept(&mut self, index: u32, place: u32, recorder: &mut Recorder) -> bool {
        let channel = &mut self.channels[index as usize];
        let (Some(active), Some(message)) = (channel.active.as_mut(), self.messages.get(place))
        else {
            return false;
        };
        let matches = !active.done
            && message.seq == active.seq
            && message.step == active.step
            && message.signature == active.signature_number;
        let receives = |action: &Action| match action {
            Action::Receive { peer, .. } | Action::ReceiveReduce { peer, .. } => {
                *peer == message.from
            }
            _ => false,
        };
        let Some(taken) = active.waiting.iter().position(receives).filter(|_| matches) else {
            return false;
        };
        if active.uneven {
            let expected = active.waiting.get(taken).and_then(received_into);
            let expected = expected.map(|into| active.byte_range(into));
            if expected.is_none_or(|range| range.end - range.start != message.bytes) {
                // Splits that disagree: NCCL hangs or corrupts, and the call never completes here.
                return false;
            }
        }
        // In order: several messages of one peer in a step belong to the receives as they are listed.
        let action = active.waiting.remove(taken);
        let Some(message) = self.messages.take(place) else {
            return false;
        };
        let (rank, group) = (channel.rank, channel.group);
        let touch = match action {
            Action::ReceiveReduce { .. } => Touch::Reduce,
            _ => Touch::Store,
        };
        let done = self.network.touch(self.now, rank, touch, message.bytes, active.touched());
        active.left = active.left.max(done.unwrap_or(0));
        let read = done.filter(|_| message.lent);
        let memory = memory_of(&mut self.ranks, &mut self.switch_memory, rank);
        if let (Some(laid), Some(cargo)) = (active.laid_mut(), &message.cargo) {
            laid.reached = laid.reached.max(cargo.reached);
        }
        let (elements, marks) = match &message.cargo {
            Some(cargo) => (cargo.elements.as_ref(), cargo.marks.as_ref()),
            None => (None, None),
        };
        let into = match action {
            Action::Receive { into, .. } => {
                if let Some(payload) = elements
                    && let Some(place) = active.write(memory, into)
                {
                    place.copy_from_slice(payload);
                }
                if let Some(marks) = marks {
                    active.write_marks(into, marks);
                }
                into
            }
            Action::ReceiveReduce { local, into, .. } => {
                let own = active.read(memory, local).map(<[u8]>::to_vec);
                let (dtype, op) = (active.signature.dtype, active.reduce_op());
                if let (Some(mut own), Some(payload)) = (own, elements)
                    && let Some(place) = active.write(memory, into)
                {
                    reduce::combine(dtype, op, &mut own, payload);
                    place.copy_from_slice(&own);
                }
                if let (Some(mut own), Some(marks)) = (active.read_marks(local), marks) {
                    own.iter_mut().zip(marks).for_each(|(own, mark)| *own |= mark);
                    active.write_marks(into, &own);
                }
                into
            }
            _ => return true,
        };
        if channel.is_switch || active.timed.is_some() {
            return true;
        }
        let peer = self.prepared.participant(&self.plan, group, message.from);
        recorder.message(self.now, rank, || What::Received {
            work: active.work,
            step: message.step,
            peer: peer.unwrap_or(rank),
            slice: Some(into),
            bytes: message.bytes,
            reduced: matches!(action, Action::ReceiveReduce { .. }),
        });
        if let Some(read) = read {
            let sender = self.prepared.channel(group, message.from);
            self.end_reading(sender, message.seq, read);
        }
        true
    }

    fn finish_call(&mut self, index: u32, recorder: &mut Recorder) {
        let channel = &mut self.channels[index as usize];
        let (rank, me) = (channel.rank, channel.me);
        let Some(active) = channel.active.as_mut() else {
            return;
        };
        active.done = true;
        if channel.is_switch {
            return;
        }
        let (schedule, dtype) = (&active.signature.schedule, active.signature.dtype);
        let collective = schedule.collective();
        if let Some(op) = collective.reduce_op()
            && let Some(divisor) = reduce::divisor(op, dtype, schedule.size())
            && collective.promises(me)
            && let Some(output) = active.output
            && let Some(bytes) = self.ranks[rank.index()].memory.get_mut(output)
        {
            reduce::divide(dtype, bytes, divisor);
        }
        let work = active.work;
        if self.is_chosen(index)
            && let Some(choosing) = &mut self.choosing
        {
            choosing.busy[rank.index()] = false;
        }
        self.complete(rank, work, recorder);
    }
}

/// The layout of a call on a rank that passes these splits.
fn layout_of(signature: &Signature, splits: &Option<Box<Splits>>) -> Layout {
    let element_bytes = signature.dtype.size_bytes();
    let layout = Layout::new(signature.schedule.clone(), signature.count, element_bytes);
    layout.with_splits(splits.clone())
}

/// The signature that all calls like this one share, and its number.
fn numbered(
    known: &mut BTreeMap<Arc<Signature>, u32>,
    signature: Signature,
) -> (Arc<Signature>, u32) {
    if let Some((known, number)) = known.get_key_value(&signature) {
        return (Arc::clone(known), *number);
    }
    let (signature, number) = (Arc::new(signature), known.len() as u32);
    known.insert(Arc::clone(&signature), number);
    (signature, number)
}

/// The cuts of a participant's buffers, shared with the call that was begun before where they are the same.
fn cuts(last: &mut Option<Arc<[Grid; 3]>>, layout: &Layout, me: GroupRank) -> Arc<[Grid; 3]> {
    let grids = [Buffer::Input, Buffer::Output, Buffer::Scratch];
    let grids = grids.map(|buffer| layout.grid(me, buffer));
    match last {
        Some(last) if **last == grids => Arc::clone(last),
        _ => Arc::clone(last.insert(Arc::new(grids))),
    }
}
