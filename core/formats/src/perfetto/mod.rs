//! Traces for [Perfetto](https://ui.perfetto.dev), in its native protobuf
//! (`protos/perfetto/trace/perfetto_trace.proto`).
//!
//! A rank is a process. Its program is the process's thread; below it are tracks of the compute stream, and
//! of the communication of each group. Calls of one collective are joined by a flow in the order in which
//! they began, and a flow leads from a send to the end of its receive. Counters show the bytes in flight.
//! Packets are written in the order of time, so that events within one nanosecond keep their order.

mod schema;
mod sequence;
mod tracks;
mod writer;

pub use writer::write;

/// The first bytes of a file that [`write()`] wrote: the packet that describes the job.
pub const BEGINNING: &[u8] = b"\x0a\x0e\x50\x01\x68\x01\xe2\x03\x07\x08\x01\x12\x03job";

#[cfg(test)]
mod tests;
