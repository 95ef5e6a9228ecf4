//! Clusters from files of others: logs of nccl-tests, nvidia-smi's matrix, NCCL's topology; and a
//! cluster's own file, written and read again.

#![allow(clippy::unwrap_used, missing_docs)]

use lockstep_clusters::calibrated::calibrated;
use lockstep_clusters::cluster::{Given, Measured};
use lockstep_clusters::import::{self, Hints};
use lockstep_clusters::nccl_tests::{self, LogError};
use lockstep_clusters::placement::Launcher;
use lockstep_clusters::{Calibration, Catalog, Cluster, Collective, Settings, predict, toml_text};
use proptest::prelude::*;
use std::fmt::Write;

/// Every named cluster says where its GPUs come from, and its NICs and leaves if it has them.
#[test]
fn every_shipped_cluster_has_its_sources() {
    let catalog = Catalog::shipped().unwrap();
    for cluster in &catalog.clusters {
        let of = |part: &str| {
            let mut sources = cluster.sources.iter().filter_map(|source| source.split_once(": "));
            sources.any(|(of, from)| of.contains(part) && !from.trim().is_empty())
        };
        assert!(of("GPUs and their links"), "{}", cluster.name);
        assert_eq!(of("NICs"), cluster.network.is_some(), "{}", cluster.name);
        assert_eq!(of("leaves"), cluster.nodes_per_leaf.is_some(), "{}", cluster.name);
        let all = catalog.sources(cluster);
        assert!(all.len() > cluster.sources.len(), "{}: those of its card", cluster.name);
    }
    let without = toml_text(&catalog.clusters[0]).replace("    \"", "    # \"");
    let refused = Catalog::shipped().unwrap().add_text("mine.toml", &without).unwrap_err();
    assert!(refused.to_string().contains("sources is empty"), "{refused}");
}

/// A log as nccl-tests 2.17 prints it, of so many nodes with 8 ranks, in the time of a function.
fn log(name: &str, nodes: u32, sizes: &[u64], us: impl Fn(u64) -> f64, factor: f64) -> String {
    let mut text = format!(
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n\
         # Collective test starting: {name}\n\
         # nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 \
         agg iters: 1 validation: 1 graph: 0 unalign: 0\n#\n# Using devices\n"
    );
    for rank in 0..nodes * 8 {
        let _ = writeln!(
            text,
            "#  Rank {rank:2} Group  0 Pid {:6} on   node-{:03} device {:2} [0000:0f:00] NVIDIA H100 80GB HBM3",
            1000 + rank,
            rank / 8,
            rank % 8
        );
    }
    text += "#\n#                                                              out-of-place                       in-place          \n\
             #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n\
             #        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n";
    for bytes in sizes {
        let (count, us) = (bytes / 4, us(*bytes));
        let algbw = *bytes as f64 / us / 1000.0;
        let bus = algbw * factor;
        let _ = writeln!(
            text,
            "{bytes:12}  {count:12}     float     sum      -1  {us:7.2}  {algbw:6.2}  {bus:6.2}       0  \
             {us:7.2}  {algbw:6.2}  {bus:6.2}       0"
        );
    }
    text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0 \n#\n"
}

const SIZES: [u64; 11] = [
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 16,
    1 << 18,
    1 << 20,
    1 << 22,
    1 << 24,
    1 << 26,
    1 << 28,
    1 << 30,
];

