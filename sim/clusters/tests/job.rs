//! Jobs on clusters: where groups sit, what their calls take, and what faults of the fabric do.

#![allow(clippy::unwrap_used, missing_docs)]

use lockstep_clusters::fault::FabricFaultError;

use lockstep_clusters::{
    Calibration, Catalog, Collective as NcclCall, FabricFault, FabricLink, Job, JobError, Settings,
    predict,
};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Fill, LinkLoad, Plan, PlanBuilder, TimedCall, TimedTransfer};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use proptest::prelude::*;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };
/// 16 GiB, where latencies count for little.
const COUNT: u64 = 1 << 32;

/// 16 ranks: all, each half, and the first ranks of both halves reduce the same; rank 0 sends to 1
/// and to 8.
fn plan() -> (Plan, [GroupId; 4]) {
    let mut plan = PlanBuilder::new("groups", 16, BackendName::Nccl).unwrap();
    let mut group = |ranks: &[u32]| {
        let ranks = ranks.iter().copied().map(GlobalRank).collect();
        plan.group(ProcessGroup::new("g", BackendName::Nccl, ranks).unwrap())
    };
    let halves = [group(&[0, 1, 2, 3, 4, 5, 6, 7]), group(&[8, 9, 10, 11, 12, 13, 14, 15])];
    let pair = group(&[0, 8]);
    let x = plan.tensor("x", Dtype::Float32, COUNT, Fill::Zeros);
    let plan = plan.every_rank(|rank, program| {
        program.collective(GroupId::WORLD, SUM, COUNT, None, Some(x));
        program.collective(halves[usize::from(rank.0 >= 8)], SUM, COUNT, None, Some(x));
        if rank.0 % 8 == 0 {
            program.collective(pair, SUM, COUNT, None, Some(x));
        }
        match rank.0 {
            0 => {
                program.send(GroupId::WORLD, GroupRank(1), x);
                program.send(GroupId::WORLD, GroupRank(8), x);
            }
            1 | 8 => drop(program.recv(GroupId::WORLD, GroupRank(0), x)),
            _ => {}
        }
    });
    (plan.unwrap(), [GroupId::WORLD, halves[0], halves[1], pair])
}

/// Times of the calls with faults: of all, of the halves, of the pair, and of the two sends.
fn took(faults: &[&str]) -> Result<[u64; 6], JobError> {
    let (catalog, (plan, groups)) = (Catalog::shipped().unwrap(), plan());
    let cluster = catalog.cluster("h100x8").unwrap();
    let faults: Vec<FabricFault> = faults.iter().map(|it| it.parse().unwrap()).collect();
    let job = Job::new(&catalog, cluster, 16, None)?.with_faults(&faults)?;
    let times = job.timing(&plan)?.call_times;
    let call = |group| TimedCall { group, collective: SUM, bytes: 4 * COUNT };
    let [all, first, second, pair] = groups.map(|group| times.collective(&call(group)).unwrap());
    let send = |to| {
        let (group, from, bytes) = (GroupId::WORLD, GlobalRank(0), 4 * COUNT);
        let takes = times.transfer(&TimedTransfer { group, from, to: GlobalRank(to), bytes });
        takes.unwrap().transmit_ps
    };
    Ok([all, first, second, pair, send(1), send(8)])
}

/// Per call, how many times as long it takes with faults.
fn slower(faults: &[&str]) -> [f64; 6] {
    let (with, without) = (took(faults).unwrap(), took(&[]).unwrap());
    std::array::from_fn(|at| with[at] as f64 / without[at] as f64)
}

fn close(seen: [f64; 6], expected: [f64; 6]) {
    for (seen, expected) in seen.into_iter().zip(expected) {
        assert!((seen - expected).abs() < 0.12 * expected, "{seen} and not {expected}");
    }
}

#[test]
fn a_slow_node_slows_the_groups_on_it() {
    // All 16 are held up by the network as well, which hides part of it.
    let all = slower(&["link:node=0,rate=0.5"])[0];
    assert!(all > 1.2, "{all}");
    close(slower(&["link:node=0,rate=0.5"]), [all, 2.0, 1.0, 1.0, 2.0, 1.0]);
    close(slower(&["link:rank=9,rate=0.5"]), [all, 1.0, 2.0, 1.0, 1.0, 1.0]);
}

