//! Writes the Flight Recorder dumps of a large job that hangs, to measure the diagnosis on.
//!
//! The job trains with data, tensor and pipeline parallelism, as Megatron does: every rank calls
//! its tensor-parallel group often, its data-parallel and the default group at each step. One rank
//! stops before a call; everybody else waits, directly or through others. Sizes, jitter and times
//! come from a seed.
//!
//! ```text
//! cargo run --release -p lockstep-diagnosis --example flight_recorder_dumps -- FOLDER [RANKS] [ENTRIES] [SEED]
//! ```

#![allow(clippy::unwrap_used, clippy::disallowed_types, reason = "a tool for measuring")]

use lockstep_core::dtype::Dtype;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Frame, TensorShape};
use lockstep_formats::flight_recorder::{Dump, Entry, Form, GroupConfig, GroupStatus, Site};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ranks of a tensor-parallel group.
const TENSOR_PARALLEL: u32 = 8;
/// Frames of a stack.
const DEPTH: u32 = 14;

/// splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A group that a rank is in.
struct Member {
    name: Arc<str>,
    desc: Arc<str>,
    ranks: Vec<GlobalRank>,
}

fn groups(rank: u32, world: u32) -> [Member; 3] {
    let tensor = rank / TENSOR_PARALLEL;
    let data = rank % TENSOR_PARALLEL;
    let first = tensor * TENSOR_PARALLEL;
    let member = |number: u32, desc: &str, ranks: &mut dyn Iterator<Item = u32>| Member {
        name: Arc::from(number.to_string()),
        desc: Arc::from(desc),
        ranks: ranks.map(GlobalRank).collect(),
    };
    [
        member(0, "default_pg", &mut (0..world)),
        member(
            1 + tensor,
            "TENSOR_MODEL_PARALLEL_GROUP",
            &mut (first..(first + TENSOR_PARALLEL).min(world)),
        ),
        member(
            1 + world + data,
            "DATA_PARALLEL_GROUP_WITH_CP",
            &mut (data..world).step_by(TENSOR_PARALLEL as usize),
        ),
    ]
}

/// The n-th call of every rank's program: group, name, elements.
fn call(at: u64) -> (usize, &'static str, u64) {
    match at % 25 {
        24 => (0, "nccl:all_reduce", 2),
        23 => (2, "nccl:_reduce_scatter_base", 1 << 20),
        22 => (2, "nccl:_all_gather_base", 1 << 17),
        n if n % 2 == 0 => (1, "nccl:_all_gather_base", 2048 * 5120 + n),
        n => (1, "nccl:_reduce_scatter_base", 2048 * 5120 + n),
    }
}

fn dump(rank: u32, world: u32, entries: u64, culprit: u32, mut seed: u64) -> Dump {
    let groups = groups(rank, world);
    seed ^= u64::from(rank) << 32;
    // The ring has dropped what came before.
    let before = 50_000;
    let stop = before + entries - 40;
    let mut seqs = [0u64; 3];
    for at in 0..before {
        seqs[call(at).0] += 1;
    }
    let frame = |place: u64, level: u32| Frame {
        function: format!("forward_{level}_{}", place % 25),
        file: format!("/workspace/megatron/core/transformer/layer_{level}.py"),
        line: 100 + level * 10 + (place % 25) as u32,
    };
    let mut sites: Vec<Site> = Vec::new();
    let mut site_of: BTreeMap<u64, u32> = BTreeMap::new();
    let mut list = Vec::new();
    for at in before..before + entries {
        // Past the culprit's stop, its own groups stand still, and soon all do.
        let (group, name, numel) = call(at);
        if at >= stop && (rank == culprit || at > stop + 25) {
            break;
        }
        let waits =
            at >= stop && (groups[group].ranks.contains(&GlobalRank(culprit)) || at > stop + 2);
        seqs[group] += 1;
        let site = *site_of.entry(at % 25).or_insert_with(|| {
            let tensor = |numel| vec![TensorShape { shape: vec![numel], dtype: Dtype::Bfloat16 }];
            sites.push(Site {
                profiling_name: Arc::from(name),
                pg_id: group as u64,
                group: Some(Arc::clone(&groups[group].name)),
                group_desc: Arc::clone(&groups[group].desc),
                p2p: false,
                inputs: tensor(numel),
                outputs: tensor(numel),
                timeout_ms: Some(600_000),
                stack: (0..DEPTH).map(|level| frame(at, level)).collect(),
            });
            sites.len() as u32 - 1
        });
        let created_ns = 1_790_000_000_000_000_000 + at * 400_000 + random(&mut seed) % 90_000;
        let completed_ns = (!waits).then(|| created_ns + 300_000 + random(&mut seed) % 90_000);
        list.push(Entry {
            site,
            started: !waits,
            completed: !waits,
            record_id: Some(at),
            collective_seq: Some(seqs[group]),
            p2p_seq: Some(0),
            created_ns,
            started_ns: None,
            completed_ns,
        });
    }
    let status = (0..).zip(seqs).map(|(pg_id, seq)| {
        let status = GroupStatus { last_enqueued: Some(seq), last_completed: None };
        (pg_id, status)
    });
    let config = groups.iter().map(|group| GroupConfig {
        name: group.name.to_string(),
        desc: group.desc.to_string(),
        ranks: group.ranks.clone(),
    });
    Dump {
        file_name: format!("nccl_trace_rank_{rank}"),
        rank: GlobalRank(rank),
        form: Form::Pickle,
        version: Some("2.10".to_owned()),
        groups: config.collect(),
        status: status.collect(),
        sites,
        entries: list,
        bytes: 0,
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| {
        eprintln!("usage: flight_recorder_dumps FOLDER [RANKS] [ENTRIES] [SEED]");
        std::process::exit(2)
    });
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (world, entries, seed) = (number(1024) as u32, number(2000), number(0));
    let culprit = (random(&mut (seed ^ 1)) % u64::from(world)) as u32;
    std::fs::create_dir_all(&folder).unwrap();
    let mut bytes = 0;
    for rank in 0..world {
        let dump = dump(rank, world, entries, culprit, seed);
        let pickle = dump.to_pickle();
        bytes += pickle.len();
        std::fs::write(std::path::Path::new(&folder).join(&dump.file_name), pickle).unwrap();
    }
    println!("{world} dumps, {bytes} bytes; rank {culprit} stopped");
}
