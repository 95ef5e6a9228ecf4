//! The time and collectives of ranks in a stretch of time.

use serde::{Deserialize, Serialize};

/// A stretch of a timeline on some of its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// Its start, in picoseconds.
    pub from_ps: u64,
    /// Its end, in picoseconds.
    pub to_ps: u64,
    /// As the rows have them.
    pub ranks: Vec<u32>,
}

/// The time and collectives of ranks in an area.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// One a rank, in the area's order.
    pub ranks: Vec<RankShare>,
    /// One a kind of collective and group, those that took longest first.
    pub calls: Vec<CallShare>,
}

/// The time of a rank in a stretch. Calls and computation may overlap; a process that waits for a call is
/// in that call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankShare {
    /// The rank.
    pub rank: u32,
    /// Picoseconds in which a call was in flight.
    pub calls_ps: u64,
    /// Picoseconds in which it computed.
    pub compute_ps: u64,
    /// Picoseconds of calls in which nothing was computed.
    pub exposed_ps: u64,
    /// Picoseconds in collectives that not all members had made yet.
    pub waiting_ps: u64,
    /// Picoseconds with neither.
    pub idle_ps: u64,
    /// Calls made.
    pub calls: u64,
    /// Bytes that it gave to them.
    pub bytes: u64,
}

/// The collectives of one kind and group that ended in an area.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallShare {
    /// The name of the collective.
    pub op: String,
    /// The label of its group.
    pub group: String,
    /// The number of collectives; all members together count once.
    pub count: u64,
    /// Bytes of a rank in all of them.
    pub bytes: u64,
    /// Picoseconds from when the last member came to when the last one ended, in all of them.
    pub time_ps: u64,
    /// Picoseconds that the first member waited for the last one, in all of them.
    pub skew_ps: u64,
    /// Bus bandwidth in bytes a second as nccl-tests defines it; `None` for calls that it does not define.
    pub busbw: Option<f64>,
}