#[test]
fn nics_that_are_down_slow_what_needs_them() {
    let [all, first, second, pair, inside, across] = slower(&["nic:node=1,down=4"]);
    // Of two nodes the links inside bound a tree, until half of the NICs are gone.
    assert!(all > 1.2 && all < 2.0, "{all}");
    close([1.0, first, second, pair, inside, across], [1.0; 6]);
    // Of eight, seven are left.
    let one = slower(&["nic:node=1"])[0];
    assert!((1.0..1.3).contains(&one), "{one}");
    let spine = slower(&["spine:rate=0.25"]);
    assert!(spine[0] > 2.0 && spine[3] > 3.0 && spine[5] > 3.0, "{spine:?}");
    close([1.0, spine[1], spine[2], 1.0, spine[4], 1.0], [1.0; 6]);
}

#[test]
fn a_slow_gpu_computes_slowly_and_the_machine_says_so() {
    let (catalog, (plan, _)) = (Catalog::shipped().unwrap(), plan());
    let cluster = catalog.cluster("h100x8").unwrap();
    let job = Job::new(&catalog, cluster, 16, None).unwrap();
    let slow = "gpu:rank=5,rate=0.8".parse().unwrap();
    let times = job.with_faults(&[slow]).unwrap().timing(&plan).unwrap().call_times;
    assert_eq!([4, 5].map(|rank| times.computing(GlobalRank(rank), 1000)), [1000, 1250]);
    assert!(times.machine.contains("with gpu:rank=5,rate=0.8"), "{}", times.machine);
}

#[test]
fn a_fault_that_cannot_be_is_refused() {
    let text = |text: &str| text.parse::<FabricFault>().unwrap_err().to_string();
    assert!(text("link").contains("it has no colon"));
    assert!(text("cable:node=1,rate=0.5").contains("there are link, nic, gpu, plane and spine"));
    assert!(text("link:rate=0.5").contains("one of node and rank"));
    assert!(text("link:node=1,rank=1,rate=0.5").contains("one of node and rank"));
    assert!(text("link:node=1,rate=0").contains("above 0"));
    assert!(text("gpu:rank=1,rate=nan").contains("above 0"));
    assert!(text("nic:node=1,down=x").contains("no whole number"));
    assert!(text("spine:rate=0.5,node=2").contains("no use for node"));
    let refused = |faults: &[&str]| took(faults).unwrap_err().to_string();
    assert!(refused(&["link:node=2,rate=0.5"]).contains("the job has 2 nodes, numbered from 0"));
    assert!(refused(&["gpu:rank=16,rate=0.5"]).contains("16 ranks"));
    let none = refused(&["nic:node=1,down=4", "nic:node=1,down=4"]);
    assert!(none.contains("none would be left"), "{none}");
}

/// A rack's ranks share NVLink over its machines, and a job of two racks crosses the network.
#[test]
fn racks_are_domains_of_many_nodes() {
    let catalog = Catalog::shipped().unwrap();
    let rack = catalog.cluster("gb200-nvl72").unwrap();
    let job = Job::new(&catalog, rack, 128, None).unwrap();
    assert_eq!((job.nodes, job.ranks_per_domain()), (32, 64));
    let ranks = |range: std::ops::Range<u32>| range.map(GlobalRank).collect::<Vec<_>>();
    let inside = job.placement(&ranks(0..64)).unwrap();
    assert_eq!((inside.domains, inside.per_domain, inside.network.is_none()), (1, 64, true));
    let all = job.placement(&ranks(0..128)).unwrap();
    assert_eq!(all, catalog.place(rack, 32, 4).unwrap());
    // Three members on one node and one on another: the fewest NICs bound what leaves.
    let job = Job::new(&catalog, catalog.cluster("h100x8").unwrap(), 16, None).unwrap();
    let uneven: Vec<GlobalRank> = [0, 1, 2, 8].map(GlobalRank).into();
    let uneven = job.placement(&uneven).unwrap();
    assert_eq!((uneven.ranks, uneven.domains, uneven.per_domain, uneven.nics), (4, 2, 3, 1));
}

