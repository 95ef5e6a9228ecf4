//! The deterministic simulator: runs a [`Plan`](lockstep_core::plan::Plan) in virtual time.
//!
//! A simulation is a pure function of plan and [`SimConfig`]: the same trace, byte for byte,
//! natively and in the browser. [`simulate`] runs a plan to its end, [`simulate_calls`] too, keeping only its calls; a
//! [`Session`] can stand at any moment of it, also going back.
//!
//! The rooms: [`topology`] says what a message costs, `network` when it arrives and `queue` what
//! happens next, and none of the three knows what a collective is; `state` is all that is known at a moment, `engine` moves it on, `program` runs
//! the ranks' programs, `stream` keeps what they put on their devices, `channel` carries out their collectives and `p2p`
//! their point-to-point calls. `whole` works rings out without an event a message, where nobody looks
//! at messages. `shared_memory` is what ranks of one machine share, `lending` what they read of each other, and [`calibrate`] finds its
//! parameters from measured times. `timed` lets calls take the times that a model of a machine gives them, and `laid` lays their steps over these. [`cost`] says what a plan takes, [`path`] what that time is made of.

mod active;
mod alone;
mod arrivals;
pub mod calibrate;
mod call_time;
mod calls_in_flight;
mod channel;
pub mod choice;
mod choosing;
mod comm_stream;
pub mod compare;
mod compute_stream;
mod config;
pub mod cost;
mod deadline;
mod engine;
pub mod explore;
mod fifo;
mod laid;
mod left_open;
mod lending;
mod link;
mod marks;
mod memory;
mod message;
mod network;
mod p2p;
mod p2p_queue;
mod p2p_stream;
pub mod path;
mod prepared;
mod program;
mod queue;
mod record;
mod rings;
mod rotation;
pub mod session;
mod shared_links;
pub mod shared_memory;
mod sharing;
mod state;
mod step;
mod step_sends;
pub mod stops;
mod stream;
mod timed;
pub mod topology;
pub mod training;
mod transfer;
pub mod view;
mod whole;

pub use alone::steps_of;
pub use choice::{Choice, Devices, Order};
pub use compare::{CallComparison, CallDifference, Comparison, Difference, compare};
pub use config::{SimConfig, SimError};
pub use cost::Cost;
pub use engine::{SimulatedCalls, simulate, simulate_calls, simulate_watched};
pub use explore::{Bounds, Explored, explore, explore_watched};
pub use link::Link;
pub use path::{Leg, Path};
pub use prepared::value_bytes;
pub use session::Session;
pub use shared_memory::SharedMemory;
pub use topology::Topology;
pub use view::View;
