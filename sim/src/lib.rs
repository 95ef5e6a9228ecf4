//! The deterministic simulator: runs a [`Plan`](lockstep_core::plan::Plan) in virtual time.
//!
//! A simulation is a pure function of plan and [`SimConfig`]: the same trace, byte for byte,
//! natively and in the browser. [`simulate`] runs a plan to its end; a [`Session`] can stand at any
//! moment of it, also going back.
//!
//! The rooms: [`topology`] says what a message costs, `network` when it arrives and `queue` what
//! happens next, and none of the three knows what a collective is; `engine` runs the programs,
//! `stream` keeps what they put on their devices, `channel` carries out their collectives and `p2p`
//! their point-to-point calls. `whole` works rings out without an event a message, where nobody looks
//! at messages. [`cost`] says what a plan takes, [`path`] what that time is made of.

mod active;
mod channel;
pub mod choice;
pub mod compare;
pub mod cost;
mod deadline;
mod engine;
pub mod explore;
mod marks;
mod memory;
mod message;
mod network;
mod p2p;
pub mod path;
mod prepared;
mod queue;
mod record;
pub mod session;
mod stream;
pub mod topology;
pub mod training;
pub mod view;
mod whole;

pub use choice::{Choice, Devices, Order};
pub use compare::{CallComparison, Comparison, Difference, compare};
pub use cost::Cost;
pub use engine::{SimConfig, SimError, simulate};
pub use explore::{Bounds, Explored, explore};
pub use path::{Leg, Path};
pub use prepared::value_bytes;
pub use session::Session;
pub use topology::{Link, Topology};
pub use view::View;
