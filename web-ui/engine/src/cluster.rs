//! Clusters: what NCCL picks on one, and how long it takes.

use super::machine::{catalog, job};
use super::measured::{MeasuredText, fetched, measured};
use lockstep_clusters::choice::{alternatives, choose};
use lockstep_clusters::compare::Site;
use lockstep_clusters::fault::FabricFault;
use lockstep_clusters::job::picoseconds;
use lockstep_clusters::{Calibration, Collective, Settings, Understood};
use lockstep_core::rank::GlobalRank;
use lockstep_web_protocol::{
    AskedRanks, ChoiceBand, ClusterAccount, ClusterPoint, ClusterQuestion, MeasuredPoints,
    Response, Weighed,
};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Sizes of the charts, as powers of two: 8 bytes to 16 GiB.
const SIZES: std::ops::RangeInclusive<u32> = 3..=34;

/// Picoseconds of a second.
const PS_PER_SECOND: f64 = 1e12;

/// The answer to a question about a cluster, beside what was measured there, and the text of its measured tables. `known`
/// is the text of the cluster that was asked about before.
pub(super) async fn cluster(
    question: &ClusterQuestion,
    known: Option<MeasuredText>,
) -> Result<(Response, MeasuredText), String> {
    let mut account = account(question)?;
    let text = match known.filter(|(name, _)| *name == account.name) {
        Some(known) => known,
        None => (account.name.clone(), fetched(&account.name).await.into()),
    };
    account.measured = measured(&text.1, question, &account);
    Ok((Response::Clustered(Box::new(account)), text))
}

fn account(question: &ClusterQuestion) -> Result<ClusterAccount, String> {
    let catalog = catalog()?;
    let found = catalog.cluster_or_relative(&question.cluster);
    let (cluster, taken_for) = found.map_err(|error| error.to_string())?;
    let collective: Collective = question.collective.parse().map_err(|error| format!("{error}"))?;
    let per_node = question.per_node.unwrap_or(cluster.gpus_per_node);
    let fault = question.fault.as_str();
    let ranks = match question.ranks {
        // Faults are of a job's ranks.
        AskedRanks::Nodes(nodes) if !fault.is_empty() => {
            AskedRanks::InAll(nodes.saturating_mul(per_node))
        }
        ranks => ranks,
    };
    let (placement, nodes) = match ranks {
        AskedRanks::Nodes(nodes) => {
            let placed = catalog.place(&cluster, nodes.into(), per_node);
            (placed.map_err(|error| error.to_string())?, nodes)
        }
        AskedRanks::InAll(world_size) => {
            let job = job(&cluster.name, world_size, per_node, fault)?;
            let members: Vec<GlobalRank> = (0..world_size).map(GlobalRank).collect();
            (job.placement(&members).map_err(|error| error.to_string())?, job.nodes)
        }
    };
    let site = Site {
        cluster,
        placement,
        settings: Settings::default(),
        collective,
        understood: Understood { taken_for, ..Understood::default() },
    };
    // Nobody has measured a cluster with this fault, unless it changes no collective.
    let unmeasured = match fault.parse::<FabricFault>() {
        Ok(FabricFault::Gpu { .. }) => false,
        Ok(FabricFault::Nic { .. } | FabricFault::Plane { .. } | FabricFault::Spine { .. }) => {
            nodes > 1
        }
        _ => !fault.is_empty(),
    };
    let point = |bytes: u64| {
        point(&site, bytes)
            .map(|point| ClusterPoint { extrapolated: point.extrapolated || unmeasured, ..point })
    };
    let points: Vec<ClusterPoint> =
        SIZES.map(|shift| point(1 << shift)).collect::<Result<_, _>>()?;
    let bands = bands(&site)?;
    Ok(ClusterAccount {
        name: site.cluster.name.clone(),
        title: site.cluster.title.clone(),
        gpus_per_node: site.cluster.gpus_per_node,
        per_node,
        nodes,
        ranks: site.placement.ranks,
        taken_for: site.understood.taken_for.clone(),
        sources: catalog.sources(&site.cluster),
        extrapolated: site.extrapolated() || unmeasured,
        not_backed: not_backed(&points),
        measured: MeasuredPoints::default(),
        csv: csv(&site, (nodes, fault, unmeasured), &points),
        beyond: beyond(&points),
        points,
        switches: switches(&bands),
        bands,
        at: point(question.bytes)?,
        weighed: weighed(&site, question.bytes),
    })
}

/// A choice: algorithm and protocol.
type Picked = (&'static str, &'static str);

