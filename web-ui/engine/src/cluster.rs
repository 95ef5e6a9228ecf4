//! Clusters: what NCCL picks on one, and how long it takes.

use lockstep_clusters::choice::alternatives;
use lockstep_clusters::compare::Site;
use lockstep_clusters::job::picoseconds;
use lockstep_clusters::{Calibration, Catalog, Collective, Settings};
use lockstep_web_protocol::{ClusterAccount, ClusterPoint, ClusterQuestion, Response, Weighed};
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
    let catalog = Catalog::shipped().map_err(|error| error.to_string())?;
    let cluster = catalog.cluster(&question.cluster).map_err(|error| error.to_string())?.clone();
    let collective: Collective = question.collective.parse().map_err(|error| format!("{error}"))?;
    let per_node = question.per_node.unwrap_or(cluster.gpus_per_node);
    let placement = catalog.place(&cluster, question.nodes.into(), per_node);
    let placement = placement.map_err(|error| error.to_string())?;
    let site = Site { cluster, placement, settings: Settings::default(), collective };
    let points = SIZES.map(|shift| point(&site, 1 << shift));
    let mut known: Vec<(String, String, bool)> = catalog
        .clusters
        .iter()
        .map(|it| (it.name.clone(), it.title.clone(), !it.measured.is_empty()))
        .collect();
    known.sort();
    Ok(ClusterAccount {
        known,
        name: site.cluster.name.clone(),
        title: site.cluster.title.clone(),
        gpus_per_node: site.cluster.gpus_per_node,
        per_node,
        ranks: site.placement.ranks,
        extrapolated: site.extrapolated(),
        points: points.collect::<Result<_, _>>()?,
        weighed: weighed(&site, question.bytes),
    })
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
        ClusterQuestion { cluster, collective, nodes, per_node: None, bytes: 1 << 21 }
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
        let known = account(&question("h100", 2)).unwrap().known;
        assert!(known.len() > 40);
        for (name, ..) in &known {
            let alone = account(&question(name, 1));
            assert!(alone.is_ok() || alone.unwrap_err().contains("one rank alone"), "{name}");
        }
        assert!(account(&question("h100x9", 1)).unwrap_err().contains("h100x8"));
        assert!(account(&question("4090x8-pcie", 2)).unwrap_err().contains("without a network"));
    }
}
