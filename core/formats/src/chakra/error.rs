//! The errors of the reader of execution traces.

use super::{MAX_DEPENDENCIES, MAX_ET_BYTES, MAX_NODE_BYTES, MAX_NODES};

/// A file that is no execution trace which can be used, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChakraError {
    /// It is empty.
    #[error(
        "{file} is empty: its rank ended before it was written; copy it again, or record again"
    )]
    Empty {
        /// The file's name.
        file: String,
    },
    /// It is larger than [`MAX_ET_BYTES`].
    #[error(
        "{file} has {bytes} bytes; an execution trace is read up to {MAX_ET_BYTES}. Record fewer steps"
    )]
    TooLarge {
        /// The file's name.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// It ends inside of a message.
    #[error(
        "{file} is cut off inside of message {message} at byte {at}; copy the whole file again"
    )]
    CutOff {
        /// The file's name.
        file: String,
        /// The number of the message, from 0 for the metadata.
        message: usize,
        /// The byte at which the message begins.
        at: usize,
    },
    /// A message claims a size that none has.
    #[error(
        "{file}: message {message} at byte {at} claims {bytes} bytes, and a node has at most \
         {MAX_NODE_BYTES}; the file is damaged, or no execution trace of Chakra"
    )]
    NodeTooLarge {
        /// The file's name.
        file: String,
        /// The number of the message, from 0 for the metadata.
        message: usize,
        /// The byte at which the message begins.
        at: usize,
        /// The size that it claims.
        bytes: u64,
    },
    /// A message is no node.
    #[error(
        "{file}: message {message} at byte {at} is no node of Chakra's schema: {why}; the file is \
         damaged, or of another schema than et_def.proto"
    )]
    NotANode {
        /// The file's name.
        file: String,
        /// The number of the message, from 0 for the metadata.
        message: usize,
        /// The byte at which the message begins.
        at: usize,
        /// The decoder's error.
        why: String,
    },
    /// It has more nodes or dependencies than are read.
    #[error(
        "{file} has more than {MAX_NODES} nodes or {MAX_DEPENDENCIES} dependencies; record fewer steps"
    )]
    TooManyNodes {
        /// The file's name.
        file: String,
    },
    /// Two nodes have one number.
    #[error(
        "{file}: two nodes have the id {id}; ids are unique in a file, so convert the trace again"
    )]
    SameId {
        /// The file's name.
        file: String,
        /// The number.
        id: u64,
    },
    /// A node depends on one that is not there.
    #[error(
        "{file}: node {id} ({name}) depends on node {on}, which is not in the file; convert the trace \
         again, or copy the whole file"
    )]
    Dangling {
        /// The file's name.
        file: String,
        /// The node.
        id: u64,
        /// Its name.
        name: String,
        /// The node that it depends on.
        on: u64,
    },
    /// Nodes wait for each other.
    #[error("{file}: {}, and can never begin; convert the trace again", in_a_circle(circle))]
    Circle {
        /// The file's name.
        file: String,
        /// The circle, or the beginning of a long one; the first node depends on the second.
        circle: Vec<u64>,
    },
    /// It is JSON of another form, or damaged.
    #[error("{file} is no whole execution trace of PyTorch: {why}; copy the whole file again")]
    Damaged {
        /// The file's name.
        file: String,
        /// The parser's error.
        why: String,
    },
    /// It has no calls of torch.distributed.
    #[error(
        "{file} is an execution trace without calls of torch.distributed: record a step that has some"
    )]
    NoCalls {
        /// The file's name.
        file: String,
    },
    /// The file's name does not give its rank.
    #[error(
        "{file} does not say which rank it is of; name it by its rank, as ASTRA-sim does: job.3.et"
    )]
    NoRank {
        /// The file's name.
        file: String,
    },
}

/// Names a circle of nodes in words.
fn in_a_circle(circle: &[u64]) -> String {
    let named: Vec<String> = circle.iter().map(ToString::to_string).collect();
    match named.as_slice() {
        [one] => format!("node {one} depends on itself"),
        _ => format!("nodes {} depend on each other in a circle", named.join(" → ")),
    }
}
