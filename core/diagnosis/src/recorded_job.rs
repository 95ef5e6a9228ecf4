//! The diagnosis of a job's files: of the calls that they tell of, and of what its logs say.

use crate::facts::other_sources::OtherSources;
use crate::facts::stacks::positions;
use crate::{Report, diagnose_dumps, diagnose_logs, diagnose_other};
use lockstep_formats::flight_recorder::Recording;
use lockstep_formats::job_calls::{JobCalls, Merged, Shows};
use lockstep_formats::job_log::Heard;
use lockstep_formats::problem::ProblemKind;
use lockstep_formats::recording::{JoinError, RecordedJob, Sources};
use lockstep_formats::stacks::ProcessStacks;

/// The reason that recordings which are used, and of which something is missing or in doubt, show no health.
const FLAWED: &str = "Something is wrong with recordings that are used; the notes say what.";

/// So many lines that hold an error are quoted.
const MOST_ERRORS: usize = 4;

/// A job and what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub struct DiagnosedJob {
    /// The calls; `None` of a log alone, which tells of none.
    pub calls: Option<Merged>,
    /// Its findings. Its notes say what each source told, and which files were left out.
    pub report: Report,
    /// Files that could not be read, in sentences. They are among the report's notes as well.
    pub problems: Vec<String>,
}

/// Puts a job's files together and says what is wrong with it. The order of the files does not
/// matter.
///
/// # Errors
/// When there is nothing that could be read.
pub fn diagnose_files(sources: Sources) -> Result<DiagnosedJob, JoinError> {
    match sources.join() {
        Ok(job) => Ok(diagnose_job(job)),
        Err(JoinError::Mixed { why, world_size, problems }) => {
            Ok(DiagnosedJob { calls: None, report: Report::unusable(world_size, why), problems })
        }
        Err(error) => Err(error),
    }
}

/// Diagnoses a job.
pub fn diagnose_job(job: RecordedJob) -> DiagnosedJob {
    let RecordedJob { calls, others, heard, stacks, notes, unread, problems } = job;
    let errors: Vec<String> = error_lines(&heard).collect();
    let world_of_stacks = stacks_world(&stacks);
    let sources = OtherSources { heard, stacks: positions(&stacks), ..OtherSources::default() };
    let (calls, mut report) = match calls {
        Some(JobCalls { shows: Shows::LastCalls, merged, notes }) => {
            let recording = Recording { merged, problems: unread };
            let order = others.iter().find(|other| other.shows == Shows::CallOrder);
            let nccl_calls = order.map(|order| &order.merged.log);
            let mut report = diagnose_dumps(&recording, OtherSources { nccl_calls, ..sources });
            report.notes.extend(notes);
            (Some(recording.merged), report)
        }
        Some(JobCalls { shows, merged, mut notes }) => {
            let is_flawed = unread.iter().any(|problem| problem.kind == ProblemKind::Flawed);
            notes.extend(unread.into_iter().map(|problem| problem.why));
            let mut report = diagnose_other(&merged.log, shows, notes, sources);
            // Calls of which some are missing, or in doubt, are no evidence of health.
            report.unseen.extend(is_flawed.then(|| FLAWED.to_owned()));
            (Some(merged), report)
        }
        None => {
            let from_stacks = (!stacks.is_empty())
                .then_some("Stacks tell where each process was, and not which calls it had made.");
            let from_logs = (sources.heard.has_text || stacks.is_empty())
                .then_some("A log tells of no calls: none was seen to end.");
            let unseen = from_stacks.into_iter().chain(from_logs).map(str::to_owned).collect();
            let mut report = Report { unseen, ..Report::healthy(0) };
            report.notes.extend(unread.into_iter().map(|problem| problem.why));
            let mut report = diagnose_logs(report, &sources);
            report.world_size = report.world_size.max(world_of_stacks);
            (None, report)
        }
    };
    report.unseen.extend(errors);
    report.notes.extend(notes);
    DiagnosedJob { calls, report: report.judged(), problems }
}

/// Lines of the logs that hold an error which blames nobody: a job with one is not called healthy.
fn error_lines(heard: &Heard) -> impl Iterator<Item = String> {
    let lines = heard.errors.iter().take(MOST_ERRORS);
    lines.map(|(file, error)| {
        let who = error.rank.map(|rank| format!(" of rank {rank}")).unwrap_or_default();
        format!("{file}, line {}{who}, holds an error: \"{}\"", error.line, error.text)
    })
}

/// One past the highest rank of some stacks.
fn stacks_world(stacks: &[ProcessStacks]) -> u32 {
    let ranks = stacks.iter().filter_map(|process| process.rank);
    ranks.map(|rank| rank.0.saturating_add(1)).max().unwrap_or(0)
}
