//! The diagnosis of a job's files: of the calls that they tell of, and of what its logs say.

use crate::{Kind, Report, add_log, diagnose_nccl, diagnose_profiles, diagnose_recording};
use lockstep_formats::flight_recorder::Merged;
use lockstep_formats::nccl_log;
use lockstep_formats::recording::{JoinError, RecordedCalls, RecordedJob, Sources};

/// A job and what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub struct DiagnosedJob {
    /// The calls; `None` of a log alone, which tells of none.
    pub calls: Option<Merged>,
    /// What is wrong in it. Its notes say what each source told, and which files were left out.
    pub report: Report,
    /// What could not be read, in sentences. They are among the report's notes as well.
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

/// What is wrong with a job.
pub fn diagnose_job(job: RecordedJob) -> DiagnosedJob {
    let RecordedJob { calls, nccl, heard, notes, unused, problems } = job;
    let (calls, mut report) = match calls {
        RecordedCalls::Dumps(recording) => {
            let mut report = diagnose_recording(&recording);
            if let Some(nccl) = &nccl {
                tell_of_missing(&mut report, nccl);
            }
            (Some(recording.merged), report)
        }
        RecordedCalls::Profiles(merged, notes) => {
            let report = diagnose_profiles(&merged.log, notes);
            (Some(merged), report)
        }
        RecordedCalls::NcclLog(calls) => {
            let report = diagnose_nccl(&calls);
            let ends = calls.log.logs().filter_map(|(_, log)| log.calls.last());
            let end_ps = ends.map(|last| last.scheduled_ps).max().unwrap_or(0);
            (Some(Merged { header: calls.header, log: calls.log, end_ps }), report)
        }
        RecordedCalls::Unknown => {
            let unseen = vec!["A log tells of no calls: none was seen to end.".to_owned()];
            (None, Report { unseen, ..Report::healthy(0) })
        }
    };
    report.notes.extend(unused);
    add_log(&mut report, &heard);
    report.notes.extend(notes);
    DiagnosedJob { calls, report: report.judged(), problems }
}

/// Of ranks without a dump NCCL's log may hold the last words.
fn tell_of_missing(report: &mut Report, nccl: &nccl_log::Calls) {
    for finding in report.findings.iter_mut().filter(|it| it.kind == Kind::RankMissing) {
        for rank in finding.culprits.iter().take(8) {
            let own = nccl.log.ranks.get(rank.index()).and_then(Option::as_ref);
            let Some(last) = own.and_then(|own| own.calls.last()) else { continue };
            let group = nccl.log.groups.get(last.call.group.index());
            let label = group.map_or("?", |group| group.label());
            let number = last.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
            finding.message +=
                &format!(" Rank {rank}'s NCCL log ends with {}{number} of {label}.", last.call.op);
            for seen in finding.evidence.iter_mut().filter(|seen| seen.rank == *rank) {
                seen.note += &format!("; its NCCL log ends with {}{number}", last.call.op);
            }
        }
    }
}