#[test]
fn a_log_says_what_was_measured_and_where() {
    let reduced = log("all_reduce_perf", 2, &SIZES, |bytes| 20.0 + bytes as f64 / 3e5, 1.875);
    let gathered = log("all_gather_perf", 1, &SIZES, |bytes| 30.0 + bytes as f64 / 3e5, 0.875);
    let both = format!(
        "hostname:12 NCCL INFO Bootstrap: Using eth0\n{reduced}NCCL version 2.28\n{gathered}"
    );
    let tables = nccl_tests::read("slurm.out", &both).unwrap();
    let seen: Vec<_> =
        tables.iter().map(|it| (it.collective, it.gpus, it.nodes, it.points.len())).collect();
    assert_eq!(seen, [(Collective::AllReduce, 16, 2, 11), (Collective::AllGather, 8, 1, 11)]);
    assert_eq!(tables[0].points[2], (1 << 14, 20.05));
    assert_eq!(tables[0].launcher(), Launcher::ProcessPerGpu);
    let catalog = Catalog::shipped().unwrap();
    assert_eq!(tables[0].cluster(&catalog).unwrap().card, "h100");
    // What launchers put before lines.
    for prefix in [
        "[1,0]<stdout>:",
        "0: ",
        "2026-01-02T03:04:05Z pod-0 | ",
        "\u{1b}[36mpod-0 |\u{1b}[0m ",
        "[2026-01-02 03:04:05] ",
    ] {
        let tagged: String = reduced.lines().map(|line| format!("{prefix}{line}\n")).collect();
        let read =
            nccl_tests::read("x", &tagged).unwrap_or_else(|error| panic!("{prefix}: {error}"));
        assert_eq!(read[0].points, tables[0].points, "{prefix}");
    }
    // Older versions name nothing: the file's name does. Columns without redop and root are missing.
    let older: String =
        reduced.lines().skip(2).fold(String::new(), |text, line| text + line + "\n");
    let without = older.replace("     sum      -1", "").replace("   redop    root", "");
    for text in [&older, &without] {
        let read = nccl_tests::read("runs/all_reduce_perf_2n.txt", text).unwrap();
        assert_eq!(read[0].points, tables[0].points);
        let unnamed = nccl_tests::read("runs/out.txt", text).unwrap_err();
        assert!(matches!(unnamed, LogError::Unnamed { .. }), "{unnamed}");
    }
}

#[test]
fn a_log_that_contradicts_itself_is_refused() {
    let us = |bytes: u64| 20.0 + bytes as f64 / 3e5;
    let right = log("all_reduce_perf", 1, &SIZES, us, 1.75);
    let wrong = |text: &str| nccl_tests::read("x", text).unwrap_err().to_string();
    // A bus bandwidth of an all_gather: the name is wrong.
    let gathered = log("all_reduce_perf", 1, &SIZES, us, 0.875);
    assert!(wrong(&gathered).contains("is not that of all_reduce among 8 ranks"));
    let missing = right.replace("#  Rank", "#  rank");
    assert!(wrong(&missing).contains("without a list of devices"));
    let torn = right.replace("3599.14", "35.14").replace("3599.1", "35.1");
    assert_ne!(torn, right);
    assert!(wrong(&torn).contains("is the line torn?"), "{}", wrong(&torn));
    let uneven = right.replacen("node-000", "node-001", 1);
    assert!(wrong(&uneven).contains("7 ranks on one node and 1 on another"));
    assert!(wrong(&uneven).starts_with("line 6: "), "{}", wrong(&uneven));
    assert_eq!(nccl_tests::read("all_reduce.txt", "hello\n1 2 3\n").unwrap_err(), LogError::NoRows);
}

/// Times of a test that failed are of nothing; a log that is cut off says so.
#[test]
fn a_failed_test_is_refused_and_a_cut_log_is_told() {
    let us = |bytes: u64| 20.0 + bytes as f64 / 3e5;
    let right = log("all_reduce_perf", 1, &SIZES, us, 1.75);
    let wrong = |text: &str| nccl_tests::read("x", text).unwrap_err().to_string();
    assert!(nccl_tests::read("x", &right).unwrap()[0].notes.is_empty());
    let row = right.lines().find(|line| line.trim_start().starts_with("1048576 ")).unwrap();
    let out_of_place = row.replacen("       0  ", "      12  ", 1);
    assert_ne!(out_of_place, row);
    let told = wrong(&right.replace(row, &out_of_place));
    assert!(told.contains("#wrong says 12 wrong values at 1048576 bytes"), "{told}");
    let in_place = format!("{}7", row.trim_end().strip_suffix('0').unwrap());
    assert!(wrong(&right.replace(row, &in_place)).contains("7 wrong values"));
    let failed = right.replace(
        "# Out of bounds",
        "node-000: Test NCCL failure common.cu:958 'unhandled system error'\n# Out of bounds",
    );
    assert!(wrong(&failed).contains("the test failed (node-000: Test NCCL failure"), "{failed}");
    assert!(wrong(&right.replace("values : 0 OK", "values : 3 FAILED")).contains("3 FAILED"));
    let at = right.find("268435456 ").unwrap();
    let cut = nccl_tests::read("x", &right[..at]).unwrap();
    assert_eq!(cut[0].points.len(), 9);
    assert_eq!(
        cut[0].notes,
        [
            "the log of all_reduce is cut off: it ends behind 64M, before `# Avg bus bandwidth`, and \
          larger sizes were asked for"
        ]
    );
}

