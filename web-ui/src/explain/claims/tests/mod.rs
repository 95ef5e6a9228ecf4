use super::*;
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_sim::{Link, Topology};

const INSIDE: Link = Link { latency_ps: 2_000_000, bytes_per_second: 300_000_000_000 };
const ACROSS: Link = Link { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };

fn calls() -> impl Iterator<Item = Collective> {
    let every = Collective::every(ReduceOp::Sum, GroupRank(0));
    every.into_iter().chain([Collective::MonitoredBarrier { wait_all_ranks: false }])
}

/// The cost of an algorithm; `None` where it cannot be in these nodes.
fn cost(call: Collective, by: Algorithm, n: u32, count: u64, topology: Topology) -> Option<Cost> {
    let lab =
        CollectiveLab { algorithm: by, timeout_ms: 1 << 40, ..CollectiveLab::new(call, n, count) };
    lab.schedule(topology.ranks_per_node()).ok()?;
    let plan = Plan { ranks_per_node: topology.ranks_per_node(), ..lab.plan().unwrap() };
    Some(Cost::of(&plan, topology).unwrap())
}

/// Checks that the claims about two are the counts: the parts add up to the difference, the faster
/// one has less of what it is said to save by and more of what it is said to pay for, and the words
/// name the numbers.
fn assert_claims_hold(names: [&str; 2], pair: [&Cost; 2], nodes: bool, what: &str) {
    let (words, faster) = sentence(names, pair, nodes);
    let Some(fast) = faster else {
        assert_eq!(pair[0].time_ps, pair[1].time_ps, "{what}");
        assert!(words.contains("take the same time") || names[0] == names[1], "{what}: {words}");
        return;
    };
    let (quick, late) = (pair[fast], pair[1 - fast]);
    assert!(quick.time_ps < late.time_ps, "{what}: {words}");
    assert!(words.starts_with(names[fast]), "{what}: {words}");
    let saved: i128 = Part::ALL
        .iter()
        .map(|part| i128::from(part.of(&late.path)) - i128::from(part.of(&quick.path)))
        .sum();
    assert_eq!(saved, i128::from(late.time_ps - quick.time_ps), "{what}: {words}");
    let claims = claims(&quick.path, &late.path, nodes);
    assert!(claims.iter().any(|claim| claim.saves_ps > 0), "{what}: {words}");
    let told: i128 = claims.iter().map(|claim| claim.saves_ps).sum();
    let most = claims.iter().map(|claim| claim.saves_ps.abs()).max().unwrap_or(0);
    assert!((told - saved).abs() * 20 <= most, "{what}: tells {told} of {saved}: {words}");
    for claim in &claims {
        let (mine, theirs) = (&quick.path, &late.path);
        let (little, much) = match claim.saves_ps > 0 {
            true => (mine, theirs),
            false => (theirs, mine),
        };
        let (less, more) = match claim.part {
            Part::Latency { across: false } => (little.inside, much.inside),
            Part::Latency { across: true } => (little.across, much.across),
            Part::Bytes { across } => {
                let of = |path: &Path| if across { path.across } else { path.inside };
                assert!(of(little).bytes < of(much).bytes, "{what}: {}", claim.words);
                continue;
            }
            Part::Waiting => {
                assert!(little.waiting_ps < much.waiting_ps, "{what}: {}", claim.words);
                continue;
            }
        };
        let halves = |leg: Leg| 2 * leg.messages + leg.switch_hops;
        assert!(halves(less) < halves(more), "{what}: {}", claim.words);
        for leg in [less, more] {
            let count = if leg.messages > 0 { leg.messages } else { leg.switch_hops };
            assert!(count == 0 || claim.words.contains(&count.to_string()), "{}", claim.words);
        }
    }
}

