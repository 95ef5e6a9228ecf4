//! The fabric of a job on a named cluster: its links, and how busy each is while a plan's collectives
//! are in flight.

use lockstep_clusters::card::Intra;
use lockstep_clusters::{Catalog, Cluster, FabricLink, Job};
use lockstep_core::group::GroupId;
use lockstep_core::plan::{CallTimes, LinkLoad, Plan, TimedCall};
use lockstep_core::trace::{CallLog, Trace};
use lockstep_web_protocol::{FabricAccount, FabricPart, LoadStretch};
use std::collections::BTreeMap;

/// A link that carries all it can, in thousandths.
const FULL: u64 = 1000;

/// The fabric of a job, without loads.
pub(super) fn fabric(
    catalog: &Catalog,
    cluster: &Cluster,
    job: &Job<'_>,
) -> Result<FabricAccount, String> {
    let card = catalog.card(&cluster.card).map_err(|error| error.to_string())?;
    let inside = match card.intra {
        Intra::Nvswitch => "NVLink switch",
        Intra::Mesh => "NVLink from GPU to GPU",
        Intra::Pcie => "PCIe",
        Intra::Xgmi => "Infinity Fabric from GPU to GPU",
    };
    let inside = match cluster.domain_gpus.is_some_and(|gpus| gpus > cluster.gpus_per_node) {
        true => format!("{inside} of the rack"),
        false => inside.to_owned(),
    };
    let network = cluster.network.as_ref().filter(|_| job.nodes > 1).map(|network| {
        let nics = cluster.nics_per_node;
        format!("{network}, {nics} NICs a node of {} Gb/s", cluster.nic_gbps)
    });
    let fabric = job.fabric();
    let links = fabric.links().filter(|link| network.is_some() || is_gpu(*link));
    let links = links.map(part).collect();
    let nodes_per_leaf = cluster.nodes_per_leaf.filter(|_| job.nodes > 1);
    Ok(FabricAccount {
        title: cluster.title.clone(),
        ranks_per_node: job.ranks_per_node,
        nodes: job.nodes,
        inside,
        network,
        nodes_per_leaf,
        planes: fabric.planes.count(),
        links,
        stretches: Vec::new(),
    })
}

fn is_gpu(link: FabricLink) -> bool {
    matches!(link, FabricLink::Gpu { .. })
}

fn part(link: FabricLink) -> FabricPart {
    match link {
        FabricLink::Gpu { rank } => FabricPart::Gpu { rank },
        FabricLink::Nic { node, rail } => FabricPart::Nic { node, rail },
        FabricLink::Leaf { leaf, plane } => FabricPart::Leaf { leaf, plane },
    }
}

/// A collective in flight, and its links.
struct Flight<'l> {
    from_ps: u64,
    to_ps: u64,
    /// Its time if nothing else loaded its links, in picoseconds.
    alone_ps: u64,
    loads: &'l [LinkLoad],
}

/// Appends the loads of a simulated plan, whose collectives took `times` each if they were alone, to
/// those of what came before.
///
/// A call that others slowed is slower on all of its links: over its time it loads them by so much
/// less.
pub(super) fn append_loads(
    account: &mut FabricAccount,
    job: &Job<'_>,
    dim: u32,
    (plan, trace, times): (&Plan, &Trace, &CallTimes),
) -> Result<(), String> {
    let loads = job.loads(plan).map_err(|error| error.to_string())?;
    let mut of_group: BTreeMap<GroupId, (TimedCall, &[LinkLoad])> = BTreeMap::new();
    for (call, loads) in &loads {
        of_group.insert(call.group, (*call, loads));
    }
    let mut spans: BTreeMap<(GroupId, Option<u64>), (u64, u64)> = BTreeMap::new();
    let log = CallLog::of(trace);
    for record in log.logs().flat_map(|(_, log)| &log.calls) {
        let Some(done) = record.completed_ps else { continue };
        let begun = record.started_ps.unwrap_or(record.scheduled_ps);
        let span = spans.entry((record.call.group, record.seq)).or_insert((begun, done));
        // A call is carried out from the moment at which its last rank has begun it.
        *span = (span.0.max(begun), span.1.max(done));
    }
    let flights: Vec<Flight<'_>> = spans
        .iter()
        .filter_map(|((group, _), (from_ps, to_ps))| {
            let (call, loads) = of_group.get(group)?;
            let alone_ps = times.collective(call)?;
            Some(Flight { from_ps: *from_ps, to_ps: *to_ps, alone_ps, loads })
        })
        .collect();
    let mut cuts: Vec<u64> = flights.iter().flat_map(|it| [it.from_ps, it.to_ps]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let before = account.stretches.last().map_or(0, |last| last.to_ps);
    for cut in cuts.windows(2) {
        let (from, to) = (cut[0], cut[1]);
        let within = flights.iter().filter(|it| it.from_ps <= from && it.to_ps >= to);
        let loads = loads_of(account, job, within);
        account.stretches.push(LoadStretch {
            dim,
            from_ps: before.saturating_add(from),
            to_ps: before.saturating_add(to),
            loads,
        });
    }
    Ok(())
}

/// The load of each link of the fabric under these calls, in thousandths.
fn loads_of<'f>(
    account: &FabricAccount,
    job: &Job<'_>,
    flights: impl Iterator<Item = &'f Flight<'f>>,
) -> Vec<u16> {
    let mut busy: BTreeMap<u32, u64> = BTreeMap::new();
    for flight in flights {
        let took = flight.to_ps.saturating_sub(flight.from_ps).max(flight.alone_ps).max(1);
        for load in flight.loads {
            let alone = u128::from(load.load) * u128::from(FULL) * u128::from(flight.alone_ps);
            let share = alone / (u128::from(LinkLoad::FULL) * u128::from(took));
            *busy.entry(load.link).or_default() += u64::try_from(share).unwrap_or(FULL);
        }
    }
    let fabric = job.fabric();
    let of_part = |part: &FabricPart| {
        let link = match *part {
            FabricPart::Gpu { rank } => FabricLink::Gpu { rank },
            FabricPart::Nic { node, rail } => FabricLink::Nic { node, rail },
            FabricPart::Leaf { leaf, plane } => FabricLink::Leaf { leaf, plane },
        };
        busy.get(&fabric.number(link)).map_or(0, |load| (*load).min(FULL) as u16)
    };
    account.links.iter().map(of_part).collect()
}