/// A time that no link carries does not get into a cluster's file, nor out of one.
#[test]
fn a_cluster_takes_no_impossible_times() {
    let mut catalog = Catalog::shipped().unwrap();
    let base = catalog.cluster("h100x8").unwrap().clone();
    let fast = log("all_reduce_perf", 1, &SIZES, |_| 10.0, 1.75);
    let tables = nccl_tests::read("x", &fast).unwrap();
    let told = calibrated(&catalog, &base, &tables).unwrap_err().to_string();
    assert!(told.contains("the links of a GPU carry 900 GB/s at most"), "{told}");
    let points = vec![(1 << 28, 10.0)];
    let given = Given { collective: "all_reduce".into(), nodes: 1, ranks_per_node: 8, points };
    let mine = Cluster { name: "mine".into(), given: vec![given], ..base.without_names() };
    let mine = catalog.add_text("mine.toml", &toml_text(&mine)).unwrap();
    let told = catalog.given_points(&mine).unwrap_err().to_string();
    assert!(told.starts_with("mine: a given point cannot be: 256M in 10.0 µs"), "{told}");
}

/// A machine that is half as fast at all_reduces as the shipped one: two tables of it correct the
/// sizes between, more nodes, and other collectives a little.
#[test]
fn measured_times_correct_a_cluster() {
    let catalog = Catalog::shipped().unwrap();
    let base = catalog.cluster("h100x8").unwrap();
    let (settings, plain) = (Settings::default(), Calibration::default());
    let truth = |nodes: u64, bytes: u64| {
        let placement = catalog.place(base, nodes, 8).unwrap();
        let one = predict(&placement, &settings, Collective::AllReduce, bytes, &plain).unwrap();
        2.0 * one.time_us
    };
    let logs = [1, 2].map(|nodes| {
        let factor = 2.0 * (f64::from(nodes) * 8.0 - 1.0) / (f64::from(nodes) * 8.0);
        log("all_reduce_perf", nodes, &SIZES, |bytes| truth(nodes.into(), bytes), factor)
    });
    let tables: Vec<_> = logs.iter().flat_map(|log| nccl_tests::read("x", log).unwrap()).collect();
    let found = calibrated(&catalog, base, &tables).unwrap();
    assert_eq!(found.points, [22, 22]);
    for check in &found.checks {
        assert!((check.before - 0.5).abs() < 0.01, "{check:?}");
        assert!(check.held_back.unwrap() < 0.15, "{check:?}");
    }
    let one = calibrated(&catalog, base, &tables[..1]).unwrap();
    assert!(one.checks[0].held_back.unwrap() < 0.15, "{:?}", one.checks);
    // The file says the same again, and every later question is corrected.
    let mut catalog = catalog.clone();
    let text = toml_text(&Cluster { name: "mine".into(), ..found.cluster.clone() });
    let mine = catalog.add_text("mine.toml", &text).unwrap();
    let points = catalog.given_points(&mine).unwrap();
    let calibration = Calibration::of_points(&settings, &points).unwrap();
    let ratio = |nodes: u64, collective, bytes| {
        let placement = catalog.place(&mine, nodes, 8).unwrap();
        let [corrected, plain] = [&calibration, &plain].map(|calibration| {
            predict(&placement, &settings, collective, bytes, calibration).unwrap().time_us
        });
        corrected / plain
    };
    for bytes in [1 << 12, 1 << 20, 1 << 24, 1 << 28] {
        assert!((1.8..2.2).contains(&ratio(2, Collective::AllReduce, bytes)));
        assert!((1.6..2.2).contains(&ratio(4, Collective::AllReduce, bytes)));
        assert!((1.2..1.8).contains(&ratio(2, Collective::AllGather, bytes)));
    }
    assert!(mine.backs(Collective::AllReduce, 4));
}

