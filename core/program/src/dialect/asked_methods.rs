//! The questions that a program asks of objects where the interpreter asks nobody.

/// The questions that a program has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asks {
    /// Whether something in it is asked for its items.
    pub(super) items: bool,
    /// Whether something in it is gone through piece by piece.
    pub(super) pieces: bool,
    /// Whether its classes say what sums are.
    pub(super) sums: bool,
    /// Whether they say which of two is less.
    pub(super) orders: bool,
}
