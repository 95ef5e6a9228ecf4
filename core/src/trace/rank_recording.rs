//! A recording's statements about a rank, beside its calls.

use crate::group::GroupId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The statements of a recording about one rank: a recorder counts calls that it no longer holds, and a profiler sees
/// kernels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRecording {
    /// The number of the last collective that it called in a group, where that is known although
    /// the call may not be: a recorder drops old calls.
    pub enqueued: BTreeMap<GroupId, u64>,
    /// The groups in which its first collective that has not ended is one that a recorder has dropped:
    /// the number of the last one that did end, 0 for none.
    pub unended: BTreeMap<GroupId, u64>,
    /// True if the recorder's own count shows that every call that it has dropped had ended.
    pub dropped_ended: bool,
    /// The number of a group's calls that its status counts beyond the last one that is recorded:
    /// gloo counts its sends and receives and does not record them. Groups without such calls are
    /// left out.
    pub unrecorded: BTreeMap<GroupId, u64>,
    /// True if the recorder says of some group when its calls were issued, and not when they ended: those count as
    /// ended.
    pub issued_only: bool,
    /// The size of the group that the rank made last and called nothing in, if a recorder shows such a group:
    /// the rank may still be in `new_group`.
    pub group_without_calls: Option<u32>,
    /// True if the recording names no groups of its calls, and they were put into groups by a rule. A collective
    /// without a number is then of an unknown group.
    pub groups_assumed: bool,
    /// The computations of its devices, by when they began: of a profile. Simulations and runs have them in
    /// their plan.
    pub computations: Vec<RecordedComputation>,
    /// Its training steps as the user's program marked them, by their numbers: of a profile.
    pub steps: Vec<RecordedStep>,
    /// The calls whose times are those of a device, by their numbers on the rank ([`CallRecord::work`]), where the times of
    /// others are not: a profile beside dumps shows a part of the job.
    ///
    /// [`CallRecord::work`]: super::CallRecord::work
    pub device_timed: BTreeSet<u32>,
    /// True if the other ranks' calls show that this one did more than was recorded of it: its
    /// dump was made before theirs.
    pub dumped_early: bool,
    /// Says if the other ranks' calls may show that the dump was early: they may also have failed, and the
    /// recording does not say which.
    pub maybe_early: MaybeEarly,
}

static NOTHING: RankRecording = RankRecording {
    enqueued: BTreeMap::new(),
    unended: BTreeMap::new(),
    dropped_ended: false,
    unrecorded: BTreeMap::new(),
    issued_only: false,
    group_without_calls: None,
    groups_assumed: false,
    computations: Vec::new(),
    steps: Vec::new(),
    device_timed: BTreeSet::new(),
    dumped_early: false,
    maybe_early: MaybeEarly::No,
};

/// A rank's [`RankRecording`], which takes the room of a pointer until something is written to it: a simulation has
/// tens of thousands of ranks and records none of this.
#[derive(Clone, Debug, Default)]
pub struct LazyRankRecording(Option<Box<RankRecording>>);

impl Deref for LazyRankRecording {
    type Target = RankRecording;

    fn deref(&self) -> &RankRecording {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for LazyRankRecording {
    fn deref_mut(&mut self) -> &mut RankRecording {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for LazyRankRecording {
    fn eq(&self, other: &LazyRankRecording) -> bool {
        **self == **other
    }
}

impl From<RankRecording> for LazyRankRecording {
    fn from(recording: RankRecording) -> LazyRankRecording {
        LazyRankRecording(Some(Box::new(recording)))
    }
}

/// A computation that a profiler recorded: a kernel, or a copy by the device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedComputation {
    /// Its begin, in picoseconds after the trace's start.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
    /// The kernel's name, shortened.
    pub name: Arc<str>,
}

/// A training step that the program of a rank marked for its profiler: it called `prof.step()` at the end of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedStep {
    /// Its number: 5 of `ProfilerStep#5`.
    pub number: u64,
    /// When the rank's process began it, in picoseconds after the trace's start.
    pub from_ps: u64,
    /// When the process ended it.
    pub to_ps: u64,
    /// The same two times on the rank's device, which works behind the process; `None` if they were not recorded.
    pub on_device: Option<(u64, u64)>,
}

/// The reason that a rank's dump may be older than those of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaybeEarly {
    /// Nothing says so.
    #[default]
    No,
    /// Others have come out of a call that this rank has not made, and their recorders hold too little to
    /// tell if they went on after it.
    Outrun,
    /// Some ranks that made such a call have come out of it and some have not. After a timeout all would have
    /// come out, by its error.
    OutrunBySome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_recorded_is_the_default_and_takes_a_pointer() {
        assert_eq!(NOTHING, RankRecording::default());
        let mut recording = LazyRankRecording::default();
        assert_eq!(recording, LazyRankRecording::from(RankRecording::default()));
        assert_eq!(size_of_val(&recording), size_of::<usize>());
        recording.unended.insert(GroupId::WORLD, 3);
        assert_eq!(recording.unended.get(&GroupId::WORLD), Some(&3));
        assert_ne!(recording, LazyRankRecording::default());
    }
}