/// Two tables of the same call that cannot both be of one machine are told.
#[test]
fn tables_that_disagree_are_told() {
    let catalog = Catalog::shipped().unwrap();
    let base = catalog.cluster("h100x8").unwrap();
    let notes = |times: f64| {
        let logs = [1.0, times].map(|times| {
            log("all_reduce_perf", 1, &SIZES, |bytes| times * (30.0 + bytes as f64 / 2e5), 1.75)
        });
        let tables = logs.iter().flat_map(|log| nccl_tests::read("x", log).unwrap());
        calibrated(&catalog, base, &tables.collect::<Vec<_>>()).unwrap().notes
    };
    assert!(notes(1.2).is_empty());
    let told = notes(3.0);
    assert!(
        told.len() == 1 && told[0].contains("in table 2 are 3.0 times those in table 1"),
        "{told:?}"
    );
}

fn hints() -> Hints {
    Hints { name: "mine".into(), ..Hints::default() }
}

/// The matrix of a machine with 8 GPUs and NICs near them, and one NIC that is not.
fn matrix(links: &str) -> String {
    let names: Vec<String> =
        (0..8).map(|at| format!("GPU{at}")).chain((0..9).map(|at| format!("NIC{at}"))).collect();
    let mut text = format!(
        "\t\u{1b}[4m{}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m\n",
        names.join("\t")
    );
    for (row, name) in names.iter().enumerate() {
        let cells = (0..names.len()).map(|column| match (row, column) {
            _ if row == column => " X ",
            (0..8, 0..8) => links,
            (16, _) | (_, 16) => "SYS",
            _ if row % 8 == column % 8 => "PXB",
            _ => "NODE",
        });
        let cells: Vec<&str> = cells.collect();
        let _ = writeln!(text, "{name}\t{}\t0-47,96-143\t0\t\tN/A", cells.join("\t"));
    }
    text += "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as …\n\nNIC Legend:\n\n";
    for nic in 0..9 {
        let _ = writeln!(text, "  NIC{nic}: mlx5_{nic}");
    }
    text
}

#[test]
fn a_matrix_becomes_a_cluster() {
    let catalog = Catalog::shipped().unwrap();
    let found = import::read(&catalog, &matrix("NV18"), &hints()).unwrap();
    let it = &found.cluster;
    assert_eq!((it.card.as_str(), it.gpus_per_node, it.nics_per_node), ("h100", 8, 8));
    assert_eq!((it.network.as_deref(), it.nic_gbps), (Some("ib"), 400.0));
    assert!(found.notes.iter().any(|note| note.contains("left out") && note.contains("mlx5_8")));
    let switched = |links| import::read(&catalog, &matrix(links), &hints()).unwrap().cluster.card;
    assert_eq!([switched("NV12"), switched("NV8")], ["a100", "h800"]);
    let of_card = Hints { card: Some("h200".into()), nic_gbps: Some(200.0), ..hints() };
    let it = import::read(&catalog, &matrix("NV18"), &of_card).unwrap().cluster;
    assert_eq!((it.card.as_str(), it.nic_gbps), ("h200", 200.0));
    let refused = |text: &str| import::read(&catalog, text, &hints()).unwrap_err().to_string();
    let pcie = refused(&matrix("PHB"));
    assert!(pcie.contains("--card") && pcie.contains("rtx4090"), "{pcie}");
    assert!(refused(&matrix("NV0")).contains("0 GB/s"));
    let nowhere = refused(&matrix("N/A"));
    assert!(nowhere.contains("there is no path between GPU0 and GPU1: N/A"), "{nowhere}");
    let one_way = matrix("NV18").replacen("NV18", "SYS", 1);
    assert!(refused(&one_way).contains("GPU0 reaches GPU1 by SYS, and GPU1 reaches GPU0 by NV18"));
    let short: String =
        matrix("NV18").lines().take(2).fold(String::new(), |all, it| all + it + "\n");
    assert!(refused(&short).contains("GPU1 has a column and no row"));
    assert!(refused("<html>").contains("nvidia-smi topo -m"));
}