/// All pairs of algorithms of all collectives, in several worlds, nodes and sizes.
#[test]
fn every_sentence_follows_from_what_was_counted() {
    let nodes = |ranks_per_node| Topology::Nodes { ranks_per_node, inside: INSIDE, across: ACROSS };
    let worlds = [
        (2, Topology::Uniform(ACROSS)),
        (5, Topology::Uniform(ACROSS)),
        (8, Topology::Uniform(ACROSS)),
        (16, Topology::Uniform(INSIDE)),
        (8, nodes(8)),
        (8, nodes(4)),
        (16, nodes(8)),
        (13, nodes(4)),
    ];
    let mut told = 0;
    for call in calls() {
        for (n, topology) in worlds {
            for count in [1u64, 1000, 1 << 20] {
                let costs: Vec<(Algorithm, Cost)> = Algorithm::of(call)
                    .iter()
                    .filter_map(|&by| Some((by, cost(call, by, n, count, topology)?)))
                    .collect();
                for (by, cost) in &costs {
                    let what = format!("{by} {call} of {n}, {count} elements, {topology}");
                    assert_eq!(cost.path.time_ps(), cost.time_ps, "{what}");
                    assert_eq!(cost.path.other_ps, 0, "{what}");
                    assert!(cost.latency_ps() > 0, "{what}");
                    assert!(!latencies(&cost.path, topology.ranks_per_node() > 0).is_empty());
                }
                for (at, (a, of_a)) in costs.iter().enumerate() {
                    for (b, of_b) in &costs[at..] {
                        let what =
                            format!("{a} and {b}, {call} of {n}, {count} elements, {topology}");
                        let in_nodes = topology.ranks_per_node() > 0;
                        assert_claims_hold([a.name(), b.name()], [of_a, of_b], in_nodes, &what);
                        told += 1;
                    }
                }
            }
        }
    }
    assert!(told > 3000, "{told}");
}

/// Two switches, and a switch against a ring: hops by a switch have their latency, and the sentence
/// names them.
#[test]
fn switches_have_latencies() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let of = |by| cost(sum, by, 8, 1 << 16, Topology::default()).unwrap();
    let (nvls, sharp, ring) = (of(Algorithm::Nvls), of(Algorithm::Sharp), of(Algorithm::Ring));
    assert_eq!(latencies(&nvls.path, false), "4 × 2.50 µs by a switch");
    assert_eq!(latencies(&sharp.path, false), "2 × 2.50 µs by a switch");
    let (words, _) = sentence(["sharp", "ring"], [&sharp, &ring], false);
    assert!(
        words.contains("2 hops by a switch follow one another instead of 14 messages"),
        "{words}"
    );
    let (words, _) = sentence(["nvls", "sharp"], [&nvls, &sharp], false);
    assert!(words.contains("2 hops by a switch follow one another instead of 4"), "{words}");
}

/// Eight ranks, 5 µs, 25 GB/s: 14 latencies against 6, 1.75 tensors against 6.
#[test]
fn latency_wins_small_and_bandwidth_large() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let of = |by, count| cost(sum, by, 8, count, Topology::default()).unwrap();
    let told = |count| {
        let (ring, tree) = (of(Algorithm::Ring, count), of(Algorithm::Tree, count));
        sentence(["ring", "tree"], [&ring, &tree], false)
    };
    let (small, faster) = told(8);
    assert_eq!(faster, Some(1));
    assert!(small.starts_with("tree is 2.3 times as fast: 6 messages follow"), "{small}");
    assert!(small.contains("instead of 14 messages, which saves 40 µs"), "{small}");
    let (large, faster) = told(1 << 24);
    assert_eq!(faster, Some(0));
    assert!(large.contains("112.0 MiB pass one after the other instead of 384.0 MiB"), "{large}");
}

/// More bytes are never said to save time.
#[test]
fn all_to_all_by_rails_is_explained_by_what_it_saves() {
    let nodes = Topology::Nodes { ranks_per_node: 8, inside: INSIDE, across: ACROSS };
    for count in [64u64, 1 << 12, 1 << 16, 1 << 20] {
        let of = |by| cost(Collective::AllToAll, by, 16, count, nodes).unwrap();
        let (rails, direct) = (of(Algorithm::Hierarchical), of(Algorithm::Direct));
        assert_claims_hold(["hierarchical", "direct"], [&rails, &direct], true, "all_to_all");
    }
}
