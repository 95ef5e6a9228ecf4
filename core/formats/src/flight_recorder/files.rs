//! A set of files: which rank wrote which, and what to do with those that cannot be read.

use super::sets::newest;
use super::{Dump, FlightRecorderError, Merged, merge};
use std::cmp::Ordering;

/// A file among the dumps that could not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file's name.
    pub file_name: String,
    /// What is wrong with it, and what to do.
    pub error: FlightRecorderError,
}

/// What a set of files holds: the calls of those that could be read, and what is wrong with the
/// rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The merged dumps.
    pub merged: Merged,
    /// The files that were left out, by name.
    pub problems: Vec<FileProblem>,
}

/// By rank; of one rank's, the one that says most first.
pub(super) fn better_first(a: &Dump, b: &Dump) -> Ordering {
    let last_record = |dump: &Dump| dump.entries.last().and_then(|entry| entry.record_id);
    (a.rank, a.form)
        .cmp(&(b.rank, b.form))
        .then_with(|| last_record(b).cmp(&last_record(a)))
        .then_with(|| a.file_name.cmp(&b.file_name))
}

/// Reads every file that is a dump and merges them; what could not be used is listed beside. The
/// order of the files does not matter. If a rank's dump is there as pickle and as JSON, the pickle
/// counts, since it has the stacks. Where files of different jobs or moments claim one rank, the
/// newest set of them is read (`sets.rs`).
///
/// # Errors
/// When no file could be read: the first one's problem, by name. When files claim the same rank, and
/// nothing tells which belong together.
pub fn read_files<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Recording, FlightRecorderError> {
    let mut dumps = Vec::new();
    let mut problems = Vec::new();
    for (file_name, bytes) in files {
        match Dump::read(file_name, bytes) {
            Ok(dump) => dumps.push(dump),
            Err(error) => problems.push(FileProblem { file_name: file_name.to_owned(), error }),
        }
    }
    recording_of(dumps, problems)
}

/// The recording of a job's dumps, read one by one; see [`read_files`]. `problems` are of the files
/// that could not be read.
///
/// # Errors
/// When there are no dumps: the first problem, by name. When files claim the same rank, and nothing
/// tells which belong together.
pub fn recording_of(
    dumps: Vec<Dump>,
    mut problems: Vec<FileProblem>,
) -> Result<Recording, FlightRecorderError> {
    let dumps = newest(dumps, &mut problems)?;
    let mut kept: Vec<Dump> = Vec::with_capacity(dumps.len());
    for dump in dumps {
        match kept.last() {
            // Of several moments only the newest set is left.
            Some(last) if last.rank == dump.rank => problems.push(FileProblem {
                error: FlightRecorderError::SameDump {
                    file: dump.file_name.clone(),
                    other: last.file_name.clone(),
                    rank: dump.rank,
                },
                file_name: dump.file_name,
            }),
            _ => kept.push(dump),
        }
    }
    problems.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    if kept.is_empty() {
        let first = problems.into_iter().next().map(|problem| problem.error);
        return Err(first.unwrap_or(FlightRecorderError::NoDumps { files: 0 }));
    }
    Ok(Recording { merged: merge(kept)?, problems })
}