proptest! {
    /// A fault reads as it is written.
    #[test]
    fn a_fault_says_itself_again(kind in 0u8..7, number in 0u32..1000, thousandths in 1u32..=1000) {
        let rate = f64::from(thousandths) / 1000.0;
        let fault = match kind {
            0 => FabricFault::Node { node: number, rate },
            1 => FabricFault::Link { rank: number, rate },
            2 => FabricFault::Nic { node: number, down: thousandths },
            3 => FabricFault::Gpu { rank: number, rate },
            4 => FabricFault::Plane { plane: number, rate },
            5 => FabricFault::Plane { plane: number, rate: 0.0 },
            _ => FabricFault::Spine { rate },
        };
        let read: Result<FabricFault, FabricFaultError> = fault.to_string().parse();
        prop_assert_eq!(read, Ok(fault));
    }

    /// No text makes the reader panic.
    #[test]
    fn hostile_faults_are_refused(text in "\\PC{0,60}") {
        let _ = text.parse::<FabricFault>();
    }
}

/// Pairs of ranks that are neighbours on their nodes, and all 16, reduce the same; the loads of the
/// pairs' calls.
fn pair_loads(cluster: &str, with_all: bool) -> [Vec<LinkLoad>; 2] {
    let mut plan = PlanBuilder::new("pairs", 16, BackendName::Nccl).unwrap();
    let pairs = [[0, 8], [1, 9]].map(|ranks| {
        let ranks = ranks.into_iter().map(GlobalRank).collect();
        plan.group(ProcessGroup::new("g", BackendName::Nccl, ranks).unwrap())
    });
    let x = plan.tensor("x", Dtype::Float32, COUNT, Fill::Zeros);
    let plan = plan.every_rank(|rank, program| {
        if with_all {
            program.collective(GroupId::WORLD, SUM, COUNT, None, Some(x));
        }
        if rank.0 % 8 < 2 {
            program.collective(pairs[rank.0 as usize % 8], SUM, COUNT, None, Some(x));
        }
    });
    let catalog = Catalog::shipped().unwrap();
    let job = Job::new(&catalog, catalog.cluster(cluster).unwrap(), 16, None).unwrap();
    let times = job.timing(&plan.unwrap()).unwrap().call_times;
    pairs.map(|group| {
        let call = TimedCall { group, collective: SUM, bytes: 4 * COUNT };
        times.loads(&call).to_vec()
    })
}

/// An H100's node has a NIC for each GPU, a p4d one for two.
#[test]
fn neighbours_share_a_nic_where_there_are_fewer_than_gpus() {
    assert_eq!(pair_loads("h100x8", false), [vec![], vec![]]);
    let [first, second] = pair_loads("p4d", false);
    assert_eq!(first, second);
    let fabric = {
        let catalog = Catalog::shipped().unwrap();
        Job::new(&catalog, catalog.cluster("p4d").unwrap(), 16, None).unwrap().fabric()
    };
    let nics = [0, 1].map(|node| fabric.number(FabricLink::Nic { node, rail: 0 }));
    assert_eq!(first.iter().map(|load| load.link).collect::<Vec<_>>(), nics);
    // 16 GiB fill a NIC.
    assert!(first.iter().all(|load| load.load > LinkLoad::FULL / 10 * 9), "{first:?}");
    // All 16 use every NIC.
    assert!(pair_loads("h100x8", true).iter().all(|loads| loads.len() == 2));
}

#[test]
fn every_link_has_a_number_of_its_own() {
    let text = "name = \"mine\"\ntitle = \"t\"\nsources = [\"s\"]\ncard = \"h100\"\n\
        gpus_per_node = 8\nnetwork = \"ib\"\nnics_per_node = 4\nnic_Gbps = 400\n\
        nodes_per_leaf = 2\noversubscription = 2.0\nplanes = 4\n";
    let mut catalog = Catalog::shipped().unwrap();
    let cluster = catalog.add_text("mine.toml", text).unwrap();
    let job = Job::new(&catalog, &cluster, 40, None).unwrap();
    let fabric = job.fabric();
    let numbers: Vec<u32> = fabric.links().map(|link| fabric.number(link)).collect();
    assert_eq!(numbers, (0..40 + 5 * 4 + 3 * 4).collect::<Vec<u32>>());
}