/// The matrix of GPUs that all see each other so, each with a NIC; `numa` is the column of their memory.
fn small_matrix(gpus: usize, links: &str, numa: &str) -> String {
    let names = |kind: &str| (0..gpus).map(|at| format!("{kind}{at}")).collect::<Vec<_>>();
    let all = [names("GPU"), names("NIC")].concat();
    let mut text = format!("\t{}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n", all.join("\t"));
    for (row, name) in all.iter().enumerate() {
        let cells = (0..all.len()).map(|column| match (row < gpus, column < gpus) {
            _ if row == column => "X",
            (true, true) => links,
            (false, false) => "SYS",
            _ => "NODE",
        });
        let cells: Vec<&str> = cells.collect();
        let last = if row < gpus { numa } else { "" };
        let _ = writeln!(text, "{name}\t{}\t0-71\t0\t{last}", cells.join("\t"));
    }
    (0..gpus).fold(text + "NIC Legend:\n", |text, nic| text + &format!("  NIC{nic}: mlx5_{nic}\n"))
}

/// Facts that a tray of a rack cannot show come from the shipped cluster of its card, and are told.
#[test]
fn a_tray_is_part_of_its_rack() {
    let catalog = Catalog::shipped().unwrap();
    let shipped = catalog.cluster("gb200-nvl72").unwrap();
    let named = Hints { card: Some("gb200".into()), ..hints() };
    for (numa, hints) in [("2", hints()), ("N/A", named)] {
        let found = import::read(&catalog, &small_matrix(4, "NV18", numa), &hints).unwrap();
        let it = &found.cluster;
        assert_eq!((it.card.as_str(), it.domain_gpus, it.nics_per_node), ("gb200", Some(72), 4));
        assert_eq!((&it.network, it.nic_gbps), (&shipped.network, shipped.nic_gbps));
        for guess in ["72 GPUs are taken (as of gb200-nvl72)", "roce, as of", "400 Gb/s is taken"] {
            assert!(found.notes.iter().any(|note| note.contains(guess)), "{:?}", found.notes);
        }
    }
}

/// The links that the file counts are those of the card, or the difference is told.
#[test]
fn links_of_a_file_are_counted() {
    let catalog = Catalog::shipped().unwrap();
    let of = |gpus, links| import::read(&catalog, &small_matrix(gpus, links, "N/A"), &hints());
    let pair = of(2, "NV12").unwrap();
    let placed = catalog.place(&pair.cluster, 1, 2).unwrap();
    assert_eq!((pair.cluster.card.as_str(), placed.card.mesh_gpus), ("a100", None));
    assert!(pair.notes.iter().all(|note| !note.contains("NVLinks are missing")), "{pair:?}");
    assert_eq!(of(4, "NV4").unwrap().cluster.card, "a100-mesh");
    let fewer = XML.replacen("count=\"10\"", "count=\"4\"", 1);
    let notes = import::read(&catalog, &fewer, &hints()).unwrap().notes;
    assert!(notes.iter().any(|it| it.contains("fewer (0000:18:00.0 12)")), "{notes:?}");
    let links: Vec<&str> = XML.lines().filter(|line| line.contains("<nvlink")).collect();
    let without = |count: usize| {
        links.iter().take(count).fold(XML.to_owned(), |text, line| text.replacen(line, "", 1))
    };
    let refused = import::read(&catalog, &without(2), &hints()).unwrap_err().to_string();
    assert!(refused.starts_with("0000:18:00.0 has no NVLink and 0000:98:00.0 has 18"), "{refused}");
    let notes = import::read(&catalog, &without(4), &hints()).unwrap().notes;
    assert!(notes.iter().any(|it| it.contains("the file has no NVLink at all")), "{notes:?}");
}

