//! Stacks as contributions.

use super::{ProcessStacks, StacksError, json, scan};
use crate::debug_server;
use crate::problem::{FileProblem, ProblemKind};
use crate::reader::{Contribution, File, Reader};

/// Reads py-spy's dumps and faulthandler's tracebacks, also in the middle of a log.
#[derive(Debug)]
pub(crate) struct StacksReader;

impl Reader for StacksReader {
    fn name(&self) -> &'static str {
        "stacks"
    }

    /// Stacks stand anywhere in a text.
    fn recognises(&self, _: File<'_>) -> bool {
        true
    }

    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem> {
        let stacks = read(file.name, file.bytes).map_err(|error| FileProblem {
            file_name: file.name.to_owned(),
            kind: ProblemKind::Unusable,
            why: error.to_string(),
        })?;
        let stacks = Some(stacks).filter(|stacks| !stacks.is_empty());
        Ok(stacks.map(Contribution::Stacks).into_iter().collect())
    }

    fn reads_lines(&self) -> bool {
        true
    }
}

/// The stacks in a file; none is no error.
///
/// # Errors
/// When the file is JSON of py-spy that is damaged or too large.
pub fn read(file_name: &str, bytes: &[u8]) -> Result<Vec<ProcessStacks>, StacksError> {
    match json::is_one(bytes) {
        true => json::read(file_name, bytes),
        false => match debug_server::stacks(bytes) {
            Some(text) => {
                // The lines are those of the text inside the page.
                let mut stacks = scan::read(file_name, text.as_bytes());
                let threads = stacks.iter_mut().flat_map(|process| &mut process.threads);
                threads.for_each(|thread| thread.lines.clear());
                Ok(stacks)
            }
            None => Ok(scan::read(file_name, bytes)),
        },
    }
}
