//! NCCL's lines as contributions.

use super::{Calls, NcclLog, calls_of};
use crate::job_calls::{JobCalls, Merged, Shows};
use crate::problem::{FileProblem, MixedFiles};
use crate::reader::{CallSource, Contribution, File, FileCalls, Filled, Reader};
use lockstep_core::words::{counted, rank_list};

/// Reads NCCL's lines in a text.
#[derive(Debug)]
pub(crate) struct NcclLogReader;

const NAME: &str = "nccl_log";

impl Reader for NcclLogReader {
    fn name(&self) -> &'static str {
        NAME
    }

    /// NCCL's lines may be anywhere in a text.
    fn recognises(&self, _: File<'_>) -> bool {
        true
    }

    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem> {
        let log = Some(NcclLog::read(file.name, file.bytes)).filter(|log| !log.is_empty());
        let calls = log.map(|log| FileCalls::new(&NcclLogs, file.name, log));
        Ok(calls.map(Contribution::Calls).into_iter().collect())
    }

    fn reads_lines(&self) -> bool {
        true
    }

    fn calls(&self) -> Option<&'static dyn CallSource> {
        Some(&NcclLogs)
    }
}

/// The calls of NCCL's logs.
#[derive(Debug)]
struct NcclLogs;

impl CallSource for NcclLogs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shows(&self) -> Shows {
        Shows::CallOrder
    }

    fn join(
        &self,
        files: Vec<FileCalls>,
        _: &mut Vec<FileProblem>,
    ) -> Result<Option<JobCalls>, MixedFiles> {
        let logs: Vec<NcclLog> = files.into_iter().filter_map(FileCalls::into_content).collect();
        Ok(calls_of(&logs).map(|Calls { header, log, notes }| {
            let ends = log.logs().filter_map(|(_, log)| log.calls.last());
            let end_ps = ends.map(|last| last.scheduled_ps).max().unwrap_or(0);
            let merged = Merged { header, log, end_ps };
            JobCalls { shows: self.shows(), merged, notes }
        }))
    }

    fn filled_in(&self, filled: &Filled) -> String {
        let all = counted(filled.of_calls, "call");
        if filled.calls == 0 {
            return format!(
                "NCCL's log tells of {all}, none of which is in the other recording: is it of another \
                 run, or of other groups?"
            );
        }
        let whole = match &filled.whole_ranks[..] {
            [] => String::new(),
            [rank] => format!(
                " Rank {rank} left no dump: its calls are those of the log, without times and lines."
            ),
            ranks => format!(
                " Ranks {} left no dumps: their calls are those of the log, without times and lines.",
                rank_list(ranks)
            ),
        };
        format!(
            "NCCL's log tells of {all}; {} of {} are in the other recording too, and it filled in the \
             reduction of {} and the root of {}.{whole}",
            filled.calls,
            counted(filled.ranks, "rank"),
            filled.reductions,
            filled.roots
        )
    }
}
