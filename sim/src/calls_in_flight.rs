//! Collectives and transfers in flight whose links others may use too, with their flows.

use super::sharing::{FlowId, Sharing};
use lockstep_core::group::GroupId;
use std::collections::BTreeMap;

/// Calls and transfers in flight on links that others may use too.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallsInFlight {
    pub(crate) sharing: Sharing,
    /// By group, sequence number and signature.
    pub(crate) flows: BTreeMap<(GroupId, u64, u32), FlowId>,
    pub(crate) calls: BTreeMap<FlowId, CallInFlight>,
    /// Transfers whose bytes leave, by number.
    pub(crate) transfers: BTreeMap<FlowId, u32>,
}

/// A collective in flight.
#[derive(Clone, Debug)]
pub(crate) struct CallInFlight {
    pub(crate) key: (GroupId, u64, u32),
    pub(crate) began: u64,
    pub(crate) ends: u64,
    /// The channels that began it at that time.
    pub(crate) channels: Vec<u32>,
}