/// A pipeline of two stages, a node each, whose replicas reduce their gradients: the loads of the sends of
/// rank 0 and of the stage behind it, and those of the first stage's all_reduce.
fn pipeline_loads(cluster: &str) -> [Vec<LinkLoad>; 3] {
    let mut plan = PlanBuilder::new("pipeline", 32, BackendName::Nccl).unwrap();
    let mut group = |ranks: [u32; 2]| {
        let ranks = ranks.into_iter().map(GlobalRank).collect();
        plan.group(ProcessGroup::new("g", BackendName::Nccl, ranks).unwrap())
    };
    let (pipeline, replicas) = (group([0, 8]), [group([0, 16]), group([8, 24])]);
    let x = plan.tensor("x", Dtype::Float32, COUNT, Fill::Zeros);
    let plan = plan.every_rank(|rank, program| {
        let (stage, at) = (usize::from(rank.0 % 16 >= 8), GroupRank(u32::from(rank.0 == 0)));
        if rank.0 == 0 || rank.0 == 8 {
            program.send(pipeline, at, x);
            program.recv(pipeline, at, x);
        }
        if rank.0.is_multiple_of(8) {
            program.collective(replicas[stage], SUM, COUNT, None, Some(x));
        }
    });
    let catalog = Catalog::shipped().unwrap();
    let job = Job::new(&catalog, catalog.cluster(cluster).unwrap(), 32, None).unwrap();
    let times = job.timing(&plan.unwrap()).unwrap().call_times;
    let send = |from, to| {
        let [from, to] = [from, to].map(GlobalRank);
        let send = TimedTransfer { group: pipeline, from, to, bytes: 4 * COUNT };
        times.transfer_loads(&send).to_vec()
    };
    let reduce = TimedCall { group: replicas[0], collective: SUM, bytes: 4 * COUNT };
    [send(0, 8), send(8, 0), times.loads(&reduce).to_vec()]
}

/// Both go through rank 0's NIC, the collective in both directions; the two sends meet on no link.
#[test]
fn sends_load_their_nics_in_one_direction() {
    let [there, back, reduce] = pipeline_loads("h100x8");
    let links = |loads: &[LinkLoad]| loads.iter().map(|load| load.link).collect::<Vec<_>>();
    let fabric = {
        let catalog = Catalog::shipped().unwrap();
        Job::new(&catalog, catalog.cluster("h100x8").unwrap(), 32, None).unwrap().fabric()
    };
    let [own, other] = [0, 1].map(|node| FabricLink::Nic { node, rail: 0 });
    assert_eq!(links(&there), [fabric.number(own), fabric.receiving(other)]);
    assert_eq!(links(&back), [fabric.number(other), fabric.receiving(own)]);
    // What nobody else loads is left out: the NIC of the other replica.
    assert_eq!(links(&reduce), [fabric.number(own), fabric.receiving(own)]);
    let numbers: std::collections::BTreeSet<u32> =
        fabric.links().flat_map(|link| [fabric.number(link), fabric.receiving(link)]).collect();
    assert_eq!(numbers.len(), 2 * fabric.links().count());
}

/// An all_to_all over two leaves sends half of its bytes through the uplinks: at 8 times fewer than the nodes
/// could fill, it takes four times as long as below one leaf, or as on leaves that are not oversubscribed. An
/// all_reduce leaves a leaf once and is as fast.
#[test]
fn an_oversubscribed_leaf_holds_up_an_all_to_all_alone() {
    let cluster = |name: &str, leaf: &str| {
        format!(
            "name = \"{name}\"\ntitle = \"t\"\nsources = [\"s\"]\ncard = \"h100\"\ngpus_per_node = 8\n\
             network = \"ib\"\nnics_per_node = 8\nnic_Gbps = 400\n{leaf}"
        )
    };
    let mut catalog = Catalog::shipped().unwrap();
    let mut took = |leaf: &str, collective| {
        let cluster = catalog.add_text("mine.toml", &cluster("mine", leaf)).unwrap();
        let placement = catalog.place(&cluster, 32, 8).unwrap();
        let calibration = Calibration::default();
        let all = predict(&placement, &Settings::default(), collective, 16 << 30, &calibration);
        all.unwrap().time_us
    };
    let leaf = |nodes, times| format!("nodes_per_leaf = {nodes}\noversubscription = {times}.0\n");
    let all_to_all = NcclCall::AllToAll;
    let free = took("", all_to_all);
    assert_eq!(took(&leaf(32, 8), all_to_all), free);
    assert_eq!(took(&leaf(16, 1), all_to_all), free);
    let slowed = took(&leaf(16, 8), all_to_all) / free;
    // Of the 31 other nodes 16 are below the other leaf.
    assert!((slowed - 8.0 * 16.0 / 31.0).abs() < 0.1, "{slowed}");
    assert_eq!(took(&leaf(16, 8), NcclCall::AllReduce), took("", NcclCall::AllReduce));
    // One node a leaf: everything leaves it.
    assert!(took(&leaf(1, 8), NcclCall::AllReduce) > 3.0 * took("", NcclCall::AllReduce));
}

