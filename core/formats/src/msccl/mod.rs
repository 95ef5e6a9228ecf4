//! MSCCL programs: the XML that Microsoft's collective communication library runs, as a [`Table`].
//!
//! A program gives every GPU *thread blocks*; a block runs its steps in order, sends to at most one peer and
//! receives from at most one, on one channel, and a step may wait for a step of another block of the same GPU
//! (`depid`, `deps`). The n-th send from a to b on a channel meets the n-th receive of b from a on it. The
//! steps are those of `msccl_kernel.cu` in msccl-executor-nccl; the attributes those of its `msccl_parser.cc`
//! and of msccl-tools' `language/ir.py`.
//!
//! Reading is compiling, in five parts:
//! - [`xml`]: the text as a [`program::Program`];
//! - [`memory`]: the positions of its `i`, `o` and `s` in our buffers;
//! - [`order`]: the receive that each send meets, and the order of events;
//! - [`races`]: the accesses of the same memory that are ordered, and those that nothing orders, which is an
//!   error, whatever a lucky run may give;
//! - [`levels`]: common step numbers for all ranks, such that both ends of a message have the same; or
//!   [`stated`]: those that a file of ours states, if they agree with the order.
//!
//! The program's claim is not checked here: a [`Table`] is proved before it is run.

mod error;
mod levels;
mod memory;
mod names;
mod order;
mod program;
mod races;
mod stated;
mod write;
mod xml;

pub use error::{At, LineError, MscclError};
pub use write::{WriteError, write};

use crate::goal;
use lockstep_core::schedule::Table;

/// Longer files are refused: the largest that Microsoft ships has 0.6 MB.
pub const MAX_XML_BYTES: usize = 32 << 20;

/// True for bytes that begin like an MSCCL program: an XML element `algo`, after comments and a
/// declaration.
pub fn looks_like_msccl(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(4096)];
    start.trim_ascii_start().starts_with(b"<") && start.windows(5).any(|text| text == b"<algo")
}

/// The schedule of an MSCCL program. It is not proved.
///
/// # Errors
/// When the text is no MSCCL program, or one that could not run: with the line, or with the GPU,
/// thread block and step.
pub fn read(text: &str) -> Result<Table, MscclError> {
    if text.len() > MAX_XML_BYTES {
        return Err(MscclError::TooLong { bytes: text.len() });
    }
    if goal::looks_like_goal(text.as_bytes()) {
        return Err(MscclError::Goal);
    }
    let program = xml::parse(text)?;
    let memory = memory::Memory::of(&program)?;
    let order = order::Order::of(&program, memory)?;
    match stated::table(&program, &order)? {
        Some(table) => Ok(table),
        None => levels::table(&program, order),
    }
}

#[cfg(test)]
mod tests;
