//! PyTorch's messages as contributions.

use super::read_jobs;
use crate::file_names::is_log;
use crate::problem::FileProblem;
use crate::reader::{Contribution, File, Reader};
use crate::text::{begins_as_json, is_text};

/// Reads the messages in a job's log.
#[derive(Debug)]
pub(crate) struct JobLogReader;

impl Reader for JobLogReader {
    fn name(&self) -> &'static str {
        "job_log"
    }

    /// Messages may be anywhere in a text.
    fn recognises(&self, _: File<'_>) -> bool {
        true
    }

    /// A text without any message contributes an empty log: its rank reported nothing.
    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem> {
        let is_text = match file.bytes.is_empty() {
            true => is_log(file.name),
            false => is_text(file.bytes) && !begins_as_json(file.bytes),
        };
        let logs =
            read_jobs(file.name, file.bytes).into_iter().filter(|log| is_text || !log.is_empty());
        Ok(logs.map(|log| Contribution::Log(Box::new(log))).collect())
    }

    fn reads_lines(&self) -> bool {
        true
    }
}
