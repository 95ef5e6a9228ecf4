//! PyTorch's Flight Recorder: the dump that every rank writes when a collective hangs.

use crate::trace::Trace;

/// One rank's dump, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// The file's name.
    pub file_name: String,
    /// The rank that wrote it.
    pub rank: crate::rank::GlobalRank,
}

/// What is wrong with a dump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlightRecorderError {
    /// The file is empty.
    #[error(
        "{file} is empty: the rank was killed before it wrote its dump; copy the file again or leave it out"
    )]
    Empty {
        /// The file's name.
        file: String,
    },
}

/// A file among the dumps that could not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file's name.
    pub file_name: String,
    /// What is wrong with it, and what to do.
    pub error: FlightRecorderError,
}

/// What a set of files holds: the trace of those that could be read, and what is wrong with the
/// rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The merged trace.
    pub trace: Trace,
    /// The files that were left out, by name.
    pub problems: Vec<FileProblem>,
}

impl Dump {
    /// Reads one rank's dump, pickle or JSON; the rank is in the name.
    ///
    /// # Errors
    /// When the file is no Flight Recorder dump, or is cut off or hostile.
    pub fn read(file_name: &str, bytes: &[u8]) -> Result<Dump, FlightRecorderError> {
        let _ = bytes;
        Err(FlightRecorderError::Empty { file: file_name.to_owned() })
    }
}

/// Merges the dumps of a job's ranks into one trace.
///
/// # Errors
/// When there are none, or two are of the same rank.
pub fn trace_of(dumps: Vec<Dump>) -> Result<Trace, FlightRecorderError> {
    let _ = dumps;
    Err(FlightRecorderError::Empty { file: String::new() })
}

/// Reads every file that is a dump and merges them; what could not be read is listed beside.
///
/// # Errors
/// When no file could be read: the first file's problem, by name.
pub fn read_files<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Recording, FlightRecorderError> {
    let _ = files;
    Err(FlightRecorderError::Empty { file: String::new() })
}