/// NCCL's choices by size, with the byte at which each begins.
fn bands(site: &Site) -> Result<Vec<ChoiceBand>, String> {
    let picked = |bytes: u64| -> Result<Picked, String> {
        choose(&site.placement, &site.settings, site.collective, bytes)
            .map(|(algorithm, protocol, _)| (algorithm.name(), protocol.name()))
            .map_err(|error| error.to_string())
    };
    let sizes: Vec<u64> = SIZES.map(|shift| 1u64 << shift).collect();
    let (Some(&least), Some(&most)) = (sizes.first(), sizes.last()) else { return Ok(Vec::new()) };
    // The size from which a choice holds, and the choice.
    let mut begins = vec![(least, picked(least)?)];
    for pair in sizes.windows(2) {
        changes((pair[0], picked(pair[0])?), (pair[1], picked(pair[1])?), &picked, &mut begins)?;
    }
    let ends = begins.iter().skip(1).map(|(from, _)| from - 1).chain([most]);
    let bands = begins.iter().zip(ends).map(|((from, (algorithm, protocol)), to)| ChoiceBand {
        from: *from,
        to,
        algorithm: (*algorithm).to_owned(),
        protocol: (*protocol).to_owned(),
    });
    Ok(bands.collect())
}

/// The sizes above `low`, up to `high`, from which another choice is taken, by halving. A choice that
/// is taken in between only, and not at the middle, is not found.
fn changes(
    low: (u64, Picked),
    high: (u64, Picked),
    picked: &impl Fn(u64) -> Result<Picked, String>,
    begins: &mut Vec<(u64, Picked)>,
) -> Result<(), String> {
    if low.1 == high.1 {
        return Ok(());
    }
    if high.0 - low.0 == 1 {
        begins.push(high);
        return Ok(());
    }
    let at = low.0 + (high.0 - low.0) / 2;
    let middle = (at, picked(at)?);
    changes(low, middle, picked, begins)?;
    changes(middle, high, picked, begins)
}

fn point(site: &Site, bytes: u64) -> Result<ClusterPoint, String> {
    let it = site.predict(bytes, &Calibration::default()).map_err(|error| error.to_string())?;
    let ps = picoseconds(it.time_us);
    let rate = bytes as f64 * PS_PER_SECOND / ps.max(1) as f64;
    let mut others: BTreeMap<&str, u64> = BTreeMap::new();
    for one in alternatives(&site.placement, &site.settings, site.collective, bytes) {
        let takes = picoseconds(one.time_us);
        let best = others.entry(one.algorithm.name()).or_insert(takes);
        *best = takes.min(*best);
    }
    Ok(ClusterPoint {
        bytes,
        ps,
        algorithm_rate: rate as u64,
        bus_rate: (rate * site.collective.bus_factor(site.placement.ranks)) as u64,
        algorithm: it.algorithm.name().to_owned(),
        protocol: it.protocol.name().to_owned(),
        channels: it.channels,
        extrapolated: site.extrapolated_at(bytes),
        others: others.into_iter().map(|(name, ps)| (name.to_owned(), ps)).collect(),
    })
}

/// The sentence on the sizes that no measured table backs.
fn not_backed(points: &[ClusterPoint]) -> Option<String> {
    let backed = || points.iter().filter(|point| !point.extrapolated).map(|point| point.bytes);
    let (Some(least), Some(most)) = (backed().min(), backed().max()) else {
        return Some(
            "Extrapolated: no measured table of such a machine backs these times.".to_owned(),
        );
    };
    let some = points.iter().any(|point| point.extrapolated);
    some.then(|| {
        format!(
            "Measured tables back the times from {} to {}; what is dashed is extrapolated.",
            size_text(least),
            size_text(most)
        )
    })
}

/// The stretches of sizes that no measured table backs.
fn beyond(points: &[ClusterPoint]) -> Vec<(u64, u64)> {
    let parts = points.chunk_by(|a, b| a.extrapolated == b.extrapolated);
    let ends = |part: &[ClusterPoint]| {
        let (first, last) = part.first().zip(part.last())?;
        first.extrapolated.then_some((first.bytes, last.bytes))
    };
    parts.filter_map(ends).collect()
}

/// NCCL's choices by size, in a sentence.
fn switches(bands: &[ChoiceBand]) -> String {
    let last = bands.len().saturating_sub(1);
    if bands.iter().any(|band| band.algorithm == "P2P") {
        return "It is made of sends and receives: NCCL has no choice.".to_owned();
    }
    let words = bands.iter().enumerate().map(|(at, band)| {
        let picked = format!("{} with {}", band.algorithm, band.protocol);
        match at {
            0 if last == 0 => format!("{picked} at every size"),
            0 => picked,
            _ => format!("{picked} from {}", exact(band.from)),
        }
    });
    format!("NCCL picks {}.", words.collect::<Vec<_>>().join(", then "))
}

