//! Sentences about a run: its end, its diagnosis, its values.

use crate::explain;
use crate::server::Run;
use lockstep_diagnosis::Report;
use lockstep_sim::Comparison;
use serde::Deserialize;
use serde_json::Value;

/// True if its user ended a run.
pub(super) fn ended_by_user(run: &Run) -> bool {
    run.text("outcome") == "cancelled"
}

/// `timed out`, or that it still runs.
pub(super) fn ending(run: &Run) -> String {
    match run.text("outcome").replace('_', " ") {
        _ if ended_by_user(run) => "ended by its user".to_owned(),
        _ if is_paused(run) => "paused".to_owned(),
        none if none.is_empty() => run.text("state"),
        outcome => outcome,
    }
}

/// True if a run stands because it was told to pause.
pub(super) fn is_paused(run: &Run) -> bool {
    run.fields.get("paused").and_then(Value::as_bool).unwrap_or_default()
}

/// The findings of the diagnosis, in a few words.
pub(super) fn diagnosis(fields: &Value) -> String {
    let report = fields.get("report").and_then(|report| Report::deserialize(report).ok());
    match report {
        None => String::new(),
        Some(report) => match report.findings.first() {
            None => format!("{:?}", report.verdict).to_lowercase(),
            Some(first) => {
                let ranks = explain::ranks(first.culprits.iter().map(|rank| rank.0));
                let who = if first.culprits.len() == 1 { "rank" } else { "ranks" };
                match ranks.is_empty() {
                    true => first.kind.title().to_owned(),
                    false => format!("{} ({who} {ranks})", first.kind.title()),
                }
            }
        },
    }
}

/// True if the values are the simulator's, in a word.
pub(super) fn agreement(fields: &Value) -> String {
    match compared_there(fields) {
        Some(compared) if compared.all_equal() => "all equal".to_owned(),
        Some(compared) if compared.tensors > 0 => {
            format!("{} differ", compared.tensors - compared.equal)
        }
        _ => String::new(),
    }
}

/// The comparison that the server made when the run ended.
pub(super) fn compared_there(fields: &Value) -> Option<Comparison> {
    fields.get("comparison").and_then(|compared| Comparison::deserialize(compared).ok())
}
