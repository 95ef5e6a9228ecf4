//! The begin of a step of a collective: its copies and reductions, the messages that it sends, and the
//! receives that it then waits for.

use super::active::Active;
use super::arrivals::{CountedMessages, StepOfCall};
use super::memory::Memory;
use super::message::{Message, Messages};
use super::network::{Network, Passage};
use super::path::Paths;
use super::prepared::Prepared;
use super::queue::EventQueue;
use super::record::Recorder;
use super::shared_memory::Touch;
use super::state::{Due, Engine, memory_of};
use lockstep_core::group::GroupId;
use lockstep_core::plan::Plan;
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::{Action, Algorithm, Slice};
use lockstep_core::trace::What;

impl Engine {
    /// Carries out what the channel's step does by itself, and waits for its receives.
    pub(super) fn begin_step(&mut self, index: u32, recorder: &mut Recorder) {
        let channel = &mut self.channels[index as usize];
        let (me, rank, group, is_switch) =
            (channel.me, channel.rank, channel.group, channel.is_switch);
        let Some(active) = channel.active.as_mut() else {
            return;
        };
        if self.counted.as_ref().is_some_and(|counted| !counted.looks_at(rank)) {
            if !self.begin_rotated_step(index) {
                self.begin_counted_step(index);
            }
            return;
        }
        let mut actions = std::mem::take(&mut active.waiting);
        let step = active.step;
        active.signature.schedule.actions(me, step, &mut actions);
        active.left = self.now;
        let mut begun = Begun {
            index,
            now: self.now,
            me,
            rank,
            group,
            is_switch,
            active,
            memory: memory_of(&mut self.ranks, &mut self.switch_memory, rank),
            plan: &self.plan,
            prepared: &self.prepared,
            network: &mut self.network,
            counted: self.counted.as_mut(),
            messages: &mut self.messages,
            queue: &mut self.queue,
            paths: self.paths.as_deref_mut(),
        };
        begun.carry_out(step, &actions, recorder);
        let active = begun.active;
        actions.retain(is_receive);
        active.waiting = actions;
        self.take_from_mailbox(index, recorder);
    }

    /// Takes the messages that have come before their step began.
    fn take_from_mailbox(&mut self, index: u32, recorder: &mut Recorder) {
        for message in self.channels[index as usize].empty_mailbox() {
            if !self.accept(index, message, recorder) {
                self.channels[index as usize].keep(message);
            }
        }
    }

    /// Begins a step whose receives are only counted. Where messages are counted there are neither
    /// values nor cores, so that copies and reductions take no time.
    fn begin_counted_step(&mut self, index: u32) {
        let Some(counted) = self.counted.as_mut() else { return };
        let channel = &mut self.channels[index as usize];
        let (me, rank, group) = (channel.me, channel.rank, channel.group);
        let Some(active) = channel.active.as_mut() else { return };
        let (now, step) = (self.now, active.step);
        let of_step = (active.seq, step, active.signature_number);
        active.left = now;
        active.signature.schedule.actions(me, step, &mut self.step_actions);
        let mut needed = 0;
        for action in &self.step_actions {
            let (peer, from) = match *action {
                Action::Send { peer, from } => (peer, from),
                Action::Receive { .. } | Action::ReceiveReduce { .. } => {
                    needed += 1;
                    continue;
                }
                Action::Copy { .. } | Action::Reduce { .. } => continue,
            };
            let Some(to_rank) = self.prepared.participant(&self.plan, group, peer) else {
                continue;
            };
            let range = active.byte_range(from);
            let bytes = range.end - range.start;
            let passage = match active.timed {
                Some(_) => Passage::at_once(now),
                None => self.network.send(now, rank, to_rank, bytes),
            };
            active.left = active.left.max(passage.left);
            let to = self.prepared.channel(group, peer);
            if counted.looks_at(to_rank) {
                let message = active.message((me, to), from, bytes, passage.departs);
                let message = self.messages.put(message);
                self.queue.push(passage.arrives, Due::Message(message));
            } else {
                count_arrival(counted, &mut self.queue, to, of_step, passage.arrives);
            }
        }
        await_messages(counted, &mut self.queue, (index, now), of_step, needed);
    }
}

/// A call that begins a step, with the parts of the engine that the step's actions reach.
struct Begun<'a> {
    /// The channel, and who it belongs to.
    index: u32,
    me: GroupRank,
    rank: GlobalRank,
    group: GroupId,
    is_switch: bool,
    now: u64,
    active: &'a mut Active,
    memory: &'a mut Memory,
    plan: &'a Plan,
    prepared: &'a Prepared,
    network: &'a mut Network,
    counted: Option<&'a mut CountedMessages>,
    messages: &'a mut Messages,
    queue: &'a mut EventQueue<Due>,
    paths: Option<&'a mut Paths>,
}

