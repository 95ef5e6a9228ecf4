//! Runs and traces as the list has them, and as the API sends them.

use super::error::StoreError;
use lockstep_core::trace::{Origin, Outcome};
use lockstep_diagnosis::{Report, Verdict};
use lockstep_sim::Comparison;
use rusqlite::Row;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{SystemTime, UNIX_EPOCH};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    /// Its ranks are at work.
    Running,
    /// It ended; its outcome says how.
    Ended,
    /// The service ended first.
    Interrupted,
}

/// A run as the list has it, and as the API sends it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunRecord {
    pub(crate) id: u64,
    /// The plan's name.
    pub(crate) name: String,
    pub(crate) backend: String,
    pub(crate) world_size: u32,
    pub(crate) state: RunState,
    /// True if the run is paused, which no file records.
    pub(crate) paused: bool,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) outcome: Option<Outcome>,
    /// The diagnosis once it has ended.
    pub(crate) report: Option<Report>,
    /// Against the simulator, once it has ended.
    pub(crate) comparison: Option<Comparison>,
    /// In a word, once it has ended.
    pub(crate) ending: Option<Ending>,
}

/// The end of a run in a word: each ends in exactly one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// Completed, and equal to the simulation of its plan.
    Verified,
    /// Completed, and nothing to hold its values against: its plan cannot be simulated, or not with values, or
    /// not all of its program was followed.
    Unverified,
    /// It did not complete, or not as simulated: there is a finding, or a difference.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl Ending {
    /// The record of a run that has ended.
    pub(crate) fn of(
        outcome: &Outcome,
        comparison: Option<&Comparison>,
        verdict: Option<Verdict>,
    ) -> Ending {
        match (outcome, comparison) {
            (Outcome::Completed, _) if verdict == Some(Verdict::Findings) => Ending::Failed,
            // Not all of its program was followed: it may do more than was run.
            (Outcome::Completed, Some(_)) if verdict == Some(Verdict::Inconclusive) => {
                Ending::Unverified
            }
            (Outcome::Cancelled, _) => Ending::Cancelled,
            (Outcome::Completed, None) => Ending::Unverified,
            (Outcome::Completed, Some(compared)) => {
                let alike =
                    compared.differences.is_empty() && compared.calls.equal == compared.calls.calls;
                match &compared.not_compared {
                    _ if !alike => Ending::Failed,
                    Some(_) => Ending::Unverified,
                    None => Ending::Verified,
                }
            }
            _ => Ending::Failed,
        }
    }
}

/// The end of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    pub(crate) outcome: Outcome,
    pub(crate) report: Option<Report>,
    pub(crate) comparison: Option<Comparison>,
}

impl RunRecord {
    /// The run after its end, which the list does not have yet.
    pub(super) fn ended(self, end: &RunEnd, ended_ms: u64) -> RunRecord {
        let verdict = end.report.as_ref().map(|report| report.verdict);
        RunRecord {
            state: RunState::Ended,
            ended_ms: Some(ended_ms),
            outcome: Some(end.outcome.clone()),
            report: end.report.clone(),
            comparison: end.comparison.clone(),
            ending: Some(Ending::of(&end.outcome, end.comparison.as_ref(), verdict)),
            ..self
        }
    }
}

/// An uploaded trace as the list has it, and as the API sends it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TraceRecord {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) world_size: u32,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
    pub(crate) report: Report,
}

pub(super) const SELECT_RUN: &str = "SELECT id, name, backend, world_size, state, created_ms, ended_ms, \
                          outcome, report, comparison FROM runs";

pub(super) const SELECT_TRACE: &str =
    "SELECT id, name, origin, world_size, created_ms, report FROM traces";

/// The report of a row whose JSON cannot be read: the row stays in the list.
const DAMAGED: &str = "What the list says of this one is damaged. Its trace is still there: stop the service and \
                       run `lockstep data rebuild` to make the list anew from the files.";

pub(super) fn run_of(row: &Row<'_>) -> Result<RunRecord, StoreError> {
    let state = match row.get_ref(4)?.as_str().unwrap_or_default() {
        "running" => RunState::Running,
        "ended" => RunState::Ended,
        _ => RunState::Interrupted,
    };
    let world_size = row.get(3)?;
    let mut damaged = false;
    let outcome: Option<Outcome> = from_json(row, 7, &mut damaged)?;
    let mut report: Option<Report> = from_json(row, 8, &mut damaged)?;
    let comparison: Option<Comparison> = from_json(row, 9, &mut damaged)?;
    if damaged {
        report = Some(Report::unusable(world_size, DAMAGED));
    }
    let verdict = report.as_ref().map(|report| report.verdict);
    let ending = outcome.as_ref().map(|outcome| Ending::of(outcome, comparison.as_ref(), verdict));
    Ok(RunRecord {
        id: row.get::<_, i64>(0)? as u64,
        name: row.get(1)?,
        backend: row.get(2)?,
        world_size,
        state,
        paused: false,
        created_ms: row.get::<_, i64>(5)? as u64,
        ended_ms: row.get::<_, Option<i64>>(6)?.map(|ms| ms as u64),
        outcome,
        report,
        comparison,
        ending,
    })
}

pub(super) fn trace_of(row: &Row<'_>) -> Result<TraceRecord, StoreError> {
    let world_size = row.get(3)?;
    let mut damaged = false;
    let origin: Option<Origin> = from_json(row, 2, &mut damaged)?;
    let report: Option<Report> = from_json(row, 5, &mut damaged)?;
    let unknown = || "unknown".to_owned();
    Ok(TraceRecord {
        id: row.get::<_, i64>(0)? as u64,
        name: row.get(1)?,
        origin: origin.unwrap_or_else(|| Origin::Run { backend: unknown(), device: unknown() }),
        world_size,
        created_ms: row.get::<_, i64>(4)? as u64,
        report: report.unwrap_or_else(|| Report::unusable(world_size, DAMAGED)),
    })
}

pub(super) fn to_json<T: Serialize>(value: Option<&T>) -> Result<Option<String>, StoreError> {
    Ok(value.map(serde_json::to_string).transpose()?)
}

/// The value of a column; `None`, and `damaged`, if it holds something else.
fn from_json<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    damaged: &mut bool,
) -> Result<Option<T>, StoreError> {
    let text: Option<String> = row.get(column)?;
    let read = text.map(|text| serde_json::from_str(&text));
    *damaged |= matches!(read, Some(Err(_)));
    Ok(read.and_then(Result::ok))
}

pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
