//! Promises of the predictions: NCCL's known choices, times that grow with size, rates that no link
//! beats, and one clear sentence for what cannot be.

#![allow(clippy::unwrap_used, missing_docs)]

use lockstep_clusters::choice::{NoChoice, alternatives, choose};
use lockstep_clusters::given::{Point, check_points};
use lockstep_clusters::model;
use lockstep_clusters::quantity::{bytes_text, parse_bytes, parse_point, parse_us};
use lockstep_clusters::{
    Algorithm, Calibration, Catalog, Collective, Placement, Protocol, Settings, Table, predict,
};
use proptest::prelude::*;

fn catalog() -> Catalog {
    Catalog::shipped().unwrap()
}

fn place(catalog: &Catalog, name: &str, nodes: u64, per_node: u32) -> Placement {
    catalog.place(catalog.cluster(name).unwrap(), nodes, per_node).unwrap()
}

fn choice(placement: &Placement, bytes: u64) -> (Algorithm, Protocol) {
    let settings = Settings::default();
    let (algorithm, protocol, _) =
        choose(placement, &settings, Collective::AllReduce, bytes).unwrap();
    (algorithm, protocol)
}

/// NCCL's log on 8 H200 said: Ring with LL up to 1 MiB, NVLS with Simple from 2 MiB up.
#[test]
fn the_choices_on_eight_h200_are_the_logged_ones() {
    let placement = place(&catalog(), "h200", 1, 8);
    for shift in 15..=34 {
        let known = if shift <= 20 {
            (Algorithm::Ring, Protocol::Ll)
        } else {
            (Algorithm::Nvls, Protocol::Simple)
        };
        assert_eq!(choice(&placement, 1 << shift), known, "{}", bytes_text(1 << shift));
    }
}

/// NVLS pays from five GPUs up (NVIDIA's and AWS's tuners agree); four H100 use rings.
#[test]
fn four_h100_use_rings_and_two_nodes_use_trees() {
    let catalog = catalog();
    assert_eq!(choice(&place(&catalog, "h100", 1, 4), 1 << 30).0, Algorithm::Ring);
    assert_eq!(choice(&place(&catalog, "h100", 2, 8), 1 << 30).0, Algorithm::NvlsTree);
    assert_eq!(choice(&place(&catalog, "p4d", 2, 8), 1 << 30).0, Algorithm::Tree);
}

#[test]
fn the_environment_narrows_the_choice() {
    let placement = place(&catalog(), "h100", 1, 8);
    let mut settings = Settings::default();
    settings.set("NCCL_NVLS_ENABLE", "0").unwrap();
    settings.set("NCCL_MAX_NCHANNELS", "4").unwrap();
    let none = Calibration::default();
    let it = predict(&placement, &settings, Collective::AllReduce, 1 << 30, &none).unwrap();
    assert_eq!((it.algorithm, it.channels), (Algorithm::Ring, 4));
    settings.set("NCCL_ALGO", "allreduce:tree").unwrap();
    settings.set("NCCL_PROTO", "^LL128").unwrap();
    for one in alternatives(&placement, &settings, Collective::AllReduce, 1 << 20) {
        assert_eq!(one.algorithm, Algorithm::Tree);
        assert_ne!(one.protocol, Protocol::Ll128);
    }
    settings.set("NCCL_ALGO", "NVLS").unwrap();
    let refused = choose(&placement, &settings, Collective::AllReduce, 8);
    assert_eq!(refused, Err(NoChoice { collective: Collective::AllReduce }));
    // One caret is for the whole list, and NCCL takes no second one.
    settings.set("NCCL_PROTO", "^LL,LL128").unwrap();
    settings.set("NCCL_ALGO", "Ring").unwrap();
    let left = alternatives(&placement, &settings, Collective::AllReduce, 1 << 20);
    assert!(left.iter().all(|one| one.protocol == Protocol::Simple) && !left.is_empty());
    let wrong = settings.set("NCCL_PROTO", "^LL,^LL128").unwrap_err().to_string();
    assert!(wrong.ends_with("NCCL takes one ^ before a whole list, as in ^LL,LL128"), "{wrong}");
    let wrong = settings.set("NCCL_ALGO", "Rings").unwrap_err().to_string();
    assert!(wrong.contains("known are Tree, Ring"), "{wrong}");
    let wrong = settings.set("NCCL_ALGOS", "Ring").unwrap_err().to_string();
    assert!(wrong.contains("did you mean NCCL_ALGO?"), "{wrong}");
}

