//! Dumps as NCCL writes them, made from a script: what every rank called, and how far it got.

use serde_json::{Value, json};

/// A call of a script.
#[derive(Clone, Debug)]
pub(super) struct Said {
    group: usize,
    name: String,
    numel: u64,
    dtype: &'static str,
    state: &'static str,
    ns: Option<u64>,
    batched: bool,
    backend: &'static str,
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Fake {
    pub(super) groups: Vec<(&'static str, Vec<u32>)>,
    /// Per rank; `None` for a rank without a dump.
    pub(super) ranks: Vec<Option<Vec<Said>>>,
    /// Per rank, how many of its first calls the ring has dropped.
    pub(super) dropped: Vec<usize>,
}

pub(super) fn done(name: &str, numel: u64) -> Said {
    Said {
        group: 0,
        name: name.to_owned(),
        numel,
        dtype: "Float",
        state: "completed",
        ns: None,
        batched: false,
        backend: "nccl",
    }
}

pub(super) fn pending(name: &str, numel: u64) -> Said {
    Said { state: "scheduled", ..done(name, numel) }
}

impl Said {
    pub(super) fn in_group(self, group: usize) -> Said {
        Said { group, ..self }
    }

    /// Part of a batch, which `coalesced` ends.
    pub(super) fn batched(self) -> Said {
        Said { batched: true, ..self }
    }

    pub(super) fn at(self, ns: u64) -> Said {
        Said { ns: Some(ns), ..self }
    }

    /// As gloo's recorder has it: only `retired` tells of an end.
    pub(super) fn gloo(self) -> Said {
        Said { backend: "gloo", ..self }
    }

    pub(super) fn dtype(self, dtype: &'static str) -> Said {
        Said { dtype, ..self }
    }
}

impl Fake {
    /// Every rank of the world says the same.
    pub(super) fn new(world: u32, said: &[Said]) -> Fake {
        Fake {
            groups: vec![("default_pg", (0..world).collect())],
            ranks: (0..world).map(|_| Some(said.to_vec())).collect(),
            dropped: vec![0; world as usize],
        }
    }

    pub(super) fn group(mut self, desc: &'static str, ranks: &[u32]) -> Fake {
        self.groups.push((desc, ranks.to_vec()));
        self
    }

    pub(super) fn rank(mut self, rank: usize, said: &[Said]) -> Fake {
        self.ranks[rank] = Some(said.to_vec());
        self
    }

    pub(super) fn no_dump(mut self, rank: usize) -> Fake {
        self.ranks[rank] = None;
        self
    }

    pub(super) fn dropped(mut self, rank: usize, calls: usize) -> Fake {
        self.dropped[rank] = calls;
        self
    }

    pub(super) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let ranks = (0u32..).zip(&self.ranks);
        let dumps = ranks.filter_map(|(rank, said)| Some((rank, said.as_ref()?)));
        dumps
            .map(|(rank, said)| {
                (format!("nccl_trace_rank_{rank}"), self.dump(rank, said).to_string().into_bytes())
            })
            .collect()
    }

    fn dump(&self, rank: u32, said: &[Said]) -> Value {
        let own = |ranks: &Vec<u32>| ranks.contains(&rank);
        let groups = self.groups.iter().enumerate().filter(|(_, (_, ranks))| own(ranks));
        let config: serde_json::Map<_, _> = groups
            .map(|(at, (desc, ranks))| {
                let config =
                    json!({"name": at.to_string(), "desc": desc, "ranks": format!("{ranks:?}")});
                (at.to_string(), config)
            })
            .collect();
        let mut seqs = vec![(0, 0); self.groups.len()];
        let entries: Vec<Value> = said
            .iter()
            .enumerate()
            .map(|(at, said)| {
                let batch = said.name == "coalesced";
                let p2p = batch || said.name.contains("->") || said.name.contains("<-");
                let seq = &mut seqs[said.group];
                match (p2p, said.batched || batch) {
                    // The calls of a batch share a number with it; a script has one batch.
                    (true, true) => seq.1 = 1,
                    (true, false) => seq.1 += 1,
                    (false, _) => seq.0 += 1,
                }
                let ns = said.ns.unwrap_or(1_000_000 * at as u64 + 1000 * u64::from(rank));
                let (ended, gloo) = (said.state == "completed", said.backend == "gloo");
                let completed = (ended && !gloo).then_some(1_700_000_000_000_500_000 + ns);
                json!({
                    "record_id": at, "pg_id": said.group,
                    "process_group": [said.group.to_string(), self.groups[said.group].0],
                    "collective_seq_id": seq.0, "p2p_seq_id": seq.1, "op_id": at,
                    "profiling_name": format!("{}:{}", said.backend, said.name),
                    "time_created_ns": 1_700_000_000_000_000_000 + ns,
                    "time_discovered_completed_ns": completed,
                    "input_sizes": [[said.numel]], "input_dtypes": [said.dtype],
                    "output_sizes": [[said.numel]], "output_dtypes": [said.dtype],
                    "state": if gloo { "scheduled" } else { said.state }, "retired": ended, "timeout_ms": 600_000,
                    "is_p2p": p2p,
                })
            })
            .skip(self.dropped[rank as usize])
            .collect();
        json!({"version": "2.10", "pg_config": config, "entries": entries})
    }
}
