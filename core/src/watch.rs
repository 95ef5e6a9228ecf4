//! Long work, watched: how far it has come, and whether it goes on.
//!
//! A loop that can take seconds calls its [`Watch`] again and again. The front that started the work shows the progress
//! and can end the work; the loop itself knows neither clocks nor signals. Where nobody watches, it gets [`Unwatched`].
//! Work of the page's worker is not watched: it is cut into slices, between which the worker hears messages.

use std::ops::ControlFlow;

/// The progress of some work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The number that is done.
    pub done: u64,
    /// The number there is, or at most is.
    pub total: u64,
    /// The things that are counted: `operations simulated`.
    pub what: &'static str,
}

/// Hears of the progress of long work, and decides whether it goes on.
pub trait Watch {
    /// Hears of the progress; the work ends at [`ControlFlow::Break`].
    fn reached(&mut self, reached: Reached) -> ControlFlow<()>;
}

/// No watch: work goes on to its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn reached(&mut self, _: Reached) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
