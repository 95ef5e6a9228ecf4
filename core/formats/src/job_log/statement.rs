//! The messages that are looked for, as statements about ranks.

use crate::place::Place;
use lockstep_core::rank::GlobalRank;

/// The launcher that reports on a process, and its way of naming the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// torchrun, by its rank.
    Torchrun,
    /// torchrun, by its number on its machine, which it says first.
    TorchrunLocal,
    /// `torch.multiprocessing.spawn`, by the number that it started it with.
    Spawn,
}

/// The statement of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    /// DDP: parameters got no gradient on a rank.
    Unused {
        /// Their indices, as printed: `2 3`.
        parameters: String,
    },
    /// DDP: a rank has this many parameters.
    Parameters {
        /// The number of parameters.
        count: u64,
    },
    /// DDP: a parameter has other sizes on this rank than on the first.
    Shape {
        /// The parameter and its sizes: `params[2] in this process with sizes [9, 8]`.
        parameter: String,
    },
    /// DDP's `Join`: the rank has no inputs left.
    Exhausted,
    /// `monitored_barrier`: the rank did not come. Ranks of its group.
    MissedBarrier,
    /// The watchdog: a collective of the rank timed out.
    TimedOut {
        /// Its group, as printed: `0(default_pg)`; empty if the line names none.
        group: String,
        /// Its number in the group.
        seq: u64,
        /// Its name: `ALLREDUCE`.
        op: String,
        /// The elements that it was given, if said.
        numel_in: Option<u64>,
        /// The elements that it was to give back, if said.
        numel_out: Option<u64>,
    },
    /// The watchdog: how far the rank had come in a group.
    Stood {
        /// The group, as above.
        group: String,
        /// The number of the last call that the rank had made.
        enqueued: u64,
        /// The number of the last call that had ended; `None` if the printed number is impossible.
        completed: Option<u64>,
    },
    /// The watchdog, of this rank or of another one: a collective of it timed out.
    Signalled,
    /// PyTorch's desync report: the rank is one of those behind the others.
    Lagging {
        /// The number of the call that it never joined, where the report says it.
        next: Option<u64>,
    },
    /// The heartbeat monitor: the rank's watchdog thread stood still, in a call of CUDA or NCCL or waiting
    /// for Python's lock.
    StuckWatchdog {
        /// The number of works that the watchdog still had to look after, if that is said.
        works: Option<u64>,
    },
    /// NCCL: ranks at and around this one made different collectives (`NCCL WARN Mismatched collective`).
    MismatchedInNccl,
    /// PyTorch's `torchfrtrace`, of a rank that did not join a collective.
    NotJoined {
        /// The group, as printed: `0:default_pg`.
        group: String,
        /// The collective's number in the group; the first releases do not say it.
        seq: Option<u64>,
        /// Its name: `all_reduce`.
        op: String,
    },
    /// PyTorch's `torchfrtrace`, of a rank whose call differs from the others'.
    Differs {
        /// The group, as above.
        group: String,
        /// The collective's number in the group.
        seq: u64,
        /// Its name.
        op: String,
        /// The difference, in PyTorch's word: `COLLECTIVE_TYPE_MISMATCH`.
        what: String,
    },
    /// NCCL's RAS, of a rank that has launched another number of collectives than most of its communicator.
    Launched {
        /// The collective: `AllGather`.
        op: String,
        /// The number that the rank has launched.
        count: u64,
        /// The number that the others have launched.
        others: u64,
        /// The number of the others.
        most: u64,
    },
    /// DETAIL: the rank is in another collective than the printed one, which is a call of tensors without a
    /// shape.
    RunsElsewhere,
    /// The rendezvous store cannot be reached, or its members did not come.
    Store {
        /// The message.
        error: String,
    },
    /// Python: the rank ended by an uncaught exception.
    Raised {
        /// Its type and text: `torch.OutOfMemoryError: CUDA out of memory. …`.
        error: String,
        /// `train.py:88`, the innermost line of the traceback that is the job's own.
        frame: Option<String>,
        /// The text of that line.
        source: Option<String>,
    },
    /// Python: the rank ended by an exception because another one did not come, or is gone.
    GaveUp {
        /// As above.
        error: String,
        /// As above: where it waited.
        frame: Option<String>,
        /// As above.
        source: Option<String>,
        /// The function of `torch.distributed` in which it waited, if it was in one: `recv`.
        call: Option<String>,
    },
    /// A launcher: the rank's process was the first to end, and not well.
    Exited {
        /// The exit status.
        status: u64,
        /// True if no other one ended like that.
        alone: bool,
        /// The launcher that reports it.
        by: By,
    },
    /// torchrun: it ended the rank itself, by SIGTERM, because another one had failed.
    Terminated,
    /// A launcher: the rank was ended by a signal, and not by the launcher's own.
    Killed {
        /// Its number.
        signal: u64,
        /// The launcher that reports it.
        by: By,
    },
    /// NCCL: a transfer between two machines failed.
    NetworkFailed {
        /// The machine that says so, by name.
        host: String,
        /// The address of the other one.
        peer: String,
        /// The reason: `Connection reset by peer`.
        why: String,
    },
    /// DETAIL: the rank runs this collective, while another runs another.
    Runs {
        /// Its number in the group.
        seq: u64,
        /// Its name: `ALLREDUCE`.
        op: String,
        /// The tensors' shapes, as printed: `[4]`; empty if it has none.
        shape: String,
        /// The tensors' element types, as printed: `Float`.
        dtype: String,
    },
}

/// A message, and the rank that it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statement {
    /// The rank that the statement is about.
    pub rank: GlobalRank,
    /// The statement.
    pub said: Said,
    /// The line of the log that says so.
    pub place: Place,
}

/// gloo's words of a message that is longer than the call of the rank that got it expects
/// (`gloo/transport/tcp/pair.cc`): ranks are in different collectives, or in one of different sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// The line of the log that says so, counted from 1.
    pub line: u64,
    /// The length of the message, in bytes.
    pub came: u64,
    /// The number of bytes that were expected at most.
    pub expected: u64,
}
