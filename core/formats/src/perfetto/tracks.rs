//! The tracks of a job and of its ranks: their numbers, names and order.

use super::schema::{
    CHILDREN_EXPLICIT, CounterDescriptor, ProcessDescriptor, ThreadDescriptor, TrackDescriptor,
    UNIT_SIZE_BYTES,
};
use lockstep_core::rank::GlobalRank;

/// The track of the job's own events.
pub(super) const JOB: u64 = 1;
/// The counter of the job's bytes in flight.
pub(super) const JOB_IN_FLIGHT: u64 = 2;

/// Names the counters.
pub(super) const IN_FLIGHT: &str = "bytes in flight";

/// Process 0 is the kernel's own in Perfetto: that of rank 3 is 1000003.
const FIRST_PID: i32 = 1_000_000;

/// A rank's tracks.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankTracks {
    rank: GlobalRank,
    base: u64,
}

impl RankTracks {
    pub(super) fn of(rank: GlobalRank) -> RankTracks {
        RankTracks { rank, base: (u64::from(rank.0) + 1) << 32 }
    }

    /// The track of its program.
    pub(super) fn program(self) -> u64 {
        self.base | 1
    }

    /// The track of its compute stream.
    pub(super) fn compute(self) -> u64 {
        self.base | 2
    }

    /// Its bytes in flight.
    pub(super) fn in_flight(self) -> u64 {
        self.base | 3
    }

    /// The `lane`-th track of calls, of all groups together.
    pub(super) fn calls(self, lane: u32) -> u64 {
        self.base | (16 + u64::from(lane))
    }

    fn pid(self) -> i32 {
        i32::try_from(self.rank.0).unwrap_or(i32::MAX).saturating_add(FIRST_PID)
    }

    /// The process.
    pub(super) fn process(self) -> TrackDescriptor {
        TrackDescriptor {
            uuid: Some(self.base),
            process: Some(ProcessDescriptor {
                pid: Some(self.pid()),
                legacy_sort_index: i32::try_from(self.rank.0).ok(),
                process_name: Some(format!("rank {}", self.rank)),
            }),
            child_ordering: Some(CHILDREN_EXPLICIT),
            ..TrackDescriptor::default()
        }
    }

    /// The program's thread, which is the process's main one.
    pub(super) fn thread(self) -> TrackDescriptor {
        TrackDescriptor {
            uuid: Some(self.program()),
            parent_uuid: Some(self.base),
            thread: Some(ThreadDescriptor {
                pid: Some(self.pid()),
                tid: Some(self.pid().into()),
                thread_name: Some("program".to_owned()),
            }),
            ..TrackDescriptor::default()
        }
    }

    /// Another track of the process. Tracks of one name are shown as one.
    pub(super) fn child(self, uuid: u64, name: String, order: i32) -> TrackDescriptor {
        TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name),
            parent_uuid: Some(self.base),
            sibling_order_rank: Some(order),
            ..TrackDescriptor::default()
        }
    }

    /// The counter of its bytes in flight.
    pub(super) fn counter(self) -> TrackDescriptor {
        let counter = Some(CounterDescriptor { unit: Some(UNIT_SIZE_BYTES) });
        let track = self.child(self.in_flight(), IN_FLIGHT.to_owned(), i32::MAX);
        TrackDescriptor { counter, ..track }
    }
}

/// The job's own track.
pub(super) fn job() -> TrackDescriptor {
    TrackDescriptor { uuid: Some(JOB), name: Some("job".to_owned()), ..TrackDescriptor::default() }
}

/// The counter of the job's bytes in flight.
pub(super) fn job_counter() -> TrackDescriptor {
    TrackDescriptor {
        uuid: Some(JOB_IN_FLIGHT),
        name: Some(IN_FLIGHT.to_owned()),
        counter: Some(CounterDescriptor { unit: Some(UNIT_SIZE_BYTES) }),
        ..TrackDescriptor::default()
    }
}
