//! The fuzz target `clusters` (`fuzz/fuzz_targets/clusters.rs`) as a quick test: every reader of
//! this crate on the shipped files and on what nvidia-smi, NCCL and nccl-tests print, changed at
//! random places.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on must fail")]

use lockstep_clusters::import::{self, Hints};
use lockstep_clusters::{Catalog, Table, nccl_tests, toml_text};
use proptest::prelude::*;
use proptest::sample::Index;
use std::sync::LazyLock;

const CORPUS: [&str; 7] = [
    include_str!("../data/clusters/h100x8.toml"),
    include_str!("../data/clusters/gb200-nvl72.toml"),
    include_str!("../data/clusters/v100-dgx1.toml"),
    "# collective: all_reduce\n# gpus: 16\n# nodes: 2\n# kind: h100x8\n# inter_link: 8 x 400 Gb/s\n\
     # settings: NCCL_ALGO=Ring\nbytes,time_us,algbw_gbps,busbw_gbps\n1024,30.5,0.03,0.06\n\
     1048576,76.1,13.7,25.8\n268435456,1100,244,457\n",
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5\n\
     # Rank  0 Group  0 Pid 1 on host device  0 [0x07] NVIDIA H100 80GB HBM3\n\
     # Rank  1 Group  0 Pid 2 on host device  1 [0x0f] NVIDIA H100 80GB HBM3\n\
     #       size         count      type   redop    root     time   algbw   busbw #wrong\n\
     1024 256 float sum -1 20.0 0.05 0.05 0 20.0 0.05 0.05 0\n",
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tNV18\tPIX\tSYS\t0-31\n\
     GPU1\tNV18\t X \tSYS\tPIX\t0-31\nNIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X \n\
     NIC Legend:\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n",
    "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\"><pci busid=\"0000:07:00.0\" \
     class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" sm=\"90\" \
     rank=\"0\"><nvlink target=\"0000:0a:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu><nic>\
     <net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" port=\"1\" guid=\"0x1\" gdr=\"1\"/></nic>\
     </pci></cpu></system>",
];

static SHIPPED: LazyLock<Catalog> = LazyLock::new(|| Catalog::shipped().unwrap());

/// Each reader answers or refuses; a cluster that was read is written and read back unchanged.
fn read_as_everything(catalog: &Catalog, text: &str) {
    let mut catalog = catalog.clone();
    let _ = Table::parse(text);
    let _ = nccl_tests::read("all_reduce.txt", text);
    let imported = import::read(&catalog, text, &Hints { name: "mine".into(), ..Hints::default() });
    let read = catalog.add_text("a.toml", text).ok().or(imported.ok().map(|it| it.cluster));
    if let Some(cluster) = read {
        let _ = catalog.given_points(&cluster);
        assert_eq!(catalog.add_text("b.toml", &toml_text(&cluster)).as_ref(), Ok(&cluster));
    }
}

#[test]
fn what_is_right_is_read() {
    CORPUS.iter().for_each(|text| read_as_everything(&SHIPPED, text));
}

/// One change: at a place, so many bytes are replaced by others, or a piece of the text itself.
fn change() -> impl Strategy<Value = (Index, usize, Vec<u8>, Option<(Index, usize)>)> {
    let tokens = prop::sample::select(vec![
        "nan",
        "inf",
        "-1",
        "1e309",
        "0",
        "4294967296",
        "18446744073709551616",
        "\"",
        "]]",
        "[[given]]",
        "\n",
        "=",
        "<",
        "/>",
        "nodes_per_leaf = 0\n",
        "planes = 17\n",
        "oversubscription = 1e9\n",
        "\u{1F600}",
    ]);
    let junk = prop_oneof![
        tokens.prop_map(|token| token.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    (any::<Index>(), 0usize..12, junk, prop::option::weighted(0.2, (any::<Index>(), 0usize..80)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn changed_files_are_read_or_refused(
        which in 0..CORPUS.len(), changes in prop::collection::vec(change(), 1..6)
    ) {
        let mut bytes = CORPUS[which].as_bytes().to_vec();
        for (at, cut, junk, copied) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + cut).min(bytes.len());
            let piece = match copied {
                None => junk,
                Some((from, length)) => {
                    let from = from.index(bytes.len() + 1);
                    bytes[from..(from + length).min(bytes.len())].to_vec()
                }
            };
            bytes.splice(at..end, piece);
        }
        // As the fuzz target: what is no text is not read.
        read_as_everything(&SHIPPED, &String::from_utf8_lossy(&bytes));
    }
}
