//! Named clusters, what NCCL chooses on them, and how long its collectives take there.

pub mod algorithm;
pub mod card;
pub mod catalog;
pub mod cluster;
pub mod collective;
pub mod compare;
pub mod given;
pub mod model;
pub mod network;
pub mod placement;
pub mod predict;
pub mod quantity;
pub mod settings;
mod shipped;
pub mod table;
pub mod tuner;

pub use algorithm::{Algorithm, Protocol};
pub use catalog::{Catalog, CatalogError};
pub use cluster::Cluster;
pub use collective::{Collective, UnknownCollective};
pub use given::Calibration;
pub use placement::{Placement, PlacementError};
pub use predict::{Prediction, predict};
pub use settings::Settings;
pub use table::Table;
