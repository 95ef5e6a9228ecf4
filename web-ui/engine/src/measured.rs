//! Tables that nccl-tests measured on a named cluster: files beside the page, fetched when the cluster is asked about
//! (`sim/clusters/data/measured`).

use lockstep_core::words::counted;
use lockstep_web_protocol::{
    ClusterAccount, ClusterPoint, ClusterQuestion, MeasuredPoints, MeasuredSource,
};
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{DedicatedWorkerGlobalScope, Response};

/// A cluster's name, and the text of its measured tables.
pub(super) type MeasuredText = (String, Rc<str>);

/// A table of measured times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeasuredTable {
    /// Its header: keys and values.
    head: Vec<(String, String)>,
    /// Bytes as nccl-tests counts them, and picoseconds.
    points: Vec<(u64, u64)>,
}

/// Picoseconds of a microsecond.
const PS_PER_US: f64 = 1e6;

impl MeasuredTable {
    /// The tables of a file: each begins with the line of its collective. What is no table is
    /// passed over.
    pub(super) fn read(text: &str) -> Vec<MeasuredTable> {
        let mut tables: Vec<MeasuredTable> = Vec::new();
        for line in text.lines() {
            if let Some((key, value)) = line.strip_prefix("# ").and_then(|it| it.split_once(": ")) {
                if key == "collective" {
                    tables.push(MeasuredTable::default());
                }
                if let Some(table) = tables.last_mut() {
                    table.head.push((key.to_owned(), value.to_owned()));
                }
            } else if let (Some(table), Some((bytes, us))) =
                (tables.last_mut(), line.split_once(','))
                && let (Ok(bytes), Ok(us)) = (bytes.parse(), us.parse::<f64>())
            {
                table.points.push((bytes, (us * PS_PER_US).round() as u64));
            }
        }
        tables
    }

    fn says(&self, key: &str) -> &str {
        self.head.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    /// True if it was measured with this collective, among as many ranks on as many nodes.
    pub(super) fn is_of(&self, collective: &str, ranks: u32, nodes: u32) -> bool {
        self.says("collective") == collective
            && self.says("gpus").parse() == Ok(ranks)
            && self.says("nodes").parse() == Ok(nodes)
    }

    /// The machine and its settings, in words.
    fn words(&self) -> String {
        let keys = ["gpu_model", "inter_link", "settings", "tool"];
        let words = keys.map(|key| self.says(key)).into_iter();
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// The text of a cluster's file; empty where nobody has measured it.
pub(super) async fn fetched(cluster: &str) -> String {
    text_of(cluster).await.unwrap_or_default()
}

async fn text_of(cluster: &str) -> Result<String, JsValue> {
    let scope: DedicatedWorkerGlobalScope = js_sys::global().dyn_into()?;
    // The worker's own script lies a folder below the page.
    let asked = scope.fetch_with_str(&format!("../measured/{cluster}.csv"));
    let response: Response = JsFuture::from(asked).await?.dyn_into()?;
    if !response.ok() {
        return Ok(String::new());
    }
    Ok(JsFuture::from(response.text()?).await?.as_string().unwrap_or_default())
}

/// The points of a file's tables that are of the call of an account.
pub(super) fn measured(
    text: &str,
    question: &ClusterQuestion,
    account: &ClusterAccount,
) -> MeasuredPoints {
    let tables = MeasuredTable::read(text);
    let is_of =
        |table: &&MeasuredTable| table.is_of(&question.collective, account.ranks, account.nodes);
    let tables: Vec<&MeasuredTable> = tables.iter().filter(is_of).collect();
    let (times, rates) = dots(&tables, &account.points);
    let source = |table: &&MeasuredTable| MeasuredSource {
        machine: table.words(),
        source: table.says("source").to_owned(),
    };
    MeasuredPoints {
        words: words(&tables, question, account),
        tables: tables.iter().map(source).collect(),
        times,
        rates,
    }
}

/// A figure by the bytes of a call: picoseconds, or bytes a second.
type BySize = Vec<(u64, u64)>;

/// The points of tables within the sizes of the prediction, as times and as bus bandwidths.
fn dots(tables: &[&MeasuredTable], predicted: &[ClusterPoint]) -> (BySize, BySize) {
    let (Some(first), Some(last)) = (predicted.first(), predicted.last()) else {
        return (Vec::new(), Vec::new());
    };
    // Bus bandwidth is that of a call's bytes and time, times what the collective and its ranks say.
    let factor = last.bus_rate as f64 / last.algorithm_rate.max(1) as f64;
    let points = || {
        let all = tables.iter().flat_map(|table| &table.points).copied();
        all.filter(|(bytes, ps)| (first.bytes..=last.bytes).contains(bytes) && *ps > 0)
    };
    let rate = |(bytes, ps): (u64, u64)| (bytes, (bytes as f64 * factor * 1e12 / ps as f64) as u64);
    (points().collect(), points().map(rate).collect())
}

/// The mean error of the predictions against measured times, and the number of sizes.
fn mean_error(tables: &[&MeasuredTable], predicted: &[ClusterPoint]) -> Option<(f64, usize)> {
    let errors = tables.iter().flat_map(|table| &table.points).filter_map(|(bytes, ps)| {
        let predicted = predicted.iter().find(|point| point.bytes == *bytes)?;
        Some((predicted.ps as f64 / *ps as f64 - 1.0).abs())
    });
    let errors: Vec<f64> = errors.collect();
    let sum: f64 = errors.iter().sum();
    (!errors.is_empty()).then(|| (sum / errors.len() as f64, errors.len()))
}

/// The sentence on the measured tables, or on their absence.
fn words(
    tables: &[&MeasuredTable],
    question: &ClusterQuestion,
    account: &ClusterAccount,
) -> String {
    if tables.is_empty() {
        let words = match account.extrapolated {
            true => {
                "No table of such a machine with so many ranks was measured: all of this is an extrapolation."
            }
            false => {
                "No table of this cluster with these ranks ships; tables of like machines back the prediction."
            }
        };
        return words.to_owned();
    }
    let tables_text = counted(tables.len() as u64, "table");
    if !question.fault.is_empty() {
        return format!("Circles: measured by nccl-tests without the fault, {tables_text}.");
    }
    let off = mean_error(tables, &account.points).map_or_else(String::new, |(error, sizes)| {
        format!(
            ": the prediction is {:.0}% off in the mean over {}",
            error * 100.0,
            counted(sizes as u64, "size")
        )
    });
    format!("Circles: measured by nccl-tests, {tables_text}{off}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_clusters::Table;
    use std::path::Path;

    /// The page reads the files that ship as `lockstep time --table` reads tables.
    #[test]
    fn shipped_files_are_read_as_the_command_line_reads_tables() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim/clusters/data/measured");
        let mut seen = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let tables = MeasuredTable::read(&text);
            let same = text.split("\n\n").map(|table| Table::parse(table).unwrap());
            assert_eq!(tables.len(), same.clone().count());
            for (ours, table) in tables.iter().zip(same) {
                assert!(ours.is_of(table.collective.name(), table.gpus, table.nodes));
                let points =
                    table.points.iter().map(|(bytes, us)| (*bytes, (us * 1e6).round() as u64));
                assert_eq!(ours.points, points.collect::<Vec<_>>());
                assert!(!ours.says("source").is_empty());
                seen += 1;
            }
        }
        assert!(seen > 90, "{seen}");
    }
}
