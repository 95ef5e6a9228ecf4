//! Clusters: what NCCL picks on one, and how long it takes.

use super::machine::{catalog, job};
use lockstep_clusters::choice::{alternatives, choose};
use lockstep_clusters::compare::Site;
use lockstep_clusters::job::picoseconds;
use lockstep_clusters::{Calibration, Collective, Settings, Understood};
use lockstep_core::rank::GlobalRank;
use lockstep_web_protocol::{
    AskedRanks, ChoiceBand, ClusterAccount, ClusterPoint, ClusterQuestion, Response, Weighed,
};
use std::collections::BTreeMap;

/// Sizes of the charts, as powers of two: 8 bytes to 16 GiB.
const SIZES: std::ops::RangeInclusive<u32> = 3..=34;

/// Picoseconds of a second.
const PS_PER_SECOND: f64 = 1e12;

/// The answer to a question about a cluster.
pub(super) fn cluster(question: &ClusterQuestion) -> Result<Response, String> {
    account(question).map(|account| Response::Clustered(Box::new(account)))
}

fn account(question: &ClusterQuestion) -> Result<ClusterAccount, String> {
    let catalog = catalog()?;
    let found = catalog.cluster_or_relative(&question.cluster);
    let (cluster, taken_for) = found.map_err(|error| error.to_string())?;
    let collective: Collective = question.collective.parse().map_err(|error| format!("{error}"))?;
    let per_node = question.per_node.unwrap_or(cluster.gpus_per_node);
    let (placement, nodes) = match question.ranks {
        AskedRanks::Nodes(nodes) => {
            let placed = catalog.place(&cluster, nodes.into(), per_node);
            (placed.map_err(|error| error.to_string())?, nodes)
        }
        AskedRanks::InAll(world_size) => {
            let job = job(&cluster.name, world_size, per_node)?;
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
    let points = SIZES.map(|shift| point(&site, 1 << shift));
    Ok(ClusterAccount {
        name: site.cluster.name.clone(),
        title: site.cluster.title.clone(),
        gpus_per_node: site.cluster.gpus_per_node,
        per_node,
        nodes,
        ranks: site.placement.ranks,
        taken_for: site.understood.taken_for.clone(),
        sources: catalog.sources(&site.cluster),
        extrapolated: site.extrapolated(),
        points: points.collect::<Result<_, _>>()?,
        bands: bands(&site)?,
        at: point(&site, question.bytes)?,
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
    // Where a choice begins, and which.
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
        others: others.into_iter().map(|(name, ps)| (name.to_owned(), ps)).collect(),
    })
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
        ClusterQuestion { cluster, collective, ranks, per_node: None, bytes: 1 << 21 }
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
}
