//! The machines that headers of tables describe: by kind, by card, and by free text about links.

#![allow(clippy::unwrap_used, missing_docs)]

use lockstep_clusters::compare::Site;
use lockstep_clusters::{Calibration, Catalog, Collective, Table};

fn catalog() -> Catalog {
    Catalog::shipped().unwrap()
}

/// A table of two nodes with 8 GPUs each, or of one.
fn table(nodes: u32, kind: &str, gpu_model: &str, inter_link: &str) -> Table {
    let text = format!(
        "# collective: all_reduce\n# gpus: {}\n# nodes: {nodes}\n# kind: {kind}\n\
         # gpu_model: {gpu_model}\n# inter_link: {inter_link}\nbytes,time_us\n1024,10\n",
        8 * nodes
    );
    Table::parse(&text).unwrap()
}

/// Every kind of the public tables and some relatives.
#[test]
fn kinds_of_tables_are_known() {
    let catalog = catalog();
    let kinds = "A100-4GPU-Slingshot A100-4GPU-mesh A100-SXM-EFA A100-SXM-IB A100-SXM-NVSwitch \
                 A100-SXM-RoCE B200-SXM-IB B200-SXM-NVSwitch B200-SXM-RoCE GB200-NVL72 \
                 GH200-4GPU-Slingshot H100-SXM-EFA H100-SXM-IB H100-SXM-NVSwitch H100-SXM-TCPX \
                 H100-SXM-TCPXO H200-SXM-NVSwitch H200-SXM-RoCE MI300X-RoCE MI300X-xGMI \
                 MI355X-RoCE RTX2080Ti-PCIe3 RTX4090-PCIe-P2P RTX4090-PCIe-noP2P RTX5090-PCIe5 \
                 T4-PCIe-EFA V100-1GPU-100G V100-DGX2-NVSwitch V100-PCIe-or-host V100-SXM-EFA \
                 H100-SXM-RoCE H200-SXM-EFA V100-SXM-IB L40S-PCIe A100-PCIe H20-SXM-IB \
                 RTX3090-PCIe3 MI250X-Slingshot A6000-NVLink-pairs B300-SXM-IB";
    for kind in kinds.split_whitespace() {
        for nodes in [1, 2] {
            let text = format!(
                "# collective: all_reduce\n# gpus: {}\n# nodes: {nodes}\n# kind: {kind}\n\
                 # inter_link: RoCE, 8 x 400 Gb/s a node\nbytes,time_us\n1024,10\n",
                2 * nodes
            );
            let table = Table::parse(&text).unwrap();
            let site = Site::of_table(&catalog, &table).unwrap();
            assert!(site.predict(1 << 20, &Calibration::default()).unwrap().time_us > 0.0);
        }
    }
    let unknown = "# collective: all_reduce\n# gpus: 2\n# nodes: 1\n# kind: H1000-SXM\n8,1\n";
    let table = Table::parse(&unknown.replace("H1000-SXM", "Gaudi3-RoCE")).unwrap();
    let told = Site::of_table(&catalog, &table).unwrap_err().to_string();
    assert!(told.starts_with("no cluster is called Gaudi3-RoCE: known are for"), "{told}");
    let told = catalog.cluster("h100x9").unwrap_err().to_string();
    assert!(told.contains("h100x8"), "{told}");
}

/// A card's form decides over its links, so it is looked for first.
#[test]
fn a_pcie_card_is_no_board() {
    let catalog = catalog();
    for (kind, model, cluster) in [
        ("A100-80GB-PCIe", "", "a100-pcie"),
        ("H100-80GB-PCIe", "", "h100-pcie"),
        ("A100", "A100-PCIE-40GB", "a100-pcie"),
        ("", "NVIDIA A100-PCIE-40GB", "a100-pcie"),
        ("NVIDIA H100 PCIe", "", "h100-pcie"),
        ("NVIDIA H100 NVL", "", "h100-nvl"),
        ("H200-NVL", "", "h100-nvl"),
        ("Tesla V100-PCIE-32GB", "", "v100x4-pcie"),
        ("V100-DGX2-IB", "", "v100-dgx2"),
        ("V100-DGX2-RoCE", "", "v100-dgx2"),
        ("NVIDIA H100 80GB HBM3", "", "h100x8"),
        ("NVIDIA A100-SXM4-80GB", "", "dgx-a100"),
        ("GB200-NVL36", "", "gb200-nvl72"),
        ("B300-OAM", "", "b300x8"),
        ("AMD Instinct MI300X", "", "mi300x"),
    ] {
        let site = Site::of_table(&catalog, &table(1, kind, model, "none")).unwrap();
        assert_eq!(site.cluster.name, cluster, "{kind} {model}");
    }
    assert_eq!(catalog.cluster("b300").unwrap().name, "b300x8");
}

