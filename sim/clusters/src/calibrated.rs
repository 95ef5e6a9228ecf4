//! A cluster corrected by times that were measured on it: tables of several collectives, sizes and
//! numbers of nodes at once.

use crate::catalog::{Catalog, MOST_GIVEN};
use crate::cluster::{Cluster, Given, Measured};
use crate::compare::{CompareError, Site, mean_error, median};
use crate::given::{Calibration, Point, check_point};
use crate::placement::Placement;
use crate::recognised::Understood;
use crate::settings::Settings;
use crate::table::Table;
use std::collections::BTreeMap;

/// A corrected cluster, and what the correction is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// The cluster with the measured points in it.
    pub cluster: Cluster,
    /// A table each.
    pub checks: Vec<Check>,
    /// Points that were measured, and those that the file holds.
    pub points: [usize; 2],
    /// Tables that contradict each other, in sentences.
    pub notes: Vec<String>,
}

/// The errors of one table: mean over its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Nodes, and ranks on each.
    pub nodes: [u32; 2],
    /// The collective's name.
    pub collective: &'static str,
    /// Sizes.
    pub sizes: usize,
    /// Of the cluster as it was.
    pub before: f64,
    /// Of sizes that were held back, when every second size of every table was given; none of a
    /// single size.
    pub held_back: Option<f64>,
}

/// Corrects `base` by `tables`.
///
/// # Errors
/// If the cluster does not hold the ranks of a table, or a time is faster than its links.
pub fn calibrated(
    catalog: &Catalog,
    base: &Cluster,
    tables: &[Table],
) -> Result<Calibrated, CompareError> {
    let settings = Settings::default();
    let mut placed: Vec<(&Table, Placement)> = Vec::new();
    for table in tables {
        let per_node = table.ranks_per_node();
        let placement = catalog.place(base, u64::from(table.nodes), per_node)?;
        for &(bytes, us) in &table.points {
            check_point(&point(table, &placement, bytes, us))?;
        }
        placed.push((table, placement));
    }
    // Sizes in the order of the table: the first, third, … show what the others are worth.
    let every_second = |odd: usize| {
        let of_table = placed.iter().flat_map(move |(table, placement)| {
            let points = table.points.iter().skip(odd).step_by(2);
            points.map(|(bytes, us)| point(table, placement, *bytes, *us))
        });
        of_table.collect::<Vec<Point>>()
    };
    let halves = [thinned(every_second(1)), thinned(every_second(0))]
        .map(|points| Calibration::of_points(&settings, &points));
    let [by_second, by_first] = halves;
    let halves = [by_second?, by_first?];
    let plain = Calibration::default();
    let mut checks = Vec::new();
    for (table, placement) in &placed {
        let (cluster, placement) = (base.clone(), placement.clone());
        let site = Site {
            cluster,
            placement,
            settings: settings.clone(),
            collective: table.collective,
            understood: Understood::default(),
        };
        let before = mean_error(&site.compare(table, &plain)?, |_| true).unwrap_or(0.0);
        let mut judged = Vec::new();
        for (half, calibration) in halves.iter().enumerate() {
            let compared = site.compare(table, calibration)?;
            judged.extend(compared.into_iter().skip(half).step_by(2));
        }
        let held_back = mean_error(&judged, |_| true).filter(|_| table.points.len() > 1);
        let nodes = [table.nodes, table.ranks_per_node()];
        let (collective, sizes) = (table.collective.name(), table.points.len());
        checks.push(Check { nodes, collective, sizes, before, held_back });
    }
    let all: Vec<(&Table, u64, f64)> = placed
        .iter()
        .flat_map(|(table, _)| table.points.iter().map(|(bytes, us)| (*table, *bytes, *us)))
        .collect();
    let count = all.len();
    let given = given(&thinned(all));
    let points = [count, given.iter().map(|given| given.points.len()).sum()];
    let mut cluster = Cluster { given, ..base.clone().without_names() };
    for (table, placement) in &placed {
        let sizes = table.points.iter().map(|(bytes, _)| (*bytes).max(1));
        let bytes = sizes.clone().min().zip(sizes.max()).map(|(least, most)| [least, most]);
        backed(&mut cluster.measured, table.collective.name(), placement.domains, bytes);
    }
    Ok(Calibrated { cluster, checks, points, notes: disagreements(tables) })
}