/// A channel carries its part of the bandwidth, for the tuner and in the time.
#[test]
fn bandwidth_follows_the_channels() {
    let catalog = catalog();
    let none = Calibration::default();
    let calls = [
        ("h100", 1, Collective::AllReduce),
        ("h100", 4, Collective::AllReduce),
        ("dgx-a100", 1, Collective::AllGather),
        ("dgx-a100", 2, Collective::AllToAll),
    ];
    for (name, nodes, collective) in calls {
        let placement = place(&catalog, name, nodes, 8);
        let with = |most: Option<u32>| {
            let mut settings = Settings::default();
            if let Some(most) = most {
                settings.set("NCCL_MAX_NCHANNELS", &most.to_string()).unwrap();
            }
            predict(&placement, &settings, collective, 1 << 30, &none).unwrap()
        };
        let (all, one, two, four) = (with(None), with(Some(1)), with(Some(2)), with(Some(4)));
        assert_eq!((one.channels, four.channels), (1, 4), "{name}");
        assert!(one.time_us > 6.0 * all.time_us, "{name}: {one:?} after {all:?}");
        // NVLS needs two channels.
        if one.algorithm == two.algorithm {
            assert!((1.8..=2.1).contains(&(one.time_us / two.time_us)), "{one:?} {two:?}");
        }
        assert!((1.8..=2.1).contains(&(two.time_us / four.time_us)), "{two:?} {four:?}");
        assert!((with(Some(64)).time_us / all.time_us - 1.0).abs() < 1e-9, "{name}");
        if let (Some(believed), Some(less)) = (all.believed_us, one.believed_us) {
            assert!(less > 6.0 * believed, "{name}: {believed} {less}");
        }
    }
    // A channel of a ring on H100 carries 30 GB/s.
    let mut settings = Settings::default();
    settings.set("NCCL_MAX_NCHANNELS", "1").unwrap();
    let placement = place(&catalog, "h100", 1, 8);
    let it = predict(&placement, &settings, Collective::AllReduce, 1 << 30, &none).unwrap();
    let bus = (1_u64 << 30) as f64 / (it.time_us * 1000.0) * 1.75;
    assert!((25.0..=31.0).contains(&bus), "{bus} GB/s");
}

#[test]
fn impossible_channels_are_refused() {
    let told = |pairs: &[(&str, &str)]| {
        let mut settings = Settings::default();
        let set = pairs.iter().map(|(name, value)| settings.set(name, value));
        set.last().unwrap().unwrap_err().to_string()
    };
    assert_eq!(
        told(&[("NCCL_MAX_NCHANNELS", "0")]),
        "NCCL_MAX_NCHANNELS=0: a call needs 1 channel or more, and NCCL has at most 64"
    );
    assert!(told(&[("NCCL_MIN_NCHANNELS", "65")]).contains("at most 64"));
    for pairs in [
        [("NCCL_MIN_NCHANNELS", "8"), ("NCCL_MAX_NCHANNELS", "4")],
        [("NCCL_MAX_NCHANNELS", "4"), ("NCCL_MIN_NCHANNELS", "8")],
    ] {
        let told = told(&pairs);
        assert!(told.ends_with("NCCL_MIN_NCHANNELS=8 is more than NCCL_MAX_NCHANNELS=4"), "{told}");
    }
}

