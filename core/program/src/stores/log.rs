//! The operations of one rank on stores that others reach too, in order.

use lockstep_core::plan::remark::Lost;
use lockstep_core::rank::GlobalRank;
use lockstep_torch::c10d::store::StoreKind;
use lockstep_torch::c10d::{Clock, DistError};
use std::fmt;
use std::sync::Arc;

/// The identity of a store: two handles with the same place share one store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A `TCPStore`, by where it listens.
    Tcp { host: String, port: u16 },
    /// The part of a `TCPStore` that says if its server is listening; programs do not see it.
    Server { host: String, port: u16 },
    /// A `FileStore`, by its path.
    File { path: String },
    /// A `HashStore` that a rank has given to `init_process_group`.
    Own { rank: GlobalRank, nth: usize },
}

impl Place {
    /// By whose rules it answers.
    pub(super) fn kind(&self) -> StoreKind {
        match self {
            // The key by which workers are counted is added by the constructors.
            Place::Tcp { .. } | Place::Server { .. } => StoreKind::Tcp { counts_workers: false },
            Place::File { .. } => StoreKind::File,
            Place::Own { .. } => StoreKind::Hash,
        }
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Set(Vec<u8>),
    Append(Vec<u8>),
    Add(i64),
    CompareSet {
        expected: Vec<u8>,
        desired: Vec<u8>,
    },
    Delete,
    Get,
    MultiGet,
    Wait,
    Check,
    NumKeys,
    /// Waits in a loop until a counter has come so far; `exact`: as far as it comes.
    AtLeast {
        number: i64,
        exact: bool,
    },
    /// Waits in a loop until the key holds this.
    Until(Vec<u8>),
    /// Meets the other ranks in the store that `init_process_group` is given.
    Meet,
}

impl What {
    /// True if the operation can change the value of the key.
    pub(super) fn changes(&self) -> bool {
        use What::{Add, Append, CompareSet, Delete, Set};
        matches!(self, Set(_) | Append(_) | Add(_) | CompareSet { .. } | Delete)
    }
}

/// An operation and its line in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(super) store: Arc<Place>,
    pub(super) what: What,
    /// The keys as the store names them, with all prefixes; one key for an operation that changes it.
    pub(super) keys: Vec<String>,
    /// Barriers of all ranks that the rank has passed.
    pub(super) barriers: u32,
    /// The time at which the rank comes to the operation, without its waits in stores.
    pub(super) clock: Clock,
    /// The time that it may wait, in milliseconds.
    pub(super) timeout_ms: Option<u64>,
    pub(super) line: u32,
    pub(super) column: u32,
    /// True if the program asks in a loop until the answer is the wanted one, without a limit.
    pub(super) polls: bool,
    /// The answer that the program got; `None` if it does not ask.
    pub(super) told: Option<Answer>,
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Bytes(Vec<u8>),
    Many(Vec<Vec<u8>>),
    Number(i64),
    Yes(bool),
    Raises(DistError),
    /// It waits for this until its time is up.
    TimesOut(Missing),
}

/// A key that one waits for in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// The first key that is missing, as the store names it; of a server's counter, its number.
    pub(super) key: String,
    /// The awaited key in words.
    pub(super) awaited: String,
    pub(super) why: Lost,
}

impl Missing {
    pub(super) fn key(key: &str, why: Lost) -> Missing {
        Missing { key: key.to_owned(), awaited: format!("{key:?}"), why }
    }
}

/// All of one rank's operations, as far as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(super) ops: Vec<Op>,
    /// The operation whose answer it cannot go on without.
    pub(super) stuck: Option<usize>,
    /// True if the rank waits for ever in the last operation.
    pub(super) hangs: bool,
    /// The time at which the process ends, if it does, without its waits in stores.
    pub(super) end: Option<Clock>,
}

impl Log {
    /// True if the rank waits for an answer.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    /// True if the rank goes no further, without having raised anything.
    pub(crate) fn stops(&self) -> bool {
        self.stuck.is_some() || self.hangs
    }

    /// True if the rank has used no shared store.
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// An operation of the job: a rank, and which of its operations.
pub(super) type At = (usize, usize);

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.what {
            What::Set(_) => "set",
            What::Append(_) => "append",
            What::Add(_) | What::AtLeast { .. } => "add",
            What::CompareSet { .. } => "compare_set",
            What::Delete => "delete_key",
            What::Get | What::Until(_) => "get",
            What::MultiGet => "multi_get",
            What::Wait if self.polls => "check",
            What::Wait => "wait",
            What::Check => "check",
            What::NumKeys => "num_keys",
            What::Meet => return f.write_str("init_process_group"),
        };
        match &self.keys[..] {
            [] => write!(f, "store.{name}()"),
            [key] => write!(f, "store.{name}({key:?})"),
            [first, rest @ ..] => write!(f, "store.{name}({first:?} and {} more)", rest.len()),
        }
    }
}