/// Two nodes with two NICs a GPU, each node below leaves of its own in four planes: a call sends a quarter of its
/// bytes over each. With one plane down three carry them, so the transfer takes 4/3 as long; with one at half
/// its rate all wait for that one, and it takes twice as long.
#[test]
fn planes_carry_equal_parts_and_the_slowest_holds_up_all() {
    let text = |planes: &str| {
        format!(
            "name = \"mine\"\ntitle = \"t\"\nsources = [\"s\"]\ncard = \"h100\"\ngpus_per_node = 8\n\
             network = \"ib\"\nnics_per_node = 16\nnic_Gbps = 200\nnodes_per_leaf = 1\n{planes}"
        )
    };
    let mut catalog = Catalog::shipped().unwrap();
    let [one, four] =
        ["", "planes = 4\n"].map(|planes| catalog.add_text("mine.toml", &text(planes)).unwrap());
    let plan = |ranks: [u32; 2]| {
        let mut plan = PlanBuilder::new("pair", 16, BackendName::Nccl).unwrap();
        let ranks = ranks.map(GlobalRank).to_vec();
        let pair = plan.group(ProcessGroup::new("g", BackendName::Nccl, ranks.clone()).unwrap());
        let x = plan.tensor("x", Dtype::Float32, COUNT, Fill::Zeros);
        let plan = plan.every_rank(|rank, program| {
            if ranks.contains(&rank) {
                program.collective(pair, SUM, COUNT, None, Some(x));
            }
        });
        (plan.unwrap(), TimedCall { group: pair, collective: SUM, bytes: 4 * COUNT })
    };
    let (plan, call) = plan([0, 8]);
    let took = |cluster: &lockstep_clusters::Cluster, faults: &[&str]| {
        let faults: Vec<FabricFault> = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        let job = Job::new(&catalog, cluster, 16, None).unwrap().with_faults(&faults).unwrap();
        let loads = job.loads(&plan).unwrap().remove(&call).unwrap();
        let fabric = job.fabric();
        let load =
            |link| loads.iter().find(|it| it.link == fabric.number(link)).map_or(0, |it| it.load);
        let planes = [0, 1, 2, 3].map(|plane| load(FabricLink::Leaf { leaf: 1, plane }));
        let rails = [0, 1, 2].map(|rail| load(FabricLink::Nic { node: 1, rail }));
        let ps = job.timing(&plan).unwrap().call_times.collective(&call).unwrap();
        (ps as f64, planes, rails)
    };
    let (whole, uplinks, rails) = took(&one, &[]);
    let (healthy, planes, same_rails) = took(&four, &[]);
    // Planes are the same wires: the time is that of one network, and its uplinks' load is that of each.
    assert_eq!((healthy, planes, same_rails), (whole, [uplinks[0]; 4], rails));
    // Both NICs of the GPU are full, the third is another GPU's; two of a leaf's sixteen uplinks are used.
    assert!(rails[0] > LinkLoad::FULL / 10 * 9 && rails == [rails[0], rails[0], 0], "{rails:?}");
    assert!(planes[0].abs_diff(rails[0] / 8) <= 1, "{planes:?} {rails:?}");
    let (down, planes, _) = took(&four, &["plane:plane=1"]);
    assert!((down / healthy - 4.0 / 3.0).abs() < 0.01, "{}", down / healthy);
    assert!(planes[1] == 0 && planes[0] > 0 && planes[2] == planes[0], "{planes:?}");
    let (slow, planes, _) = took(&four, &["plane:plane=2,rate=0.5"]);
    assert!((slow / healthy - 2.0).abs() < 0.01, "{}", slow / healthy);
    assert!(planes[2].abs_diff(2 * planes[0]) <= 1, "{planes:?}");
    let refused = |faults: &[&str]| {
        let faults: Vec<FabricFault> = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        Job::new(&catalog, &four, 16, None).unwrap().with_faults(&faults).unwrap_err().to_string()
    };
    assert!(refused(&["plane:plane=4"]).contains("the job has 4 planes, numbered from 0"));
    let all = ["plane:plane=0", "plane:plane=1", "plane:plane=2", "plane:plane=3"];
    assert!(refused(&all).contains("4 planes, and none would be left"));
}
