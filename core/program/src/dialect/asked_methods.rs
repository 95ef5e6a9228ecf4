//! The questions that Python asks of objects and the interpreter does not.

/// The questions that a program has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asks {
    /// True if the program defines how objects answer `object[key]`.
    pub(super) items: bool,
    /// True if the program defines iterators that are asked for one item after the other.
    pub(super) pieces: bool,
    /// True if the program's classes define arithmetic operators.
    pub(super) sums: bool,
    /// True if the program's classes define comparisons.
    pub(super) orders: bool,
}