/// A size as it is told, and its bytes where that rounds.
fn exact(bytes: u64) -> String {
    let told = size_text(bytes);
    match bytes.is_power_of_two() || bytes < 1024 {
        true => told,
        false => format!("{told} ({bytes} B)"),
    }
}

/// `64 KiB`, `2.4 MiB`.
fn size_text(bytes: u64) -> String {
    let (unit, of) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..1_048_576 => ("KiB", 1u64 << 10),
        1_048_576..1_073_741_824 => ("MiB", 1 << 20),
        _ => ("GiB", 1 << 30),
    };
    format!("{:.1} {unit}", bytes as f64 / of as f64).replace(".0 KiB", " KiB")
}

/// Every size as a line, below what it is of.
fn csv(
    site: &Site,
    (nodes, fault, unmeasured): (u32, &str, bool),
    points: &[ClusterPoint],
) -> String {
    let mut text = format!(
        "# collective: {}\n# gpus: {}\n# nodes: {nodes}\n# kind: {}\n# predicted{}\n\
         bytes,time_us,algbw_GBps,busbw_GBps,algorithm,protocol,channels,extrapolated\n",
        site.collective.name(),
        site.placement.ranks,
        site.cluster.name,
        format_args!(
            "{}{}",
            if unmeasured || site.extrapolated() { ", extrapolated" } else { "" },
            if fault.is_empty() { String::new() } else { format!(", with {fault}") },
        )
    );
    for point in points {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{}",
            point.bytes,
            point.ps as f64 / 1e6,
            point.algorithm_rate as f64 / 1e9,
            point.bus_rate as f64 / 1e9,
            point.algorithm,
            point.protocol,
            point.channels,
            if point.extrapolated { "yes" } else { "no" }
        );
    }
    text
}

