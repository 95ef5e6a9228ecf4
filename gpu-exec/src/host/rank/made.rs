//! A call that is made, and how far it gets.

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Its number among the rank's calls.
    pub(crate) work: u32,
    /// The operation that makes it.
    pub(crate) op: u32,
    /// The time at which the operation began, or at which a fault struck before it was over.
    pub(super) began: Began,
    /// The how manieth call of that operation it is.
    pub(super) part: u32,
    /// Its number among the collectives of its group, or among the sends and receives.
    pub(crate) seq: u64,
    pub(super) timeout_ns: u64,
    /// True if it is the only call of an operation that ends with it: it needs no other thread.
    pub(crate) alone: bool,
}

/// When an operation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Began {
    /// Then, on the shared clock.
    At(u64),
    /// When the call before it ended, which is still to be written down.
    With(Ended),
}

/// A call that has completed, and with it its operation: just now, or as long ago as the next call's small
/// first messages take. A look at the clock can take a fifth of a small call, and is put off until no peer
/// waits for this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(super) work: u32,
    pub(super) op: u32,
}

/// The progress of a call that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// The call is on its way, or has completed.
    Made,
    /// It was [`Made::alone`], and with it its operation has ended. The end is still to be recorded, and its
    /// work to be marked: together with the next call, whose peers wait for its first messages and not for
    /// notes.
    Ended(Ended),
}
