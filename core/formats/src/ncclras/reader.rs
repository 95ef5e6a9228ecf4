//! The lines of RAS as contributions.

use super::read;
use crate::problem::FileProblem;
use crate::reader::{Contribution, File, Reader};

/// Reads the output of `ncclras`.
#[derive(Debug)]
pub(crate) struct NcclRasReader;

impl Reader for NcclRasReader {
    fn name(&self) -> &'static str {
        "ncclras"
    }

    /// Its lines may be anywhere in a text.
    fn recognises(&self, _: File<'_>) -> bool {
        true
    }

    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem> {
        let log = Some(read(file.name, file.bytes)).filter(|log| !log.is_empty());
        Ok(log.map(|log| Contribution::Log(Box::new(log))).into_iter().collect())
    }

    fn reads_lines(&self) -> bool {
        true
    }
}