/// No call takes longer than a larger one, not even where NCCL changes its mind.
#[test]
fn no_call_is_slower_than_a_larger_one() {
    let catalog = catalog();
    let (settings, none) = (Settings::default(), Calibration::default());
    // Half octaves, and both sides of every power of two: the tuner's corrections change there.
    let sizes: Vec<u64> =
        (4..34).flat_map(|it| [1 << it, (1 << it) + 4, (3 << it) / 2, (2 << it) - 4]).collect();
    let mut curves = 0;
    for cluster in &catalog.clusters {
        for nodes in [1_u64, 2, 3, 4, 8, 16, 32, 64, 128, 512] {
            let Ok(placement) = catalog.place(cluster, nodes, cluster.gpus_per_node) else {
                continue;
            };
            for collective in Collective::ALL {
                let mut last = 0.0;
                for &bytes in &sizes {
                    let it = predict(&placement, &settings, collective, bytes, &none).unwrap();
                    assert!(
                        it.time_us >= last * (1.0 - 1e-9),
                        "{collective} on {nodes} of {}: {it:?} after {last}",
                        cluster.name
                    );
                    last = it.time_us;
                }
                curves += 1;
            }
        }
    }
    assert!(curves > 3000, "{curves}");
}

/// No call on more nodes takes less than on fewer, with as many ranks on each: not at a switch of NCCL's choice,
/// nor between one domain of NVLink and several, nor where racks fill up.
#[test]
fn no_call_is_faster_on_more_nodes() {
    let catalog = catalog();
    let (settings, none) = (Settings::default(), Calibration::default());
    let counts = [1_u64, 2, 3, 4, 5, 8, 9, 16, 18, 19, 33, 64, 100, 256, 1000];
    for cluster in &catalog.clusters {
        for per_node in [1, cluster.gpus_per_node] {
            for collective in Collective::ALL {
                for bytes in [8, 128 << 10, 1 << 20, 16 << 20, 8 << 30_u64] {
                    let mut most = (0.0, 0);
                    for nodes in counts {
                        let placed = catalog.place(cluster, nodes, per_node);
                        let Ok(placement) = placed else { continue };
                        let it = predict(&placement, &settings, collective, bytes, &none).unwrap();
                        assert!(
                            it.time_us >= most.0 * 0.97,
                            "{collective} of {bytes} on {}, {per_node} ranks a node: {nodes} nodes take \
                             {it:?}, and {} take {}",
                            cluster.name,
                            most.1,
                            most.0
                        );
                        if it.time_us > most.0 {
                            most = (it.time_us, nodes);
                        }
                    }
                }
            }
        }
    }
}

/// A prediction is for one process for each GPU, on one node as on two.
#[test]
fn a_second_node_does_not_change_the_launcher() {
    let catalog = catalog();
    let (settings, none) = (Settings::default(), Calibration::default());
    let us = |nodes| {
        let placement = place(&catalog, "dgx-a100", nodes, 8);
        predict(&placement, &settings, Collective::AllToAll, 8, &none).unwrap().time_us
    };
    assert!(us(1) < us(2) && us(2) < 80.0, "{} {}", us(1), us(2));
}

