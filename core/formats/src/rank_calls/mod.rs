//! The calls of one rank from a file of that rank, and a job's joined.
//!
//! Profiles and execution traces are files of this kind: each holds one rank's calls in order, with groups by
//! name, and nothing of the other ranks.

mod call;
mod flaws;
mod job;
mod numbers;
mod unnamed;
mod untimed;

pub(crate) use call::{Call, Computed, Group, MAX_CALLS, MAX_COMPUTED, MarkedStep};
pub(crate) use flaws::{Backwards, Flaws, ends_before_it_begins};
pub use job::Calls;
pub(crate) use job::{Words, join};
pub(crate) use untimed::take_times_of_others;

use crate::job_calls::Shows;
use crate::problem::{FileProblem, ProblemKind};
use lockstep_core::group::BackendName;
use lockstep_core::rank::GlobalRank;

/// A larger world is a damaged number.
pub(crate) const MAX_TOLD: u32 = 1 << 17;

/// One rank's calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankCalls {
    /// The file's name.
    pub(crate) file_name: String,
    /// The rank that made them.
    pub(crate) rank: GlobalRank,
    /// The size of the job, as far as the file says.
    pub(crate) world_size: u32,
    pub(crate) backend: BackendName,
    pub(crate) groups: Vec<Group>,
    pub(crate) calls: Vec<Call>,
    /// The computations of its devices, in the order in which they began; empty where they were not recorded.
    pub(crate) computed: Vec<Computed>,
    /// The training steps that its program marked, by their numbers.
    pub(crate) steps: Vec<MarkedStep>,
    /// True if calls end when the device has carried them out, by the device's own clock.
    pub(crate) on_device: bool,
    /// True if the file holds no times: its calls have made-up ones, in their order.
    pub(crate) untimed: bool,
    /// The origin of the file's times, in nanoseconds since 1970; 0 for none, or if the file breaks before it.
    pub(crate) base_ns: u64,
    pub(crate) flaws: Flaws,
}

impl RankCalls {
    /// The completeness of some files' calls: if a file says of calls that they had not ended, it is of a job that
    /// hung, and has the last calls of its rank.
    pub(crate) fn shown_by(files: &[RankCalls]) -> Shows {
        let mut calls = files.iter().flat_map(|file| &file.calls);
        match calls.any(|call| call.unfinished.is_some()) {
            true => Shows::LastCalls,
            false => Shows::EndedCalls,
        }
    }

    /// Makes files that are cut off fit to the others: they get the others' origin of times if theirs is cut off. Of
    /// a job that hung they are taken out, since the last calls matter there; the problem of each is returned.
    pub(crate) fn settle_broken(files: &mut Vec<RankCalls>) -> Vec<FileProblem> {
        let base_ns = files.iter().map(|file| file.base_ns).max().unwrap_or(0);
        let without_base = |file: &&mut RankCalls| file.flaws.broken.is_some() && file.base_ns == 0;
        for file in files.iter_mut().filter(without_base) {
            file.move_by(base_ns);
        }
        if RankCalls::shown_by(files) != Shows::LastCalls {
            return Vec::new();
        }
        let broken = files.extract_if(.., |file| file.flaws.broken.is_some());
        let problem = |file: RankCalls| FileProblem {
            why: format!(
                "{}. It is left out, since the calls in which its rank hangs may be missing.",
                file.flaws.broken.unwrap_or_default()
            ),
            file_name: file.file_name,
            kind: ProblemKind::Unreadable,
        };
        broken.map(problem).collect()
    }

    /// Sets all times later.
    fn move_by(&mut self, by_ns: u64) {
        for call in &mut self.calls {
            call.made_ns = call.made_ns.saturating_add(by_ns);
            call.ran_ns = call
                .ran_ns
                .map(|(from, to)| (from.saturating_add(by_ns), to.saturating_add(by_ns)));
        }
        for one in &mut self.computed {
            one.from_ns = one.from_ns.saturating_add(by_ns);
            one.to_ns = one.to_ns.saturating_add(by_ns);
        }
        let later = |(from, to): (u64, u64)| (from.saturating_add(by_ns), to.saturating_add(by_ns));
        for step in &mut self.steps {
            step.in_process = later(step.in_process);
            step.on_device = step.on_device.map(later);
        }
    }

    /// The size of the world: the files' number, unless it is damaged, and at least the ranks that are named.
    pub(crate) fn world_size_of(rank: GlobalRank, said: u32, groups: &[Group]) -> u32 {
        let ranks = groups.iter().flat_map(|group| &group.ranks);
        let listed = ranks.map(|rank| rank.0.saturating_add(1));
        let told = listed.chain([said]).filter(|size| *size <= MAX_TOLD).max().unwrap_or(0);
        told.max(rank.0.saturating_add(1)).min(lockstep_core::rank::MAX_WORLD_SIZE)
    }
}