impl Begun<'_> {
    /// Carries out the step's actions but its receives. The first step also sends what later steps lend, and
    /// these send it no more.
    fn carry_out(&mut self, step: u32, actions: &[Action], recorder: &mut Recorder) {
        let lending = self.active.first_lending_steps();
        for action in actions {
            match *action {
                Action::Copy { from, into } => {
                    self.touch(Touch::Store, from);
                    self.active.copy(self.memory, from, into);
                }
                Action::Reduce { local, from, into } => {
                    self.touch(Touch::Reduce, from);
                    self.active.reduce(self.memory, [local, from], into);
                }
                Action::Send { .. } if step > 0 && step < lending => {}
                Action::Send { peer, from } => self.send(step, peer, from, recorder),
                Action::Receive { .. } | Action::ReceiveReduce { .. } => {}
            }
        }
        if step == 0 && lending > 1 {
            for (step, action) in self.active.sends_of(self.me, 1..lending) {
                if let Action::Send { peer, from } = action {
                    self.send(step, peer, from, recorder);
                }
            }
        }
    }

    fn bytes(&self, slice: Slice) -> u64 {
        let range = self.active.byte_range(slice);
        range.end - range.start
    }

    /// The time that the rank's own memory takes.
    fn touch(&mut self, touch: Touch, slice: Slice) {
        let (bytes, of_call) = (self.bytes(slice), self.active.touched());
        let done = self.network.touch(self.now, self.rank, touch, bytes, of_call);
        self.active.left = self.active.left.max(done.unwrap_or(0));
    }

    fn send(&mut self, step: u32, peer: GroupRank, from: Slice, recorder: &mut Recorder) {
        let Some(to_rank) = self.prepared.participant(self.plan, self.group, peer) else {
            return;
        };
        let bytes = self.bytes(from);
        let by_switch = self.is_switch || to_rank.0 >= self.plan.world_size;
        let passage = self.passage(to_rank, bytes, by_switch);
        let active = &mut *self.active;
        active.left = active.left.max(passage.left);
        let lent = !by_switch && active.lends_in(step) && self.network.lends(bytes);
        if lent {
            active.extras.get_or_insert_default().unread += 1;
        }
        let to = self.prepared.channel(self.group, peer);
        if let Some(counted) = self.counted.as_mut().filter(|it| !it.looks_at(to_rank)) {
            let of_step = (active.seq, step, active.signature_number);
            count_arrival(counted, self.queue, to, of_step, passage.arrives);
        } else {
            // Lent buffers leave with the first step.
            let message = self.messages.put(Message {
                step,
                lent,
                cargo: active.cargo(self.memory, from),
                ..active.message((self.me, to), from, bytes, passage.departs)
            });
            self.queue.push(passage.arrives, Due::Message(message));
            if let Some(paths) = &mut self.paths {
                paths.sent(self.index, message, &passage, bytes);
            }
        }
        recorder.sent_in(step, self.now);
        if self.is_switch || active.timed.is_some() {
            return;
        }
        let work = active.work;
        recorder.message(self.now, self.rank, || What::Sent {
            work,
            step,
            peer: to_rank,
            slice: Some(from),
            bytes,
        });
    }

    /// The way of a message over the network; a call whose time is known as a whole has none.
    fn passage(&mut self, to: GlobalRank, bytes: u64, by_switch: bool) -> Passage {
        if self.active.timed.is_some() {
            let takes = self.active.laid().map_or(0, |laid| laid.takes(self.active.step));
            return Passage::over(self.now, takes);
        }
        if !by_switch {
            return self.network.send(self.now, self.rank, to, bytes);
        }
        let algorithm = self.active.signature.schedule.algorithm();
        let in_node = algorithm.is_some_and(Algorithm::has_switches_inside_nodes);
        self.network.send_by_switch(self.now, self.rank, to, bytes, in_node)
    }
}

/// Lets a channel that has begun a step wait for so many messages, of which some may have been sent.
#[inline]
pub(super) fn await_messages(
    counted: &mut CountedMessages,
    queue: &mut EventQueue<Due>,
    (index, now): (u32, u64),
    of_step: StepOfCall,
    needed: u32,
) {
    if needed == 0 {
        return;
    }
    let arrivals = counted.of(index);
    match arrivals.begin(of_step, needed) {
        Some((time, number)) if queue.has_passed(time, number, now) => arrivals.end(),
        Some((time, number)) => queue.push_reserved(time, number, Due::Step(index)),
        None => {}
    }
}

/// Counts a message that arrives at a time, and ends the step of its receiver that it completes then.
#[inline]
pub(super) fn count_arrival(
    counted: &mut CountedMessages,
    queue: &mut EventQueue<Due>,
    to: u32,
    of_step: StepOfCall,
    arrives: u64,
) {
    let arrival = (arrives, queue.reserve());
    if let Some((time, number)) = counted.of(to).count(of_step, arrival) {
        queue.push_reserved(time, number, Due::Step(to));
    }
}

fn is_receive(action: &Action) -> bool {
    matches!(action, Action::Receive { .. } | Action::ReceiveReduce { .. })
}