#[test]
fn every_shipped_cluster_answers() {
    let catalog = catalog();
    for cluster in &catalog.clusters {
        for nodes in [1_u64, 2, 16] {
            let placed = catalog.place(cluster, nodes, cluster.gpus_per_node);
            let Ok(placement) = placed else {
                assert!(nodes > 1 && cluster.network.is_none(), "{}: {placed:?}", cluster.name);
                continue;
            };
            for collective in Collective::ALL {
                let settings = Settings::default();
                let none = Calibration::default();
                let it = predict(&placement, &settings, collective, 1 << 20, &none).unwrap();
                assert!(it.time_us > 1.0 && it.time_us < 1e6, "{}: {it:?}", cluster.name);
                assert!((1..=64).contains(&it.channels), "{}: {it:?}", cluster.name);
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence() {
    let mut catalog = catalog();
    let h100 = catalog.cluster("h100x8").unwrap().clone();
    let told = |nodes, ranks| catalog.place(&h100, nodes, ranks).unwrap_err().to_string();
    assert_eq!(
        told(1_000_000_000, 8),
        "1000000000 nodes are more than the model goes to: say --nodes 65536 or less"
    );
    assert_eq!(told(0, 8), "--nodes must be at least 1");
    assert_eq!(told(2, 9), "h100x8 has 8 GPUs a node, not 9: say --ranks-per-node 8 or less");
    assert!(told(1, 1).starts_with("one rank alone"));
    let pcie = catalog.cluster("4090x8-pcie").unwrap();
    let told = catalog.place(pcie, 2, 8).unwrap_err().to_string();
    assert!(told.contains("without a network"), "{told}");
    let mut file = |text: &str| catalog.add_text("mine.toml", text).unwrap_err().to_string();
    let good = "name = \"mine\"\ntitle = \"t\"\nsources = [\"s\"]\ncard = \"h100\"\n\
                gpus_per_node = 8\nnetwork = \"ib\"\nnics_per_node = 8\nnic_Gbps = 400\n";
    assert!(
        file(&good.replace("\"ib\"", "\"ibb\"")).contains("no network is called ibb; nearest: ib")
    );
    assert!(
        file(&good.replace("= 400", "= 0")).contains("nic_Gbps = 0: a NIC sends between 0.001")
    );
    assert!(file(&good.replace("= 400", "= nan")).contains("a NIC sends between 0.001"));
    assert!(file(&good.replace("\"h100\"", "\"h1000\"")).contains("no card is called h1000"));
    assert!(file(&good.replace("\"mine\"", "\" \"")).contains("name is empty"));
    let alone = file(&format!("{good}oversubscription = 2\n"));
    assert!(
        alone.contains("oversubscription is of leaf switches: say nodes_per_leaf too"),
        "{alone}"
    );
    assert!(file("name = 3").starts_with("mine.toml: line 1: invalid type"));
    assert!(file(&good.replace("per_node = 8", "per_node = 0")).contains("mine.toml"));
    assert!(file(&format!("{good}domain_gpus = 4000000000\n")).contains("domain_gpus is between"));
    let huge = "# collective: all_reduce\n# gpus: 4000000000\n# nodes: 1\n# kind: H100\n8,1";
    assert!(Table::parse(huge).unwrap_err().to_string().contains("more than any node holds"));
    let told = |from: &str, to: &str| {
        let good = "# collective: all_reduce\n# gpus: 16\n# nodes: 2\n# kind: H100\n8,1";
        Table::parse(&good.replace(from, to)).unwrap_err().to_string()
    };
    assert_eq!(
        told("nodes: 2", "nodes: 3"),
        "line 2: 16 GPUs do not spread evenly over 3 nodes, and the model has equal nodes: is one of the numbers wrong?"
    );
    let many = told("gpus: 16", "gpus: 1600000000000");
    assert!(
        many.starts_with("line 2: `gpus: 1600000000000` is more than any machine has"),
        "{many}"
    );
    assert!(told("nodes: 2", "nodes: 0").ends_with("`nodes: 0` is not a whole number above 0"));
    assert!(told("all_reduce", "all_reuse").starts_with("line 1: no collective is called"));
    for text in ["", "# collective: all_reduce\n8,1", "bytes,time_us\n8,nan"] {
        Table::parse(text).unwrap_err();
    }
}

#[test]
fn given_points_come_out_as_measured() {
    let placement = place(&catalog(), "h100", 2, 8);
    let settings = Settings::default();
    let given = [(1 << 20, 150.0), (256 << 20, 2100.0)];
    let collective = Collective::AllReduce;
    let learned = Calibration::fit(&placement, &settings, collective, &given).unwrap();
    for (bytes, measured) in given {
        let it = predict(&placement, &settings, collective, bytes, &learned).unwrap();
        assert!((it.time_us / measured - 1.0).abs() < 0.02, "{it:?} for {measured}");
    }
}

#[test]
fn given_times_that_cannot_be_are_refused() {
    let catalog = catalog();
    let told = |nodes: u64, given: &[(u64, f64)]| {
        let placement = place(&catalog, "h100", nodes, 8);
        let point = |&(bytes, us): &(u64, f64)| Point {
            placement: placement.clone(),
            collective: Collective::AllReduce,
            bytes,
            us,
        };
        let points: Vec<Point> = given.iter().map(point).collect();
        check_points(&points).map_err(|error| error.to_string())
    };
    let fast = told(1, &[(256 << 20, 10.0)]).unwrap_err();
    assert!(fast.starts_with("256M in 10.0 µs would be 46976 GB/s of bus bandwidth"), "{fast}");
    assert!(fast.contains("the links of a GPU carry 900 GB/s"), "{fast}");
    assert!(told(4, &[(1 << 30, 2500.0)]).unwrap_err().contains("NICs of a node carry 400 GB/s"));
    assert!(told(1, &[(8, 0.4)]).unwrap_err().contains("no call takes less than 1 µs"));
    let twice = told(1, &[(1 << 20, 76.0), (1 << 20, 760.0)]).unwrap_err();
    assert_eq!(twice, "1M in 76.0 µs contradicts 1M in 760.0 µs: leave one of them out");
    told(1, &[(1 << 20, 9e4), (256 << 20, 1100.0)]).unwrap_err();
    // Two points typed by hand: one of them is wrong, where a whole table has spikes.
    let falls = told(1, &[(1 << 20, 300.0), (2 << 20, 150.0)]).unwrap_err();
    assert_eq!(falls, "1M in 300.0 µs contradicts 2M in 150.0 µs: leave one of them out");
    let mut table: Vec<(u64, f64)> = (10..24).map(|it| (1 << it, 100.0)).collect();
    table[3].1 = 400.0;
    told(2, &table).unwrap();
    let slow = told(1, &[(8, 1e8)]).unwrap_err();
    assert!(slow.starts_with("8 in 100.00 s is ") && slow.contains("another unit?"), "{slow}");
    told(1, &[(1 << 20, 76.0), (1 << 20, 80.0), (256 << 20, 1100.0)]).unwrap();
}

/// Corrections fade between and behind the points, and no call gets faster by that.
#[test]
fn corrected_times_grow_with_size_too() {
    let settings = Settings::default();
    let sizes: Vec<u64> = (3..35).flat_map(|it| [1 << it, (3 << it) / 2]).collect();
    for given in [
        vec![(1 << 20, 76.0), (256 << 20, 11_000.0)],
        vec![(64 << 10, 900.0)],
        vec![(8, 200.0), (1 << 30, 4_000.0)],
        vec![(1 << 20, 100.0), (2 << 20, 95.0), (4 << 20, 90.0), (64 << 20, 600.0)],
    ] {
        for (nodes, collective) in [(1, Collective::AllReduce), (2, Collective::AllGather)] {
            let placement = place(&catalog(), "h100", nodes, 8);
            let learned = Calibration::fit(&placement, &settings, Collective::AllReduce, &given);
            let learned = learned.unwrap();
            let mut last = 0.0;
            for &bytes in &sizes {
                let it = predict(&placement, &settings, collective, bytes, &learned).unwrap();
                assert!(it.time_us >= last * (1.0 - 1e-9), "{given:?} {it:?} after {last}");
                last = it.time_us;
            }
        }
    }
}

/// One point at a spike says little about sizes far from it.
#[test]
fn a_spike_does_not_scale_everything() {
    let placement = place(&catalog(), "h100", 2, 8);
    let settings = Settings::default();
    let time = |calibration: &Calibration, bytes| {
        predict(&placement, &settings, Collective::AllReduce, bytes, calibration).unwrap().time_us
    };
    let plain = Calibration::default();
    let spike = [(1 << 20, 3.0 * time(&plain, 1 << 20))];
    let learned = Calibration::fit(&placement, &settings, Collective::AllReduce, &spike).unwrap();
    for bytes in [64, 16 << 10, 64 << 20, 1 << 30] {
        let shift = time(&learned, bytes) / time(&plain, bytes) - 1.0;
        assert!((0.0..0.15).contains(&shift), "{bytes}: {shift}");
    }
    assert!(time(&learned, 1 << 20) / spike[0].1 > 0.97);
}

/// An unmeasured card is no worse than its older sister.
#[test]
fn mi355x_is_no_slower_than_mi300x() {
    let catalog = catalog();
    let (settings, none) = (Settings::default(), Calibration::default());
    for nodes in [1, 2, 3, 8, 64, 256] {
        let [older, newer] = ["mi300x", "mi355x"].map(|name| place(&catalog, name, nodes, 8));
        for collective in Collective::ALL {
            for shift in 3..34 {
                let time = |placement| {
                    predict(placement, &settings, collective, 1 << shift, &none).unwrap().time_us
                };
                let (old, new) = (time(&older), time(&newer));
                assert!(new <= old * 1.03, "{collective} on {nodes}, 2^{shift}: {old} {new}");
            }
        }
    }
}

#[test]
fn sizes_and_times_are_read_as_typed() {
    assert_eq!(parse_bytes("64K").unwrap(), 65_536);
    assert_eq!(parse_bytes("1.5G").unwrap(), 1_610_612_736);
    assert_eq!(parse_bytes("1.048576e6").unwrap(), 1 << 20);
    assert_eq!(parse_bytes("2E+3").unwrap(), 2000);
    assert_eq!(bytes_text(65_536), "64K");
    assert_eq!(bytes_text(1000), "1000");
    assert!((parse_us("1.1ms").unwrap() - 1100.0).abs() < 1e-9);
    assert_eq!(parse_point("1M=76us").unwrap(), (1 << 20, 76.0));
    for wrong in ["", "K", "-1", "1X", "1e99", "0", "99999T"] {
        parse_bytes(wrong).unwrap_err();
    }
    for wrong in ["76", "0us", "us", "1h"] {
        parse_us(wrong).unwrap_err();
    }
}

proptest! {
    /// For a fixed algorithm and protocol, more bytes never take less time.
    #[test]
    fn time_grows_with_size(
        cluster in 0_usize..200,
        nodes in 1_u64..300,
        share in 1_u32..17,
        bytes in 1_u64..(1 << 36),
        more in 1_u64..(1 << 30),
    ) {
        let catalog = catalog();
        let cluster = &catalog.clusters[cluster % catalog.clusters.len()];
        let per_node = share.min(cluster.gpus_per_node);
        let Ok(placement) = catalog.place(cluster, nodes, per_node) else { return Ok(()) };
        for collective in Collective::ALL {
            for algorithm in Algorithm::TUNED {
                for protocol in Protocol::ALL {
                    let time = |bytes: u64| {
                        let bytes = bytes as f64;
                        model::parts(&placement, &Settings::default(), collective, algorithm, protocol, bytes).time_us()
                    };
                    let (less, larger) = (time(bytes), time(bytes + more));
                    prop_assert!(
                        less > 0.0 && larger >= less * (1.0 - 1e-9),
                        "{} {collective} {algorithm} {protocol}: {bytes} takes {less}, \
                         {more} more take {larger}", cluster.name
                    );
                }
            }
        }
    }

    /// No prediction beats the links: a GPU's own on one node (twice that in the switch, where a
    /// byte travels once for nccl-tests' two), and the NICs between nodes.
    #[test]
    fn bus_bandwidth_never_beats_the_link(
        cluster in 0_usize..200,
        nodes in 1_u64..300,
        share in 1_u32..17,
        bytes in 1_u64..(1 << 40),
    ) {
        let catalog = catalog();
        let cluster = &catalog.clusters[cluster % catalog.clusters.len()];
        let per_node = share.min(cluster.gpus_per_node);
        let Ok(placement) = catalog.place(cluster, nodes, per_node) else { return Ok(()) };
        for collective in Collective::ALL {
            let settings = Settings::default();
            let it = predict(&placement, &settings, collective, bytes, &Calibration::default()).unwrap();
            let algorithm_gbps = bytes as f64 / (it.time_us * 1000.0);
            let bus = algorithm_gbps * collective.bus_factor(placement.ranks);
            if placement.per_domain > 1 {
                prop_assert!(bus <= 2.0 * placement.card.gpu_gbps(), "{}: {it:?}", cluster.name);
            }
            if placement.domains > 1 && collective != Collective::AllToAll {
                let times = if placement.domains == 2 { 2.0 } else { 1.0 };
                prop_assert!(bus <= times * placement.net_gbps * 1.001, "{}: {it:?}", cluster.name);
            }
        }
    }
}
