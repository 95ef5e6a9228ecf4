//! The table of readers: a row a format, in the order in which they try a file.

use crate::problem::{FileProblem, ProblemKind};
use crate::reader::{CallSource, Contribution, File, Reader};
use crate::{chakra, flight_recorder, job_log, kineto, nccl_log, ncclras, stacks, torchfrtrace};

/// Every reader of a job's files. A file goes to the first that recognises it and can read it; a text, to
/// all that read lines.
pub static READERS: &[&dyn Reader] = &[
    &kineto::KinetoReader,
    &chakra::ChakraReader,
    &flight_recorder::FlightRecorderReader,
    &stacks::StacksReader,
    &nccl_log::NcclLogReader,
    &torchfrtrace::TorchFrTraceReader,
    &ncclras::NcclRasReader,
    &job_log::JobLogReader,
];

/// The contributions of a file, and the first problem that a reader had with it.
pub(crate) fn read_file(file: File<'_>) -> (Vec<Contribution>, Option<FileProblem>) {
    let (mut contributions, mut problem) = (Vec::new(), None);
    for reader in READERS.iter().filter(|reader| reader.recognises(file)) {
        match reader.read(file) {
            Ok(read) if reader.reads_lines() => contributions.extend(read),
            Ok(read) => return (read, None),
            Err(error) if error.kind == ProblemKind::Unusable => return (Vec::new(), Some(error)),
            Err(error) => drop(problem.get_or_insert(error)),
        }
    }
    (contributions, problem)
}

/// The source of calls of a name.
pub(crate) fn call_source(name: &str) -> Option<&'static dyn CallSource> {
    READERS.iter().filter_map(|reader| reader.calls()).find(|source| source.name() == name)
}