/// NCCL's topology of two H100 behind switches, each with a NIC on its PCIe switch.
const XML: &str = r#"<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
    <pci busid="0000:16:00.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x2335" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:07:00.0" count="10" tclass="0x068000"/>
          <nvlink target="0000:05:00.0" count="8" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:19:00.0" class="0x020000" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.000000" guid="0xa8" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="1" affinity="ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
    <pci busid="0000:96:00.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:98:00.0" class="0x030200" vendor="0x10de" device="0x2335" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:07:00.0" count="10" tclass="0x068000"/>
          <nvlink target="0000:05:00.0" count="8" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:99:00.0" class="0x020000" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_1" dev="1" speed="400000" port="1" latency="0.000000" guid="0xa9" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
    <pci busid="0000:a1:00.0" class="0x020000" vendor="0x15b3" device="0x1017" link_speed="8.0 GT/s PCIe" link_width="8">
      <nic>
        <net name="mlx5_2" dev="2" speed="25000" port="1" latency="0.000000" guid="0xaa" maxconn="131072" gdr="0"/>
      </nic>
    </pci>
  </cpu>
</system>
"#;

#[test]
fn nccls_topology_becomes_a_cluster() {
    let catalog = Catalog::shipped().unwrap();
    let found = import::read(&catalog, XML, &hints()).unwrap();
    let it = &found.cluster;
    assert_eq!((it.card.as_str(), it.gpus_per_node, it.nics_per_node), ("h200", 2, 2));
    assert_eq!((it.network.as_deref(), it.nic_gbps, it.domain_gpus), (Some("ib"), 400.0, None));
    let other = XML.replace("0x2335", "0x9999");
    assert_eq!(import::read(&catalog, &other, &hints()).unwrap().cluster.card, "h100");
    let direct = XML
        .replace(r#"<nvlink target="0000:07:00.0" count="10" tclass="0x068000"/>"#, "")
        .replacen("0000:05:00.0", "0000:98:00.0", 1)
        .replacen("0000:05:00.0", "0000:18:00.0", 1)
        .replace("0x068000", "0x030200")
        .replace("0x2335", "0x20b2")
        .replace("sm=\"90\"", "sm=\"80\"");
    assert_eq!(import::read(&catalog, &direct, &hints()).unwrap().cluster.card, "a100-mesh");
    let refused = |text: &str| import::read(&catalog, text, &hints()).unwrap_err().to_string();
    let amd =
        direct.replace(r#"vendor="0x10de" device="0x20b2""#, r#"vendor="0x1002" device="0x74a1""#);
    let amd = refused(&amd);
    assert!(amd.contains("has AMD's vendor 0x1002 and sm 80"), "{amd}");
    let mixed = refused(&direct.replace("sm=\"80\"", "sm=\"90\""));
    assert!(
        mixed.contains("has the device 0x20b2 of a100, which is sm 80, and says sm 90"),
        "{mixed}"
    );
    let nowhere = direct.replacen(r#"target="0000:98:00.0""#, r#"target="0000:77:00.0""#, 1);
    let nowhere = refused(&nowhere);
    assert!(nowhere.contains("a link to nowhere: the GPU 0000:18:00.0 has one to 0000:77:00.0"));
    let down = refused(&XML.replacen("400000", "0", 1));
    assert!(down.contains("the NIC mlx5_0 has 0 GB/s"), "{down}");
    assert!(refused(&XML.replacen(r#"count="10""#, r#"count="0""#, 1)).contains("0 GB/s"));
    let cycle = refused(&XML.replacen("0000:18:00.0", "0000:16:00.0", 1));
    assert!(cycle.contains("a cycle of switches: the PCIe device 0000:16:00.0 is below itself"));
    assert!(refused(&XML.replace("0000:98:00.0", "0000:18:00.0")).contains("there twice"));
    let alone = XML.replace("<cpu", "<box").replace("</cpu", "</box");
    assert!(refused(&alone).contains("no path leads to the others"));
    assert!(refused(&XML.replace("</system>", "")).contains("ends inside"));
    assert!(refused("<system version=\"1\"></system>").contains("it has no GPU"));
    let deep = format!("<system>{}", "<pci busid=\"x\">".repeat(100_000));
    assert!(refused(&deep).contains("below itself"));
}

#[test]
fn numbers_that_no_machine_has_are_refused() {
    let mut catalog = Catalog::shipped().unwrap();
    let base = toml_text(catalog.cluster("h100x8").unwrap());
    let refused =
        |text: String| catalog.clone().add_text("mine.toml", &text).unwrap_err().to_string();
    let given =
        "\n[[given]]\ncollective = \"all_reduce\"\nnodes = 1\nranks_per_node = 8\npoints = ";
    assert!(refused(format!("{base}{given}[[8, 0]]")).contains("no call takes that"));
    assert!(refused(format!("{base}{given}[[8, nan]]")).contains("no call takes that"));
    let many = "[8, 1.0], ".repeat(600);
    assert!(refused(format!("{base}{given}[{many}]")).contains("more than 512"));
    let nodes = format!("{base}{given}[[8, 1.0]]").replace("nodes = 1\nr", "nodes = 1000000000\nr");
    let mine = catalog.add_text("mine.toml", &nodes).unwrap();
    let error = catalog.given_points(&mine).unwrap_err().to_string();
    assert!(error.contains("1000000000 nodes are more than the model goes to"), "{error}");
}

proptest! {
    /// A cluster file that was written is read back unchanged.
    #[test]
    fn a_cluster_file_says_again_what_was_written(
        title in "\\PC{0,20}", raw in prop::collection::vec(any::<char>(), 0..8), nics in 1u32..64,
        gbps in 1.0f64..800.0, sizes in any::<bool>(), domain in prop::option::of(8u32..1024),
        points in prop::collection::vec((1u64..1 << 40, 0.1f64..1e9), 0..20),
    ) {
        let cluster = Cluster {
            nodes_per_leaf: Some(nics),
            oversubscription: None,
            planes: Some(nics.min(16)),
            name: "mine".into(),
            title,
            sources: vec!["data sheet".into(), raw.into_iter().collect()],
            aliases: vec!["a\"b\\c".into()],
            words: vec!["abc".into()],
            relatives: Vec::new(),
            card: "h100".into(),
            gpus_per_node: 8,
            domain_gpus: domain,
            network: Some("ib".into()),
            nics_per_node: nics,
            nic_gbps: gbps,
            measured: vec![Measured {
                collective: "all_reduce".into(),
                nodes: vec![1, 2],
                bytes: sizes.then_some([8, 1 << 33]),
            }],
            given: vec![Given { collective: "reduce".into(), nodes: 2, ranks_per_node: 8, points }],
        };
        let mut catalog = Catalog::shipped().unwrap();
        prop_assert_eq!(catalog.add_text("mine.toml", &toml_text(&cluster)).unwrap(), cluster);
    }

    /// No text makes a reader panic.
    #[test]
    fn hostile_files_are_refused(
        text in "\\PC{0,200}", at in 0usize..3000, cut in 0usize..3000, junk in "[ <>0-9XGPUNV\"=/.\\-\\n]{0,12}",
    ) {
        let catalog = Catalog::shipped().unwrap();
        let whole = log("all_reduce_perf", 1, &SIZES, |_| 20.0, 1.75);
        for base in [XML.to_owned(), matrix("NV18"), whole, text] {
            let letters: Vec<char> = base.chars().collect();
            let at = at.min(letters.len());
            let rest = (at + cut).min(letters.len());
            let changed: String =
                letters[..at].iter().copied().chain(junk.chars()).chain(letters[rest..].iter().copied()).collect();
            let _ = import::read(&catalog, &changed, &hints());
            let _ = nccl_tests::read("all_reduce.txt", &changed);
        }
    }
}
