//! The sends and receives that wait on NCCL's streams: see [`p2p_stream`](crate::p2p_stream).

use lockstep_core::group::GroupId;
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::collections::{BTreeMap, VecDeque};

/// One stream of a rank: its group, and the other rank of a pair; `None` for the group's own.
pub(crate) type Key = (GlobalRank, GroupId, Option<GroupRank>);

/// The calls of all such streams that have not ended.
pub(crate) type P2pStreams = BTreeMap<Key, VecDeque<Batch>>;

/// Calls of one operation, which run together.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) op: u32,
    pub(crate) works: Vec<u32>,
}
