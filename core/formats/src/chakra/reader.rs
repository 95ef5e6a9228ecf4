//! Execution traces as contributions.

use super::error::ChakraError;
use super::{json, nodes};
use crate::job_calls::{JobCalls, Merged, Shows};
use crate::problem::{FileProblem, MixedFiles, ProblemKind};
use crate::rank_calls::{Calls, RankCalls, Words, join};
use crate::reader::{CallSource, Contribution, File, FileCalls, Filled, Reader};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::rank_of_file_name;
use lockstep_core::words::counted;

/// Reads execution traces of Chakra and of PyTorch.
#[derive(Debug)]
pub(crate) struct ChakraReader;

const NAME: &str = "chakra";

/// True for a file that is one of Chakra's by its name, `job.3.et`, or by its first bytes.
pub fn looks_like_et(file_name: &str, bytes: &[u8]) -> bool {
    let named = file_name.rsplit_once('.').is_some_and(|(_, it)| it.eq_ignore_ascii_case("et"));
    named || nodes::begins_with_nodes(bytes)
}

/// One rank's file.
#[derive(Debug)]
struct ExecutionTrace {
    calls: RankCalls,
    has_times: bool,
}

impl ExecutionTrace {
    fn read(file: File<'_>) -> Result<ExecutionTrace, ChakraError> {
        if file.bytes.is_empty() {
            return Err(ChakraError::Empty { file: file.name.to_owned() });
        }
        let rank = rank_of_file_name(file.name)
            .map_err(|_| ChakraError::NoRank { file: file.name.to_owned() })?;
        let contents = match json::is_one(file.bytes) {
            true => json::read(file.name, file.bytes)?,
            false => nodes::read(file.name, file.bytes)?,
        };
        let calls = RankCalls {
            file_name: file.name.to_owned(),
            rank,
            world_size: RankCalls::world_size_of(rank, 0, &contents.groups),
            backend: contents.backend,
            groups: contents.groups,
            calls: contents.calls,
            steps: Vec::new(),
            computed: if contents.has_times { contents.computed } else { Vec::new() },
            on_device: contents.has_times,
            untimed: !contents.has_times,
            base_ns: 0,
            flaws: contents.flaws,
        };
        Ok(ExecutionTrace { calls, has_times: contents.has_times })
    }
}

/// The rank whose execution trace a file is; `None` of a file of another kind.
pub(crate) fn rank_of(file: &FileCalls) -> Option<GlobalRank> {
    file.content::<ExecutionTrace>().map(|trace| trace.calls.rank)
}

/// The calls of an execution trace; `None` of a file of another kind.
pub(crate) fn calls_of(file: FileCalls) -> Option<RankCalls> {
    file.into_content::<ExecutionTrace>().map(|trace| trace.calls)
}

impl Reader for ChakraReader {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, file: File<'_>) -> bool {
        json::is_one(file.bytes) || looks_like_et(file.name, file.bytes)
    }

    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem> {
        let trace = ExecutionTrace::read(file).map_err(|error| FileProblem {
            file_name: file.name.to_owned(),
            kind: ProblemKind::Unusable,
            why: error.to_string(),
        })?;
        Ok(vec![Contribution::Calls(FileCalls::new(&ExecutionTraces, file.name, trace))])
    }

    fn calls(&self) -> Option<&'static dyn CallSource> {
        Some(&ExecutionTraces)
    }
}

/// The calls of execution traces.
#[derive(Debug)]
struct ExecutionTraces;

impl CallSource for ExecutionTraces {
    fn name(&self) -> &'static str {
        NAME
    }

    fn shows(&self) -> Shows {
        Shows::ObservedOrder
    }

    fn join(
        &self,
        files: Vec<FileCalls>,
        problems: &mut Vec<FileProblem>,
    ) -> Result<Option<JobCalls>, MixedFiles> {
        let traces = files.into_iter().filter_map(FileCalls::into_content::<ExecutionTrace>);
        let (mut calls, timed): (Vec<RankCalls>, Vec<bool>) =
            traces.map(|trace| (trace.calls, trace.has_times)).unzip();
        problems.extend(RankCalls::settle_broken(&mut calls));
        let words = Words {
            by: "an execution trace",
            file: "an execution trace",
            files: "execution traces",
            missing: "nothing was recorded of the others",
        };
        let has_times = timed.iter().all(|timed| *timed);
        Ok(join(&calls, words).map(|Calls { header, log, end_ps, mut notes, problems: flaws }| {
            problems.extend(flaws);
            if !has_times {
                notes.push(
                    "The execution traces hold no times: calls stand in the order that their \
                     dependencies give, and when one ended is not known."
                        .to_owned(),
                );
            }
            JobCalls {
                shows: if has_times { RankCalls::shown_by(&calls) } else { Shows::ObservedOrder },
                merged: Merged { header, log, end_ps },
                notes,
            }
        }))
    }

    fn has_whole_ranks(&self) -> bool {
        true
    }

    fn filled_in(&self, filled: &Filled) -> String {
        format!(
            "The execution traces tell of {}; {} of {} are in the other recording too, and they filled \
             in the reduction of {} and the root of {}.",
            counted(filled.of_calls, "call"),
            filled.calls,
            counted(filled.ranks, "rank"),
            filled.reductions,
            filled.roots
        )
    }
}
