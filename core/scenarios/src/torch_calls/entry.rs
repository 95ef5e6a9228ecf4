//! An entry of the table of calls.

use crate::torch_call::Script;
use crate::torch_call::TorchCall;
use lockstep_torch::c10d::DistError;

/// The end of writing a call's program.
pub(super) type Done = Result<(), DistError>;

/// Makes the calls that a program's text says.
pub(crate) type Write = fn(&mut Script<'_, '_>) -> Done;

/// A call's text, and the same in Rust.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) call: TorchCall,
    pub(super) write: Write,
}

impl Entry {
    /// The entry with another number of elements at first.
    pub(super) const fn of_elements(mut self, count: u64) -> Entry {
        self.call.count = count;
        self
    }
}