/// An answer with a relative's times says so, and nothing measured backs it.
#[test]
fn a_relative_is_named_and_extrapolated() {
    let catalog = catalog();
    for (kind, cluster) in [
        ("MI210-PCIe", "mi250x"),
        ("P100-PCIe", "v100x4-pcie"),
        ("P100-NVLink", "v100-dgx1"),
        ("RTX-PRO-6000-Blackwell", "5090x4-pcie"),
        ("H20-SXM-IB", "h200x8"),
        ("H20", "h200x8"),
        ("MI325X-OAM", "mi300x"),
        ("H200-NVL", "h100-nvl"),
    ] {
        let site = Site::of_table(&catalog, &table(1, kind, "", "none")).unwrap();
        assert_eq!(site.cluster.name, cluster, "{kind}");
        let told = site.understood.taken_for.clone().unwrap_or_default();
        assert!(
            told.starts_with(&format!("{kind} is not known, and taken for {cluster} (")),
            "{told}"
        );
        assert!(site.extrapolated(), "{kind}");
    }
    for kind in ["H100-SXM-IB", "A100-SXM-NVSwitch", "H100-80GB-PCIe", "A6000-PCIe"] {
        let site = Site::of_table(&catalog, &table(1, kind, "", "none")).unwrap();
        assert_eq!(site.understood.taken_for, None, "{kind}");
    }
    // Their cards are measured under another name, they are not.
    for name in ["b300x8", "gb300-nvl72", "h100-pcie", "v100-dgx1"] {
        let cluster = catalog.cluster(name).unwrap();
        assert!(!cluster.backs(Collective::AllReduce, 1), "{name}");
    }
}

#[test]
fn products_are_found_by_the_names_that_people_type() {
    let catalog = catalog();
    for (name, cluster) in [
        ("p5.48xlarge", "p5"),
        ("p5en.48xlarge", "p5en"),
        ("p4d.24xlarge", "p4d"),
        ("a3-megagpu-8g", "a3-mega"),
        ("a3-highgpu-8g", "a3"),
        ("a2-highgpu-8g", "a2"),
        ("Standard_ND96isr_H100_v5", "ndv5"),
        ("Standard_ND96asr_v4", "ndv4"),
        ("BM.GPU.H100.8", "h100x8-roce"),
        ("rtx4090", "4090x8-pcie"),
        ("RTX 4090", "4090x8-pcie"),
    ] {
        assert_eq!(catalog.cluster(name).unwrap().name, cluster, "{name}");
    }
    for wrong in ["a4000", "K80-PCIe", "h100x9", "mi350"] {
        let told = catalog.cluster(wrong).unwrap_err().to_string();
        assert!(!told.contains('~'), "{told}");
        let Some((_, near)) = told.split_once("nearest are ") else { continue };
        let near: Vec<&str> = near.split(';').next().unwrap().split(", ").collect();
        let mut clusters: Vec<&str> =
            near.iter().map(|name| catalog.cluster(name).unwrap().name.as_str()).collect();
        clusters.dedup();
        assert_eq!(clusters.len(), near.len(), "{told}");
    }
    let two: Vec<String> = catalog
        .clusters
        .iter()
        .flat_map(|it| std::iter::once(&it.name).chain(&it.aliases))
        .filter(|name| {
            catalog
                .cluster(name)
                .is_ok_and(|found| found.name != **name && !found.aliases.contains(name))
        })
        .cloned()
        .collect();
    assert!(two.is_empty(), "names of two clusters: {two:?}");
}

