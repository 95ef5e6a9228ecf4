//! Flight Recorder dumps as contributions.

use super::{Dump, FlightRecorderError, Recording, recording_of};
use crate::debug_server;
use crate::file_names::is_log;
use crate::job_calls::{JobCalls, Shows};
use crate::problem::{FileProblem, MixedFiles};
use crate::reader::{CallSource, Contribution, File, FileCalls, Filled, Reader};
use lockstep_core::trace::Origin;

/// Reads Flight Recorder dumps.
#[derive(Debug)]
pub(crate) struct FlightRecorderReader;

const NAME: &str = "flight_recorder";

impl Reader for FlightRecorderReader {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Any file may be a dump: a pickle and JSON cannot be recognised by their first bytes. The error for a
    /// file that is not a dump says what it is instead.
    fn recognises(&self, _: File<'_>) -> bool {
        true
    }

    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem> {
        let pages = debug_server::dumps(file.bytes);
        if !pages.is_empty() {
            let dump = |(rank, json): &(u32, String)| {
                // Each rank's part is a file of its own, by the name that PyTorch gives such a file.
                let name = format!("{}/rank_{rank}.json", file.name);
                let read = Dump::read(&name, json.as_bytes());
                let dump = read.map_err(|error| error.of_file(file.name.to_owned()))?;
                Ok(Contribution::Calls(FileCalls::new(&Dumps, &name, dump)))
            };
            return pages.iter().map(dump).collect();
        }
        let read = Dump::read(file.name, file.bytes);
        let dump = read.map_err(|error| {
            // A process that wrote nothing leaves an empty log.
            let error = match error {
                FlightRecorderError::Empty { file } if is_log(&file) => {
                    FlightRecorderError::Text { file }
                }
                error => error,
            };
            error.of_file(file.name.to_owned())
        })?;
        Ok(vec![Contribution::Calls(FileCalls::new(&Dumps, file.name, dump))])
    }

    fn calls(&self) -> Option<&'static dyn CallSource> {
        Some(&Dumps)
    }
}

/// The calls of dumps.
#[derive(Debug)]
struct Dumps;

impl CallSource for Dumps {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shows(&self) -> Shows {
        Shows::LastCalls
    }

    fn join(
        &self,
        files: Vec<FileCalls>,
        problems: &mut Vec<FileProblem>,
    ) -> Result<Option<JobCalls>, MixedFiles> {
        let dumps: Vec<Dump> = files.into_iter().filter_map(FileCalls::into_content).collect();
        let backwards = dumps.iter().filter_map(|dump| {
            Some((dump.file_name.clone(), dump.backwards().note(&dump.file_name)?))
        });
        let backwards: Vec<(String, String)> = backwards.collect();
        let Some(highest) = dumps.iter().map(|dump| dump.rank.0).max() else { return Ok(None) };
        let joined = recording_of(dumps, std::mem::take(problems));
        let Recording { merged, problems: left_out } = joined.map_err(|error| MixedFiles {
            why: error.to_string(),
            world_size: highest.saturating_add(1),
        })?;
        *problems = left_out;
        let Origin::Recorded { files, .. } = &merged.header.origin else { return Ok(None) };
        let used = backwards.into_iter().filter(|(file, _)| files.contains(file));
        problems.extend(used.map(|(file, why)| FileProblem::flaw(&file, why)));
        Ok(Some(JobCalls { shows: self.shows(), merged, notes: Vec::new() }))
    }

    fn picks_the_job(&self) -> bool {
        true
    }

    fn filled_in(&self, filled: &Filled) -> String {
        format!("The dumps hold {} calls of the other recording.", filled.calls)
    }

    fn move_here(&self, calls: &mut FileCalls) {
        if let Some(dump) = calls.content_mut::<Dump>() {
            dump.entries = dump.entries.clone();
        }
    }

    fn pack(&self, calls: &FileCalls) -> Option<Vec<u8>> {
        postcard::to_stdvec(calls.content::<Dump>()?).ok()
    }

    fn unpack(&self, bytes: &[u8]) -> Option<FileCalls> {
        let dump: Dump = postcard::from_bytes(bytes).ok()?;
        let name = dump.file_name.clone();
        Some(FileCalls::new(&Dumps, &name, dump))
    }
}
