//! Meshes: laid out by `init_device_mesh`, with a collective along each dimension.

use super::fabric::{append_loads, fabric};
use super::machine::{catalog, config, job};
use super::slices::Slices;
use lockstep_core::dtype::Dtype;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Trace, What};
use lockstep_scenarios::GroupsLab;
use lockstep_sim::{SimConfig, simulate};
use lockstep_torch::c10d::Job;
use lockstep_web_protocol::{
    DimAccount, FabricAccount, Machine, MeshAccount, MeshQuestion, Moved, Response,
};
use std::collections::BTreeMap;

/// More ranks than this are not asked for by the page.
const MAX_WORLD_SIZE: u32 = 256;

/// Long enough for whatever can be chosen: a day.
const TIMEOUT_MS: u64 = 86_400_000;

/// The mesh that is asked for, and what the collective costs along each of its dimensions.
pub(super) async fn mesh(question: &MeshQuestion, slices: Slices) -> Result<Response, String> {
    let mut mesh = lay_out(&question.dims)?;
    let dims = mesh.dims.len();
    let mut under = Under::new(question, mesh.coordinates.len() as u32)?;
    // The innermost first, as its collectives come first in a step.
    for index in (0..dims).rev() {
        account(question, &mut under, &mut mesh, index)?;
        let done = (dims - index) as u64;
        slices.give_way(done, dims as u64, "dimensions simulated").await?;
    }
    mesh.fabric = under.map(|under| under.fabric);
    Ok(Response::Meshed(Box::new(mesh)))
}

/// The groups that `init_device_mesh` makes of the dimensions.
fn lay_out(dims: &[(String, u32)]) -> Result<MeshAccount, String> {
    let world = dims.iter().try_fold(1u32, |world, (_, size)| world.checked_mul(*size));
    let world = world.filter(|world| (1..=MAX_WORLD_SIZE).contains(world));
    let world = world.ok_or_else(|| format!("a mesh has 1 to {MAX_WORLD_SIZE} ranks here"))?;
    let names: Vec<&str> = dims.iter().map(|(name, _)| name.as_str()).collect();
    let shape: Vec<u32> = dims.iter().map(|(_, size)| *size).collect();
    let mut mesh = MeshAccount {
        coordinates: vec![Vec::new(); world as usize],
        dims: dims.iter().map(|(name, _)| DimAccount::new(name)).collect(),
        fabric: None,
    };
    let mut job = Job::new("mesh", world).map_err(|error| error.to_string())?;
    job.run(|dist| {
        let laid_out = dist.init_device_mesh("cpu", &shape, Some(&names))?;
        let rank = dist.get_rank(None)?;
        let place = laid_out.get_coordinate().unwrap_or_default().to_vec();
        if let Some(coordinates) = mesh.coordinates.get_mut(rank as usize) {
            *coordinates = place;
        }
        for (dim, group) in mesh.dims.iter_mut().zip(laid_out.get_all_groups()?) {
            let ranks = dist.get_process_group_ranks(group)?;
            // Its first rank speaks for a group.
            if ranks.first().is_some_and(|first| i64::from(first.0) == rank) {
                dim.groups.push(ranks.iter().map(|rank| rank.0).collect());
            }
        }
        Ok(())
    });
    match (0..world).find_map(|rank| job.raised(GlobalRank(rank))) {
        Some(error) => Err(error.to_string()),
        None => Ok(mesh),
    }
}

/// The groups of every dimension, as `init_device_mesh` makes them.
pub fn laid_out(dims: &[(String, u32)]) -> Result<Vec<Vec<Vec<u32>>>, String> {
    Ok(lay_out(dims)?.dims.into_iter().map(|dim| dim.groups).collect())
}

/// The mesh that is asked for, with what the collective costs, in one go.
pub fn mesh_account(question: &MeshQuestion) -> Result<MeshAccount, String> {
    let mut mesh = lay_out(&question.dims)?;
    let mut under = Under::new(question, mesh.coordinates.len() as u32)?;
    for index in (0..mesh.dims.len()).rev() {
        account(question, &mut under, &mut mesh, index)?;
    }
    mesh.fabric = under.map(|under| under.fabric);
    Ok(mesh)
}