/// Free text about links, and what it says of a node with 8 GPUs.
#[test]
fn links_are_understood() {
    let catalog = catalog();
    for (kind, link, understood) in [
        ("A100-SXM-NVSwitch", "EFA 400 Gb/s", "4 x 100 Gb/s EFA"),
        ("A100-SXM-IB", "1 NIC per GPU, 200 Gb/s", "8 x 200 Gb/s InfiniBand"),
        ("H100-SXM-IB", "InfiniBand NDR 400 Gb/s NICs, 8 a node", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "400 Gb/s NICs (8 a node)", "8 x 400 Gb/s InfiniBand"),
        ("A100-SXM-IB", "200 Gb/s NICs, four a node", "4 x 200 Gb/s InfiniBand"),
        ("H100-SXM-IB", "dual-port 2x200G CX7 per GPU", "16 x 200 Gb/s InfiniBand"),
        ("A100-SXM-IB", "two HDR rails", "2 x 200 Gb/s InfiniBand"),
        ("A100-SXM-NVSwitch", "100 Gb/s Ethernet TCP", "1 x 100 Gb/s TCP"),
        ("H100-SXM-IB", "InfiniBand, 4 x 400 Gb/s a node", "4 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "8x NDR 400G", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "4 NICs HDR200", "4 x 200 Gb/s InfiniBand"),
        ("H100-SXM-IB", "16 x 200Gbps EFA", "16 x 200 Gb/s EFA"),
        ("H100-SXM-IB", "3.2 Tbps EFAv2", "32 x 100 Gb/s EFA"),
        ("H100-SXM-IB", "RoCE v2 8*400GbE ConnectX-7", "8 x 400 Gb/s RoCE"),
        ("H100-SXM-IB", "1 x 100 Gb/s TCP", "1 x 100 Gb/s TCP"),
        ("H100-SXM-IB", "HDR100", "8 x 100 Gb/s InfiniBand"),
        ("H100-SXM-IB", "8 x 50 GB/s", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "eight 400 Gb/s", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "400 Gb/s x 8", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "400 Gb/s x8", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "BlueField-3, 2 x 200GbE", "2 x 200 Gb/s InfiniBand"),
        ("H100-SXM-IB", "8 x 400 Gb/s, one per GPU", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "4 NICs, 200 Gb/s per GPU", "4 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "four rails of NDR200", "4 x 200 Gb/s InfiniBand"),
        ("A100-SXM-IB", "one 200Gb HDR NIC per pair of GPUs", "4 x 200 Gb/s InfiniBand"),
        ("A100-SXM-IB", "200 Gb/s per 2 GPUs", "4 x 200 Gb/s InfiniBand"),
        ("A100-SXM-IB", "1 HCA for every 4 GPUs, HDR", "2 x 200 Gb/s InfiniBand"),
        ("A100-SXM-IB", "HDR, 2 GPUs per NIC", "4 x 200 Gb/s InfiniBand"),
        ("A100-SXM-IB", "one NIC shared by two GPUs, 100 Gb/s", "4 x 100 Gb/s InfiniBand"),
        ("A100-SXM-IB", "a 100 Gb/s NIC per GPU pair", "4 x 100 Gb/s InfiniBand"),
        ("H100-SXM-IB", "not in the log", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "PCIe x16 HCAs, NDR", "8 x 400 Gb/s InfiniBand"),
        ("H100-SXM-IB", "InfiniBand (reaches 48.9 GB/s)", "8 x 400 Gb/s InfiniBand"),
    ] {
        let site = Site::of_table(&catalog, &table(2, kind, "", link)).unwrap();
        assert_eq!(site.understood.links.as_deref(), Some(understood), "{kind}: {link}");
    }
    let alone = Site::of_table(&catalog, &table(1, "H100-SXM-IB", "", "two HDR rails")).unwrap();
    assert_eq!(alone.understood.links, None);
}

#[test]
fn a_header_says_which_nics() {
    let catalog = catalog();
    for (link, network, gbps) in [
        ("InfiniBand NDR, 8 x 400 Gb/s a node (by product)", "ib", 400.0),
        ("RoCE, 16 x 100 Gb/s a node", "roce", 200.0),
        ("InfiniBand HDR, NIC count not stated (2 likely)", "ib", 50.0),
        ("RDMA NIC a GPU; not stated (reaches 48.9 GB/s, so 400 Gb/s NDR)", "ib", 400.0),
        ("EFA, 4 x 100 Gb/s a node", "efa", 50.0),
        ("EFA 3200 Gb/s a node", "efa", 400.0),
        ("EFA, 3.2 Tb/s", "efa", 400.0),
        ("Ethernet 100 Gb/s a node", "tcp", 12.5),
        ("InfiniBand HDR, 200 Gb/s a GPU", "ib", 200.0),
        ("RoCE (mlx5), 8 NICs a node, rate not stated (400 Gb/s typical)", "roce", 400.0),
    ] {
        let text = format!(
            "# collective: all_reduce\n# gpus: 16\n# nodes: 2\n# kind: H100-SXM-IB\n\
             # inter_link: {link}\n8,1\n"
        );
        let cluster = Table::parse(&text).unwrap().cluster(&catalog).unwrap();
        assert_eq!(cluster.network.as_deref(), Some(network), "{link}");
        assert!((cluster.node_net_gbps() - gbps).abs() < 1e-9, "{link}: {cluster:?}");
    }
}

#[test]
fn what_of_a_table_is_passed_over_is_told() {
    let head = "# collective: all_reduce\n# gpus: 8\n# nodes: 1\n# kind: H100-SXM-NVSwitch\n";
    let strange =
        format!("{head}# settings: NCCL_ALGO=Foo, NCCL_IB_HCA=mlx5\nbytes,time_us\n8,10\n");
    let table = Table::parse(&strange).unwrap();
    assert_eq!(table.notes.len(), 1, "{:?}", table.notes);
    assert!(table.notes[0].starts_with("settings: NCCL_ALGO=Foo: no \"foo\""), "{:?}", table.notes);
    let site = Site::of_table(&catalog(), &table).unwrap();
    assert_eq!(site.understood.notes, table.notes);
    let ms = Table::parse(&format!("{head}bytes,time_ms,busbw\n1024,0.5,1\n")).unwrap();
    assert_eq!(ms.points, [(1024, 500.0)]);
    let other = Table::parse(&format!("{head}bytes,busbw\n1024,0.5\n")).unwrap_err().to_string();
    assert!(other.contains("no column is the time: one of them, as `busbw`"), "{other}");
    let empty = Table::parse(&head.replace("H100-SXM-NVSwitch", "")).unwrap_err().to_string();
    assert!(empty.contains("no row") || empty.contains("`kind:` is empty"), "{empty}");
    let empty = format!("{}8,1\n", head.replace("H100-SXM-NVSwitch", ""));
    let empty = Table::parse(&empty).unwrap_err().to_string();
    assert!(empty.contains("`kind:` is empty: say which machine it was"), "{empty}");
}

/// A table whose node is another machine than its kind is refused, or says what it is taken for.
#[test]
fn a_node_has_the_gpus_of_its_machine() {
    let catalog = catalog();
    let site = |kind: &str, gpus: u32, nodes: u32| {
        let text = format!(
            "# collective: all_reduce\n# gpus: {gpus}\n# nodes: {nodes}\n# kind: {kind}\n1024,10\n"
        );
        Site::of_table(&catalog, &Table::parse(&text).unwrap())
    };
    for (kind, gpus, nodes) in [("H100-SXM-IB", 12, 1), ("GH200-4GPU-Slingshot", 16, 2)] {
        let told = site(kind, gpus, nodes).unwrap_err().to_string();
        assert!(told.contains(&format!("GPUs on a node are more than {kind} has")), "{told}");
    }
    for (kind, gpus, nodes, per_domain, card) in [
        ("GH200-NVL32", 32, 1, 32, "h100"),
        ("GH200-NVL32", 32, 8, 32, "h100"),
        ("GB200-NVL36", 72, 18, 36, "gb200"),
    ] {
        let it = site(kind, gpus, nodes).unwrap();
        assert_eq!((it.placement.per_domain, it.placement.card.name.as_str()), (per_domain, card));
        let told = it.understood.taken_for.clone().unwrap_or_default();
        assert!(told.contains(" is not known, and taken for "), "{told}");
        assert!(told.contains("GPUs in one domain of NVLink") && it.extrapolated(), "{told}");
    }
    let rack = site("GB200-NVL72", 72, 1).unwrap();
    assert_eq!((rack.placement.domains, rack.understood.taken_for.clone()), (1, None));
    assert!(rack.understood.notes[0].contains("taken for 18 of gb200-nvl72"), "{rack:?}");
    let host = site("Tesla V100-PCIE-32GB", 8, 1).unwrap();
    assert!(host.understood.notes[0].contains("with more cards") && host.extrapolated());
}

/// Names on the command line are understood as the kinds of tables are.
#[test]
fn names_are_understood_as_kinds_are() {
    let catalog = catalog();
    for (name, cluster) in [
        ("NVIDIA H100 80GB HBM3", "h100x8"),
        ("H100 SXM5 NVLink", "h100x8"),
        ("NVIDIA GH200 480GB", "gh200x4"),
        ("MI300X-OAM", "mi300x"),
        ("L40", "l40s-pcie"),
        ("NVIDIA A100-SXM4-80GB", "dgx-a100"),
        ("DGXH100 SXM", "h100x8"),
        ("Tesla V100-SXM2-16GB", "v100-dgx1"),
    ] {
        let (found, taken_for) = catalog.cluster_or_relative(name).unwrap();
        assert_eq!((found.name.as_str(), taken_for), (cluster, None), "{name}");
        assert!(!found.backs(Collective::AllReduce, 2), "{name}");
        let site = Site::of_table(&catalog, &table(1, name, "", "none"));
        assert!(site.is_err() || site.unwrap().cluster.name == cluster, "{name}");
    }
    let (_, taken_for) = catalog.cluster_or_relative("GB200-NVL36").unwrap();
    assert!(taken_for.unwrap().ends_with("with 36 GPUs in one domain of NVLink"));
    for wrong in ["h100x9", "H1000-SXM", "Gaudi3-RoCE", "K80-PCIe", ""] {
        let told = catalog.cluster_or_relative(wrong).unwrap_err().to_string();
        assert!(told.starts_with("no cluster is called"), "{wrong}: {told}");
    }
}

/// Rows as spreadsheets and programs write them.
#[test]
fn tables_are_read_by_their_column_names() {
    let head = "# collective: all_reduce_perf\n# gpus: 8\n# nodes: 1\n# kind: H100-SXM-NVSwitch\n";
    let points = |rows: &str| Table::parse(&format!("{head}{rows}")).unwrap().points;
    let right = [(64 << 10, 30.0), (1 << 20, 76.0)];
    for rows in [
        "64K,30\n1M,76\n",
        "bytes;time_us\n65536;30\n1.048576e6;76\n",
        "time_ms\tsize\n0.03\t64KiB\n0.076\t1MiB\n",
        "size,count,type,redop,root,time,algbw\n65536,16384,float,sum,-1,30,2\n1048576,1,float,sum,-1,76,13\n",
        "\u{1b}[32m2026-01-02T03:04:05Z pod-1 | 64K,30\u{1b}[0m\npod-1 | 1M,76\n",
    ] {
        let read = points(rows);
        let near = |(one, other): (&(u64, f64), &(u64, f64))| {
            one.0 == other.0 && (one.1 - other.1).abs() < 1e-9
        };
        assert!(read.len() == 2 && read.iter().zip(&right).all(near), "{rows}: {read:?}");
    }
    let refused = |rows: &str| Table::parse(&format!("{head}{rows}")).unwrap_err().to_string();
    assert!(refused("time_us,foo\n8,1\n").starts_with("line 5: no column is the size"));
    assert!(refused("bytes,time_us\n1M,76\n2M,soon\n").starts_with("line 7: "));
    for name in
        ["all_reduce_perf", "ncclAllReduce", "./build/all_reduce_perf", "all_reduce_perf_mpi"]
    {
        assert_eq!(name.parse(), Ok(Collective::AllReduce), "{name}");
    }
    assert!(Table::are_in(&format!("{head}8,1\n")) && !Table::are_in("# size time\n 8 2 float"));
}
