//! Named clusters, what NCCL chooses on them, and how long its collectives take there.
//!
//! The rooms: [`card`], [`network`] and [`cluster`] are what `data/` describes, [`catalog`] finds
//! them, and [`placement`] puts the ranks of a call on one. [`tuner`] is the cost model by which NCCL
//! picks an algorithm and a protocol ([`choice`]); [`model`] is how long they really take, with rates
//! and latencies that were fitted on public tables of nccl-tests. [`predict`](mod@predict) puts the
//! two together so that no call takes longer than a larger one, [`given`] corrects them by measured points, and [`compare`] holds them against a
//! [`table`], whose machine [`recognised`] finds.
//!
//! Sizes are bytes as nccl-tests counts them, times microseconds, rates GB/s (10⁹ bytes a second).

pub mod algorithm;
pub mod calibrated;
pub mod card;
pub mod catalog;
pub mod choice;
pub mod cluster;
pub mod collective;
pub mod compare;
mod compute;
mod expected;
pub mod fabric;
pub mod fault;
pub mod fitted;
pub mod given;
pub mod import;
pub mod job;
mod links;
mod log_lines;
pub mod model;
pub mod nccl_tests;
pub mod network;
mod node_counts;
pub mod placement;
pub mod planes;
pub mod predict;
pub mod quantity;
pub mod recognised;
pub mod settings;
mod shipped;
pub mod table;
pub mod tuner;
mod written;

pub use algorithm::{Algorithm, Protocol};
pub use catalog::{Catalog, CatalogError};
pub use cluster::Cluster;
pub use collective::{Collective, UnknownCollective};
pub use compute::{Compute, compute_card};
pub use fabric::{Fabric, FabricLink};
pub use fault::FabricFault;
pub use fitted::fitted_as;
pub use given::{Calibration, GivenError};
pub use job::{Job, JobError, Timing};
pub use placement::{Placement, PlacementError};
pub use predict::{Prediction, predict};
pub use recognised::Understood;
pub use settings::Settings;
pub use table::Table;
pub use written::toml_text;
