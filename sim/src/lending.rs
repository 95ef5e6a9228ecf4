//! Memory that ranks of one machine lend each other, as the host backend's do: nothing is written before it
//! was read, and memory that no step writes needs no step of its own.

use super::active::Active;
use super::state::{Due, Engine};
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Buffer};
use std::ops::Range;

impl Active {
    /// The number of first steps, up to the last one that adds, if none of them writes memory that they send:
    /// ranks that read each other's memory have all of it at once, and add all lent chunks in one pass.
    pub(crate) fn lending_steps(&self, me: GroupRank) -> u32 {
        let schedule = &self.signature.schedule;
        let (mut actions, mut lending) = (Vec::new(), 0);
        let (mut sent, mut written) = (Vec::new(), Vec::new());
        let (mut sent_before, mut written_before) = (0, 0);
        for step in 0..schedule.steps() {
            schedule.actions(me, step, &mut actions);
            for action in &actions {
                match *action {
                    Action::Send { from, .. } => sent.push((from.buffer, self.byte_range(from))),
                    Action::Copy { into, .. }
                    | Action::Reduce { into, .. }
                    | Action::Receive { into, .. }
                    | Action::ReceiveReduce { into, .. } => {
                        written.push((into.buffer, self.byte_range(into)));
                    }
                }
            }
            if !actions.iter().any(|action| matches!(action, Action::ReceiveReduce { .. })) {
                continue;
            }
            let overlap = |(one, a): &(Buffer, Range<u64>), (other, b): &(Buffer, Range<u64>)| {
                one == other && a.start < b.end && b.start < a.end
            };
            // Those of before do not overlap each other.
            let is_written = (0..).zip(&sent).any(|(at, sent)| {
                let among = if at < sent_before { written_before } else { 0 };
                written[among..].iter().any(|written| overlap(sent, written))
            });
            if is_written {
                return 0;
            }
            (lending, sent_before, written_before) = (step + 1, sent.len(), written.len());
        }
        lending
    }

    /// The number of first steps whose sends all leave with the first of them.
    pub(crate) fn first_lending_steps(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.lending_steps)
    }

    /// True if other ranks read the messages of a step in the sender's memory: results of lent chunks are
    /// then written back to where they belong.
    pub(crate) fn lends_in(&self, step: u32) -> bool {
        let lending = self.first_lending_steps();
        lending == 0 || step < lending
    }

    /// The sends of the steps, each with its step.
    pub(crate) fn sends_of(&self, me: GroupRank, steps: Range<u32>) -> Vec<(u32, Action)> {
        let mut actions = Vec::new();
        let sends = steps.flat_map(|step| {
            self.signature.schedule.actions(me, step, &mut actions);
            let sends = actions.iter().filter(|action| matches!(action, Action::Send { .. }));
            sends.map(|action| (step, *action)).collect::<Vec<_>>()
        });
        sends.collect()
    }
}

impl Engine {
    /// Notes that one lent message of `sender` is read at time `read`: the sender goes on when all are.
    pub(crate) fn end_reading(&mut self, sender: u32, seq: u64, read: u64) {
        let active = self.channels.get_mut(sender as usize).and_then(|own| own.active.as_mut());
        let Some(active) = active.filter(|active| !active.done && active.seq == seq) else {
            return;
        };
        active.left = active.left.max(read);
        let Some(extras) = &mut active.extras else { return };
        extras.unread = extras.unread.saturating_sub(1);
        if extras.unread == 0 {
            self.queue.push(active.left.max(self.now), Due::Sent(sender));
        }
    }
}
