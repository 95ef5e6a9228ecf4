//! The state of autograd that operators need, which know no process: whether operations are put into the graph,
//! and the number of the next one. It belongs to the program that the thread executes.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Another program begins on this thread.
pub(crate) fn begin() {
    ENABLED.set(true);
    NEXT.set(0);
    SAVED.set(0);
    STOP.set(None);
}

/// `torch.is_grad_enabled()`.
pub(crate) fn enabled() -> bool {
    ENABLED.get()
}

/// Switches autograd on or off.
pub(crate) fn enable(enabled: bool) {
    ENABLED.set(enabled);
}

/// The number of an operation that is put into the graph (`Node::sequence_nr`): higher than all before.
pub(crate) fn next_sequence() -> u64 {
    let next = NEXT.get();
    NEXT.set(next + 1);
    next
}

thread_local! {
    static SAVED: Cell<u64> = const { Cell::new(0) };
    /// The number of saved tensors at which a checkpointed part has computed all that it is run again for.
    static STOP: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A checkpointed part that runs again has saved all that it saved the first time.
#[derive(Debug, thiserror::Error)]
#[error("everything that is needed was computed again")]
pub(crate) struct Stopped;

/// The number of operations so far that have saved tensors for a backward pass.
pub(crate) fn saved() -> u64 {
    SAVED.get()
}

/// Stops after so many operations more that save tensors. Returns the end that was set before.
pub(crate) fn stop_after(more: Option<u64>) -> Option<u64> {
    STOP.replace(more.map(|more| SAVED.get() + more))
}

/// Sets the end that was set before.
pub(crate) fn go_on(before: Option<u64>) {
    STOP.set(before);
}

/// An operation saves tensors for a backward pass.
///
/// # Errors
/// It was the last that a checkpointed part is run again for.
pub(crate) fn saves() -> Result<(), Stopped> {
    SAVED.set(SAVED.get() + 1);
    match STOP.get().is_some_and(|stop| SAVED.get() >= stop) {
        true => Err(Stopped),
        false => Ok(()),
    }
}

/// True if a part has ended since everything that it saved is there again.
pub(crate) fn is_stopped(error: &starlark::Error) -> bool {
    matches!(error.kind(), starlark::ErrorKind::Native(inner) if inner.is::<Stopped>())
}
