//! The configuration of a simulation, and the reasons that a plan cannot be simulated.

use crate::choice::Order;
use crate::topology::Topology;
use lockstep_core::plan::{CallTimes, PlanError};
use lockstep_core::trace::Trace;
use std::sync::Arc;

/// The configuration of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    /// The cost of messages.
    pub topology: Topology,
    /// Times of calls as a whole; a call that is not among them is carried out by messages.
    pub call_times: Option<Arc<CallTimes>>,
    /// The seed of whatever is random; nothing is yet, but traces name it.
    pub seed: u64,
    /// Plans whose tensors and scratch take more bytes than this, over all ranks, are simulated
    /// without values: times only.
    pub max_value_bytes: u64,
    /// True if single messages are recorded, not only calls.
    pub record_messages: bool,
    /// The simulation is refused once it has recorded this many events.
    pub max_events: usize,
    /// The ranks whose events are recorded, in increasing order; all if `None`. The others are simulated all
    /// the same.
    pub record_ranks: Option<Vec<u32>>,
    /// The order of everything that the plan leaves open; `None` for the engine's own order.
    pub order: Option<Order>,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            topology: Topology::default(),
            call_times: None,
            seed: 0,
            max_value_bytes: 64 << 20,
            record_messages: true,
            max_events: 5_000_000,
            record_ranks: None,
            order: None,
        }
    }
}

/// The reason that a plan cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The plan itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The trace would not fit.
    #[error(
        "the simulation recorded {limit} events and is not done; \
         simulate fewer ranks or operations, or leave single messages out of the recording"
    )]
    TooManyEvents {
        /// The limit that was set.
        limit: usize,
    },
    /// Its watch ended the simulation. The trace goes as far as it came, and ends in
    /// [`Outcome::Cancelled`](lockstep_core::trace::Outcome::Cancelled).
    #[error("the simulation was stopped before its end")]
    Stopped(Box<Trace>),
    /// A moment past the end was asked for.
    #[error("there is no moment {moment}; the last one is {last}")]
    NoSuchMoment {
        /// The moment that was asked for.
        moment: usize,
        /// The last one there is.
        last: usize,
    },
}