fn point(table: &Table, placement: &Placement, bytes: u64, us: f64) -> Point {
    Point { placement: placement.clone(), collective: table.collective, bytes, us }
}

/// Points at equal distances, no more than a cluster may have.
fn thinned<T>(points: Vec<T>) -> Vec<T> {
    let stride = points.len().div_ceil(MOST_GIVEN).max(1);
    points.into_iter().step_by(stride).collect()
}

/// The points as a cluster's file has them; the mean of those that were measured twice.
fn given(points: &[(&Table, u64, f64)]) -> Vec<Given> {
    let mut groups: BTreeMap<(&str, u32, u32), BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for (table, bytes, us) in points {
        let key = (table.collective.name(), table.nodes, table.ranks_per_node());
        groups.entry(key).or_default().entry(*bytes).or_default().push(*us);
    }
    let each = groups.into_iter().map(|((collective, nodes, ranks_per_node), sizes)| Given {
        collective: collective.to_owned(),
        nodes,
        ranks_per_node,
        points: sizes
            .into_iter()
            .map(|(bytes, times)| {
                let count = times.iter().fold(0.0, |count, _| count + 1.0);
                (bytes, times.iter().sum::<f64>() / count)
            })
            .collect(),
    });
    each.collect()
}

/// Times of the same call that two tables measured, as a ratio, from which on the tables disagree.
const DISAGREE: f64 = 1.5;

/// The pairs of tables of the same call whose times differ, in sentences: their median ratio over the sizes that
/// both have.
fn disagreements(tables: &[Table]) -> Vec<String> {
    let mut notes = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        for (before, other) in tables[..at].iter().enumerate() {
            let call = |it: &Table| (it.collective, it.nodes, it.gpus);
            if call(other) != call(table) {
                continue;
            }
            let ratios = table.points.iter().filter_map(|(bytes, us)| {
                let same = other.points.iter().find(|(size, _)| size == bytes)?;
                Some(us / same.1)
            });
            let Some(ratio) = median(ratios.collect()) else { continue };
            if (1.0 / DISAGREE..=DISAGREE).contains(&ratio) {
                continue;
            }
            let (times, slower, faster) = match ratio > 1.0 {
                true => (ratio, at, before),
                false => (1.0 / ratio, before, at),
            };
            notes.push(format!(
                "the tables disagree: the times of {} on {} nodes of {} in table {} are {times:.1} times those in \
                 table {}; the cluster takes their mean, which neither machine has. Leave one of them out",
                table.collective,
                table.nodes,
                table.ranks_per_node(),
                slower + 1,
                faster + 1
            ));
        }
    }
    notes
}

/// Notes that a collective was measured on so many domains, and with which sizes.
fn backed(measured: &mut Vec<Measured>, collective: &str, domains: u32, bytes: Option<[u64; 2]>) {
    let same = |it: &&mut Measured| it.collective == collective && it.nodes.contains(&domains);
    let known = measured.iter_mut().find(same).filter(|known| known.nodes.len() == 1);
    let wider = |[least, most]: [u64; 2], [other_least, other_most]: [u64; 2]| {
        [least.min(other_least), most.max(other_most)]
    };
    match known {
        Some(known) => known.bytes = known.bytes.zip(bytes).map(|(one, other)| wider(one, other)),
        None => measured.push(Measured {
            collective: collective.to_owned(),
            nodes: vec![domains],
            bytes,
        }),
    }
}
