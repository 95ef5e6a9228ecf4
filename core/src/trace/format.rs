//! The version of the trace's format, and the error of bytes that are no trace of it.

/// The version of the trace's format; readers refuse any other.
pub const TRACE_SCHEMA: &str = "lockstep.trace/2";

/// An error of bytes that are no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Not a trace at all, or of another version.
    #[error("not a trace that this version reads ({schema}): {why}", schema = TRACE_SCHEMA)]
    NotATrace {
        /// The contents that were found instead.
        why: String,
    },
    /// A frame that does not decode.
    #[error("the trace is damaged at byte {at}: {why}")]
    Damaged {
        /// The first byte of the frame.
        at: u64,
        /// The problem, in words.
        why: String,
    },
}