/// The cluster under a mesh: its job, and its fabric with the loads so far.
struct Under {
    job: lockstep_clusters::Job<'static>,
    fabric: FabricAccount,
}

impl Under {
    /// The cluster that a question names, if it does.
    fn new(question: &MeshQuestion, world_size: u32) -> Result<Option<Under>, String> {
        let Machine::Cluster { name, ranks_per_node, fault } = question.machine else {
            return Ok(None);
        };
        let catalog = catalog()?;
        let cluster = catalog.cluster(&name).map_err(|error| error.to_string())?;
        let job = job(&name, world_size, ranks_per_node, &fault)?;
        let fabric = fabric(catalog, cluster, &job)?;
        Ok(Some(Under { job, fabric }))
    }
}

/// Simulates the collective in all groups of a dimension at once.
fn account(
    question: &MeshQuestion,
    under: &mut Option<Under>,
    mesh: &mut MeshAccount,
    index: usize,
) -> Result<(), String> {
    let world_size = mesh.coordinates.len() as u32;
    let Some(dim) = mesh.dims.get_mut(index) else { return Ok(()) };
    let ranks_per_node = question.machine.ranks_per_node();
    let groups = dim.groups.iter();
    let lab = GroupsLab {
        world_size,
        ranks_per_node,
        groups: groups.map(|ranks| ranks.iter().copied().map(GlobalRank).collect()).collect(),
        collective: question.collective,
        algorithm: question.algorithm,
        count: question.count,
        dtype: Dtype::Float32,
        timeout_ms: TIMEOUT_MS,
    };
    let plan = lab.plan().map_err(|error| error.to_string())?;
    let topology = question.machine.links();
    let by_messages = SimConfig { topology, max_value_bytes: 0, ..SimConfig::default() };
    let trace = simulate(&plan, &by_messages).map_err(|error| error.to_string())?;
    let end = |trace: &Trace| trace.end.as_ref().map_or(0, |end| end.time_ps);
    dim.time_ps = match under {
        None => end(&trace),
        Some(Under { job, fabric }) => {
            let on = config(&plan, question.machine)?;
            let timed = SimConfig { max_value_bytes: 0, record_messages: false, ..on };
            let trace = simulate(&plan, &timed).map_err(|error| error.to_string())?;
            if let Some(times) = &timed.call_times {
                append_loads(fabric, job, index as u32, (&plan, &trace, times))?;
            }
            end(&trace)
        }
    };
    let mut pairs: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for event in &trace.events {
        let What::Sent { peer, bytes, .. } = event.what else { continue };
        let node = |rank: GlobalRank| rank.0.checked_div(ranks_per_node);
        let switch = event.rank.0.max(peer.0) >= world_size;
        let inside = match switch {
            true => question.algorithm.has_switches_inside_nodes(),
            false => node(event.rank) == node(peer),
        };
        let moved = if inside { &mut dim.inside } else { &mut dim.across };
        *moved = Moved { messages: moved.messages + 1, bytes: moved.bytes.saturating_add(bytes) };
        if switch {
            continue;
        }
        let pair = pairs.entry((event.rank.0, peer.0)).or_default();
        *pair = pair.saturating_add(bytes);
    }
    dim.pairs = pairs.into_iter().map(|((from, to), bytes)| (from, to, bytes)).collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_sim::{Link, Topology};
    use lockstep_web_protocol::FabricPart;

    /// Row by row, as PyTorch's documents show a 2 x 4 mesh: tp is 0 to 3 and 4 to 7, dp the pairs
    /// four apart; with nodes of four, tp stays inside.
    #[test]
    fn tensor_parallel_stays_inside_and_data_parallel_goes_across() {
        let dims = vec![("dp".to_owned(), 2), ("tp".to_owned(), 4)];
        let mut mesh = lay_out(&dims).unwrap();
        assert_eq!(mesh.coordinates[6], [1, 2]);
        assert_eq!(mesh.dims[0].groups, [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(mesh.dims[1].groups, [[0, 1, 2, 3], [4, 5, 6, 7]]);
        let link = Link { latency_ps: 1000, bytes_per_second: 1_000_000_000_000 };
        let question = MeshQuestion {
            dims,
            collective: Collective::AllReduce { op: ReduceOp::Sum },
            algorithm: lockstep_core::schedule::Algorithm::Ring,
            count: 1000,
            machine: Topology::Nodes { ranks_per_node: 4, inside: link, across: link }.into(),
        };
        for index in 0..2 {
            account(&question, &mut None, &mut mesh, index).unwrap();
        }
        let [dp, tp] = &mesh.dims[..] else { panic!("two dimensions") };
        // Two groups of four: 2 (n - 1) steps of a quarter of 4000 bytes from each of 8 ranks.
        assert_eq!((tp.across.messages, tp.inside.bytes), (0, 8 * 6 * 1000));
        assert_eq!((dp.inside.messages, dp.across.bytes), (0, 8 * 2 * 2000));
        // A step: 1000 bytes at 1 TB/s, and the latency.
        assert_eq!(tp.time_ps, 6 * 2000);
        assert_eq!(dp.pairs.len(), 8);
    }

    #[test]
    fn a_mesh_that_cannot_be_is_refused() {
        assert!(lay_out(&[("a".to_owned(), 1 << 20), ("b".to_owned(), 1 << 20)]).is_err());
        assert!(lay_out(&[("a".to_owned(), 2), ("b".to_owned(), 0)]).is_err());
        let twice = [("a".to_owned(), 2), ("a".to_owned(), 2)];
        assert!(lay_out(&twice).unwrap_err().contains("unique"));
    }

    fn on_cluster(dims: &[(&str, u32)], cluster: &str, node: u32, count: u64) -> MeshAccount {
        let name = lockstep_web_protocol::ClusterName::from(cluster).unwrap();
        mesh_account(&MeshQuestion {
            dims: dims.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect(),
            collective: Collective::AllReduce { op: ReduceOp::Sum },
            algorithm: lockstep_core::schedule::Algorithm::Ring,
            count,
            machine: Machine::on_cluster(name, node),
        })
        .unwrap()
    }

    /// On 2 nodes of 8 H100 with a NIC for each GPU: tp loads GPU links and no NIC; dp, a rank on
    /// each node, loads NICs alone.
    #[test]
    fn each_dimension_loads_its_own_links() {
        let mesh = on_cluster(&[("dp", 2), ("tp", 8)], "h100x8", 8, 1 << 26);
        let fabric = mesh.fabric.unwrap();
        assert_eq!((fabric.nodes, fabric.ranks_per_node), (2, 8));
        assert_eq!(fabric.links.len(), 16 + 16);
        let [tp, dp] = &fabric.stretches[..] else { panic!("{:?}", fabric.stretches) };
        assert_eq!((tp.dim, dp.dim), (1, 0));
        assert_eq!((tp.from_ps, tp.to_ps), (0, mesh.dims[1].time_ps));
        assert_eq!(dp.to_ps - dp.from_ps, mesh.dims[0].time_ps);
        for (part, (tp, dp)) in fabric.links.iter().zip(tp.loads.iter().zip(&dp.loads)) {
            match part {
                FabricPart::Gpu { .. } => assert!(*tp > 500 && *dp == 0, "{part:?} {tp} {dp}"),
                FabricPart::Nic { .. } => assert!(*tp == 0 && *dp > 500, "{part:?} {tp} {dp}"),
                FabricPart::Leaf { .. } => panic!("h100x8 has no leaves"),
            }
        }
    }

    /// On p4d two GPUs share a NIC, so two groups of dp do: a NIC that is asked for more than it
    /// carries is full, and its calls take longer than alone.
    #[test]
    fn a_shared_nic_is_full_and_slows_its_groups() {
        let alone = on_cluster(&[("dp", 2)], "p4d", 1, 1 << 26);
        let shared = on_cluster(&[("dp", 2), ("tp", 8)], "p4d", 8, 1 << 26);
        assert!(shared.dims[0].time_ps > alone.dims[0].time_ps * 3 / 2);
        let fabric = shared.fabric.unwrap();
        let across = fabric.stretches.iter().find(|stretch| stretch.dim == 0).unwrap();
        let nics = fabric.links.iter().zip(&across.loads);
        let busy = nics.filter(|(part, _)| matches!(part, FabricPart::Nic { .. }));
        assert!(busy.map(|(_, load)| *load).all(|load| (990..=1000).contains(&load)));
    }
}
