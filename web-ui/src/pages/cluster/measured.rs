//! Tables that nccl-tests measured on a named cluster: files beside the page, fetched when the cluster
//! is shown (`sim/clusters/data/measured`).

use crate::dom;
use lockstep_core::words::counted;
use lockstep_web_protocol::ClusterAccount;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::Response;
use yew::prelude::*;

/// A table of measured times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MeasuredTable {
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
    fn read(text: &str) -> Vec<MeasuredTable> {
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
    fn is_of(&self, collective: &str, ranks: u32, nodes: u32) -> bool {
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

/// The tables of a cluster; none until they are there, and where none ship.
#[hook]
pub(super) fn use_measured(cluster: Option<&str>) -> Rc<Vec<MeasuredTable>> {
    let tables = use_state(|| (String::new(), Rc::new(Vec::new())));
    let set = tables.setter();
    use_effect_with(cluster.map(str::to_owned), move |cluster| {
        if let Some(cluster) = cluster.clone() {
            wasm_bindgen_futures::spawn_local(async move {
                // A file that is not there is a cluster that nobody has measured.
                let text = fetched(&format!("measured/{cluster}.csv")).await.unwrap_or_default();
                set.set((cluster, Rc::new(MeasuredTable::read(&text))));
            });
        }
    });
    match Some(tables.0.as_str()) == cluster {
        true => tables.1.clone(),
        false => Rc::new(Vec::new()),
    }
}

async fn fetched(path: &str) -> Result<String, JsValue> {
    let response: Response =
        JsFuture::from(dom::window().fetch_with_str(path)).await?.dyn_into()?;
    if !response.ok() {
        return Err(JsValue::NULL);
    }
    let text = JsFuture::from(response.text()?).await?;
    Ok(text.as_string().unwrap_or_default())
}

/// The tables of what is shown.
pub(super) fn of_account<'t>(
    tables: &'t [MeasuredTable],
    collective: &str,
    account: &ClusterAccount,
) -> Vec<&'t MeasuredTable> {
    tables.iter().filter(|table| table.is_of(collective, account.ranks, account.nodes)).collect()
}

/// Their points: bytes and picoseconds, and bytes and bus bandwidth in bytes a second.
pub(super) type Dots = (Vec<(u64, u64)>, Vec<(u64, u64)>);

/// The points of tables for both charts, within the sizes of the prediction.
pub(super) fn dots(tables: &[&MeasuredTable], account: &ClusterAccount) -> Dots {
    let sizes = account.points.first().zip(account.points.last());
    let (least, most) = sizes.map_or((0, 0), |(first, last)| (first.bytes, last.bytes));
    // Bus bandwidth is that of a call's bytes and time, times what the collective and its ranks say.
    let factor = account
        .points
        .last()
        .map_or(1.0, |point| point.bus_rate as f64 / (point.algorithm_rate.max(1)) as f64);
    let points = || {
        let all = tables.iter().flat_map(|table| &table.points).copied();
        all.filter(|(bytes, ps)| (least..=most).contains(bytes) && *ps > 0)
    };
    let rate = |(bytes, ps): (u64, u64)| (bytes, (bytes as f64 * factor * 1e12 / ps as f64) as u64);
    (points().collect(), points().map(rate).collect())
}

/// The mean error of the predictions against measured times, and the number of sizes.
fn mean_error(tables: &[&MeasuredTable], account: &ClusterAccount) -> Option<(f64, usize)> {
    let errors = tables.iter().flat_map(|table| &table.points).filter_map(|(bytes, ps)| {
        let predicted = account.points.iter().find(|point| point.bytes == *bytes)?;
        Some((predicted.ps as f64 / *ps as f64 - 1.0).abs())
    });
    let errors: Vec<f64> = errors.collect();
    let sum: f64 = errors.iter().sum();
    (!errors.is_empty()).then(|| (sum / errors.len() as f64, errors.len()))
}

/// The sentence on the measured tables with their sources, or on their absence.
pub(super) fn told(tables: &[&MeasuredTable], account: &ClusterAccount) -> Html {
    if tables.is_empty() {
        let words = match account.extrapolated {
            true => {
                "No table of such a machine with so many ranks was measured: all of this is an extrapolation."
            }
            false => {
                "No table of this cluster with these ranks ships; tables of like machines back the prediction."
            }
        };
        return html! { <p class="muted small-print" data-test="measured" data-tables="0">{ words }</p> };
    }
    let off = mean_error(tables, account).map_or_else(String::new, |(error, sizes)| {
        format!(
            ": the prediction is {:.0}% off in the mean over {}",
            error * 100.0,
            counted(sizes, "size")
        )
    });
    html! {
        <details class="small-print" data-test="measured" data-tables={tables.len().to_string()}>
            <summary>{ format!("Circles: measured by nccl-tests, {}{off}.", counted(tables.len(), "table")) }</summary>
            <ul>{ for tables.iter().map(|table| html! {
                <li>{ table.words() }{ " — " }<span class="mono">{ table.says("source") }</span></li>
            }) }</ul>
        </details>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_clusters::Table;
    use std::path::Path;

    /// The page reads the files that ship as `lockstep time --table` reads tables.
    #[test]
    fn shipped_files_are_read_as_the_command_line_reads_tables() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/clusters/data/measured");
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
