//! The desk: records of a rank's calls until the clerk sends them, as notes that are as small as
//! possible.

use super::made::Ended;
use super::note::Note;
use super::pending::Pending;
use super::recorder::Recorder;
use crate::clock;

/// The place where notes are written, under one lock.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) notes: Vec<(u64, Note)>,
    /// The notes' other sheet: one is filled while the other is sent, so that no new memory is
    /// touched all the time.
    pub(super) spare: Vec<(u64, Note)>,
    /// When the last note was written down.
    pub(super) last_ns: u64,
    /// The last operation whose beginning was written down.
    pub(super) begun: Option<u32>,
    /// The last one whose end was written down together with its call's.
    pub(super) ended: Option<u32>,
    /// Calls that have not completed, and when they are late.
    pub(super) pending: Pending,
    /// The last calls.
    pub(super) recorder: Option<Recorder>,
    /// A call has timed out.
    pub(super) late: bool,
    /// Since when no timeout passes.
    pub(super) paused_ns: Option<u64>,
    /// When the coordinator last said that it is there.
    pub(super) heard_ns: u64,
    /// Nothing more is written down: the process is about to end.
    pub(super) closed: bool,
}

impl Desk {
    /// Writes one thing down, now: read under the desk's lock, so that a rank's events are in
    /// time order. True if the clerk has to be called for it.
    pub(super) fn write(&mut self, note: Note) -> bool {
        self.write_at(clock::now_ns(), note)
    }

    /// Records an event at a time, but not before the recorded ones.
    pub(super) fn write_at(&mut self, time_ns: u64, note: Note) -> bool {
        if self.closed {
            return false;
        }
        self.last_ns = time_ns.max(self.last_ns);
        if let Some(recorder) = &mut self.recorder {
            recorder.take(self.last_ns, &note);
        }
        self.notes.push((self.last_ns, note));
        self.notes.len() == 1 || self.notes.len() == MANY
    }

    /// Writes down that an operation began then, unless that is written down already.
    pub(super) fn begin(&mut self, op: u32, time_ns: u64) -> bool {
        self.begun.replace(op) != Some(op) && self.write_at(time_ns, Note::OpBegan { op })
    }

    /// Writes down that a call ended with its operation then, unless that is written down already.
    pub(super) fn end(&mut self, ended: Ended, time_ns: u64) -> bool {
        let Ended { work, op } = ended;
        if self.ended.replace(op) == Some(op) {
            return false;
        }
        self.pending.remove(work);
        self.write_at(time_ns, Note::Left { work, op })
    }
}

/// An empty sheet whose memory is there.
pub(super) fn touched(notes: usize) -> Vec<(u64, Note)> {
    let mut sheet: Vec<_> = std::iter::repeat_with(|| (0, Note::Finished)).take(notes).collect();
    sheet.clear();
    sheet
}

/// Notes are sent at once when there are this many …
pub(super) const MANY: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    /// A call and its operation give the same events in two notes as in five.
    #[test]
    fn a_call_in_one_go_is_all_of_its_events_in_order() {
        let mut desk = Desk::default();
        assert!(desk.write_at(20, Note::Entered { work: 3, op: 7, seq: 4, began_ns: 15 }));
        desk.pending.insert(3, 1000);
        let ended = Ended { work: 3, op: 7 };
        assert!(
            !desk.end(ended, 30) && !desk.end(ended, 40),
            "only the first note calls the clerk"
        );
        assert_eq!(desk.pending.next_late(), None);
        let parts = desk.notes.into_iter().flat_map(|(time, note)| note.parts(time));
        let seen: Vec<String> = parts.flatten().map(|part| format!("{part:?}")).collect();
        assert_eq!(
            seen,
            [
                "(15, OpBegan { op: 7 })",
                "(20, Scheduled { work: 3, op: 7, part: 0, seq: 4 })",
                "(20, Started { work: 3 })",
                "(30, Completed { work: 3 })",
                "(30, OpEnded { op: 7 })",
            ]
        );
    }
}
