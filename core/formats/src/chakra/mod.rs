//! MLCommons Chakra's execution traces, which ASTRA-sim runs: one file a rank.
//!
//! A file `NAME.RANK.et` holds messages of protobuf, each behind its length: a `GlobalMetadata`, then nodes that
//! depend on one another (`schema/protobuf/et_def.proto`). Collectives, sends, receives and computations are nodes.
//! PyTorch's own execution traces, which are JSON (`ExecutionTraceObserver`), are read too: they hold the calls
//! without times.
//!
//! Nodes of a file without times are laid out in time as their dependencies let them: computations one after the
//! other for as long as they say, and calls without any time of their own, which end when something needs them.

mod error;
mod graph;
mod json;
mod nodes;
mod reader;
mod schema;
mod write;

pub use json::is_one as is_json_et;
pub use reader::looks_like_et;
pub(crate) use reader::{ChakraReader, calls_of, rank_of};
pub use write::{ChakraWriter, is_written_by_lockstep};

/// A larger file is refused.
pub(crate) const MAX_ET_BYTES: usize = 1 << 30;

/// A larger message is no node.
const MAX_NODE_BYTES: usize = 1 << 20;

/// More nodes of one rank are refused.
const MAX_NODES: usize = 1 << 22;

/// More dependencies of one rank are refused.
const MAX_DEPENDENCIES: usize = 1 << 24;

#[cfg(test)]
mod tests;
