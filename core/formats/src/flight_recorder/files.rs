//! A set of files: the rank that wrote each, and the handling of files that cannot be read.

use super::sets::newest;
use super::{Dump, FlightRecorderError, merge};
use crate::job_calls::Merged;
use crate::problem::FileProblem;

/// The contents of a set of files: the calls of those that could be read, and the problems of the
/// rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The merged dumps.
    pub merged: Merged,
    /// The files that were left out, by name.
    pub problems: Vec<FileProblem>,
}

/// Reads every file that is a dump and merges them; unusable files are listed beside. The order of the files
/// does not matter. If a rank's dump is there as pickle and as JSON, the pickle counts, since it has the
/// stacks. If files of different jobs or moments claim one rank, the newest set of them is read (`sets.rs`).
///
/// # Errors
/// No file could be read: the first one's problem, by name. Or files claim the same rank, and it is unclear
/// which belong together.
pub fn read_files<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Recording, FlightRecorderError> {
    let mut dumps = Vec::new();
    let mut errors = Vec::new();
    for (file_name, bytes) in files {
        match Dump::read(file_name, bytes) {
            Ok(dump) => dumps.push(dump),
            Err(error) => errors.push((file_name, error)),
        }
    }
    if dumps.is_empty() {
        let first = errors.into_iter().min_by_key(|(name, _)| *name);
        return Err(first.map_or(FlightRecorderError::NoDumps { files: 0 }, |(_, error)| error));
    }
    let problems = errors.into_iter().map(|(name, error)| error.of_file(name.to_owned()));
    recording_of(dumps, problems.collect())
}

/// The recording of a job's dumps, read one by one; see [`read_files`]. `problems` are of the files that
/// could not be read.
///
/// # Errors
/// There are no dumps, or files claim the same rank, and it is unclear which belong together.
pub fn recording_of(
    dumps: Vec<Dump>,
    mut problems: Vec<FileProblem>,
) -> Result<Recording, FlightRecorderError> {
    let dumps = newest(dumps, &mut problems)?;
    let mut kept: Vec<Dump> = Vec::with_capacity(dumps.len());
    for dump in dumps {
        match kept.last() {
            // Of several moments only the newest set is left.
            Some(last) if last.rank == dump.rank => {
                let (file, other) = (dump.file_name.clone(), last.file_name.clone());
                let error = FlightRecorderError::SameDump { file, other, rank: dump.rank };
                problems.push(error.of_file(dump.file_name));
            }
            _ => kept.push(dump),
        }
    }
    problems.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    Ok(Recording { merged: merge(kept)?, problems })
}