/// The choices that NCCL's tuner weighs, the cheapest first.
fn weighed(site: &Site, bytes: u64) -> Vec<Weighed> {
    let all = alternatives(&site.placement, &site.settings, site.collective, bytes);
    let mut all: Vec<Weighed> = all
        .into_iter()
        .map(|one| Weighed {
            algorithm: one.algorithm.name().to_owned(),
            protocol: one.protocol.name().to_owned(),
            expected_ps: picoseconds(one.believed_us),
            predicted_ps: picoseconds(one.time_us),
        })
        .collect();
    all.sort_by_key(|one| one.expected_ps);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(cluster: &str, nodes: u32) -> ClusterQuestion {
        let (cluster, collective) = (cluster.to_owned(), "all_reduce".to_owned());
        let ranks = AskedRanks::Nodes(nodes);
        ClusterQuestion {
            cluster,
            collective,
            ranks,
            per_node: None,
            fault: String::new(),
            bytes: 1 << 21,
        }
    }

    /// The table that is saved is one that `lockstep time --table` reads, and it says what is extrapolated, as the
    /// curves do.
    #[test]
    fn a_saved_table_is_read_again() {
        let account = account(&question("4090x8-pcie", 1)).unwrap();
        let table = lockstep_clusters::Table::parse(&account.csv).unwrap();
        assert_eq!((table.gpus, table.nodes, table.kind.as_str()), (8, 1, "4090x8-pcie"));
        let points = account.points.iter().map(|point| (point.bytes, point.ps as f64 / 1e6));
        assert_eq!(table.points, points.collect::<Vec<_>>());
        let marked = account.csv.lines().filter(|line| line.ends_with(",yes")).count();
        let beyond = account.points.iter().filter(|point| point.extrapolated).count();
        assert!(beyond > 0 && beyond < account.points.len(), "{beyond}");
        assert_eq!(marked, beyond);
        assert!(account.not_backed.unwrap().contains("dashed"));
        let nowhere = super::account(&question("h100x8", 1000)).unwrap();
        assert!(nowhere.extrapolated && nowhere.points.iter().all(|point| point.extrapolated));
    }

    /// NCCL's log on 8 H200 said: Ring with LL up to 1 MiB, NVLS with Simple from 2 MiB up.
    #[test]
    fn the_choices_on_eight_h200_are_the_logged_ones() {
        let account = account(&question("h200x8", 1)).unwrap();
        assert_eq!((account.ranks, account.extrapolated), (8, false));
        for point in account.points.iter().filter(|point| point.bytes >= 1 << 15) {
            let known = if point.bytes < 1 << 21 { ("Ring", "LL") } else { ("NVLS", "Simple") };
            assert_eq!((point.algorithm.as_str(), point.protocol.as_str()), known, "{point:?}");
            assert!(point.others.iter().any(|(name, _)| *name == point.algorithm));
        }
        assert_eq!(account.weighed[0].algorithm, "NVLS");
        assert!(account.weighed.windows(2).all(|pair| pair[0].expected_ps <= pair[1].expected_ps));
    }

    #[test]
    fn every_cluster_answers_and_what_cannot_be_is_said() {
        let known = crate::machine::known_clusters().unwrap();
        assert!(known.len() > 40);
        for cluster in &known {
            let name = cluster.name.as_str();
            let alone = account(&question(name, 1));
            assert!(alone.is_ok() || alone.unwrap_err().contains("one rank alone"), "{name}");
        }
        assert!(account(&question("h100x9", 1)).unwrap_err().contains("h100x8"));
        let relative = account(&question("H20-SXM", 1)).unwrap();
        assert!(relative.extrapolated && relative.name == "h200x8");
        assert!(
            relative.taken_for.unwrap().starts_with("H20-SXM is not known, and taken for h200x8")
        );
        assert!(account(&question("4090x8-pcie", 2)).unwrap_err().contains("without a network"));
    }

    /// Ranks that fill nodes are placed as a simulation places them.
    #[test]
    fn ranks_in_all_fill_nodes() {
        let full = account(&question("h100x8", 2)).unwrap();
        let in_all = |world: u32| {
            let question =
                ClusterQuestion { ranks: AskedRanks::InAll(world), ..question("h100x8", 2) };
            account(&question).unwrap()
        };
        assert_eq!(in_all(16), full);
        assert_eq!((in_all(12).ranks, in_all(12).nodes, in_all(12).per_node), (12, 2, 8));
    }

    /// A fault slows the sizes that its links carry, and is refused where the job has no such place.
    #[test]
    fn a_fault_of_the_fabric_slows_the_call() {
        let with = |fault: &str| {
            account(&ClusterQuestion { fault: fault.to_owned(), ..question("h100x8", 2) })
        };
        let (healthy, congested) = (with("").unwrap(), with("spine:rate=0.25").unwrap());
        let last = |account: &ClusterAccount| account.points.last().unwrap().ps;
        assert!(last(&congested) > 2 * last(&healthy));
        assert_eq!(congested.ranks, healthy.ranks);
        assert!(with("gpu:rank=99,rate=0.5").unwrap_err().contains("16 ranks"));
    }

    /// Each band begins at the very byte at which NCCL's choice changes, and they leave no gap.
    #[test]
    fn bands_begin_where_the_choice_changes() {
        for (cluster, nodes) in [("h200x8", 1), ("dgx-a100", 1), ("h100x8", 4), ("mi300x", 1)] {
            let question = question(cluster, nodes);
            let bands = account(&question).unwrap().bands;
            assert!(bands.len() > 1, "{cluster}: {bands:?}");
            let picked = |bytes: u64| {
                let at = account(&ClusterQuestion { bytes, ..question.clone() }).unwrap().at;
                (at.algorithm, at.protocol)
            };
            for pair in bands.windows(2) {
                let of = |band: &ChoiceBand| (band.algorithm.clone(), band.protocol.clone());
                assert_eq!(pair[0].to + 1, pair[1].from);
                assert_eq!(picked(pair[0].to), of(&pair[0]), "{cluster}: {pair:?}");
                assert_eq!(picked(pair[1].from), of(&pair[1]), "{cluster}: {pair:?}");
            }
        }
    }

    fn band(from: u64, to: u64, algorithm: &str, protocol: &str) -> ChoiceBand {
        ChoiceBand { from, to, algorithm: algorithm.into(), protocol: protocol.into() }
    }

    #[test]
    fn switching_points_are_told() {
        let bands = [
            band(8, 1_500_000, "Ring", "LL"),
            band(1_500_001, (2 << 20) - 1, "Ring", "Simple"),
            band(2 << 20, 1 << 34, "NVLS", "Simple"),
        ];
        assert_eq!(
            switches(&bands),
            "NCCL picks Ring with LL, then Ring with Simple from 1.4 MiB (1500001 B), then NVLS with \
             Simple from 2.0 MiB."
        );
        assert_eq!(switches(&bands[2..]), "NCCL picks NVLS with Simple at every size.");
        let sends = [band(8, 1 << 34, "P2P", "Simple")];
        assert!(switches(&sends).contains("no choice"));
    }
}
