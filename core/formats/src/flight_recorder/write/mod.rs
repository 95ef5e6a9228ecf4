//! Dumps as PyTorch writes them: pickles and JSON that its own tools read.
//!
//! The shapes, the order of the fields and the way in which strings and frames are remembered are
//! those of PyTorch's `torch/csrc/distributed/c10d/FlightRecorderDetail.hpp` (version 2.10) and
//! `torch/csrc/jit/serialization/pickler.cpp`.

mod json;
mod of_log;
mod pickler;

pub use of_log::dumps_of;

use super::{Dump, Entry, Site};
use lockstep_core::rank::GlobalRank;
use pickler::Pickler;

/// The version that is written where the dump names none.
const VERSION: &str = "2.10";

/// The entry where PyTorch writes the version of NCCL: the library that carried the calls out.
const WRITER: &str = "lockstep";

/// Under which key: before 2.10, and since.
const LIBRARIES: [&str; 2] = ["nccl_version", "comm_lib_version"];

/// True of a pickle that [`Dump::to_pickle`] has written.
pub fn is_written_by_lockstep(pickle: &[u8]) -> bool {
    let keys = LIBRARIES.map(str::as_bytes);
    // A key, how its value is remembered, and its value.
    const BETWEEN: usize = 16;
    pickle.windows(WRITER.len()).enumerate().any(|(at, window)| {
        let before = pickle.get(at.saturating_sub(BETWEEN + 16)..at).unwrap_or_default();
        window == WRITER.as_bytes()
            && keys.iter().any(|key| before.windows(key.len()).any(|window| window == *key))
    })
}

impl Dump {
    /// The dump as `torch._C._distributed_c10d._dump_fr_trace()` returns it.
    pub fn to_pickle(&self) -> Vec<u8> {
        let mut out = Pickler::new();
        out.dict(|out| {
            out.key("version", |out| out.text(self.written_version()));
            out.key("pg_config", |out| {
                out.dict(|out| {
                    for group in &self.groups {
                        out.key(&group.name, |out| {
                            out.dict(|out| {
                                out.key("name", |out| out.text(&group.name));
                                out.key("desc", |out| out.text(&group.desc));
                                out.key("ranks", |out| out.text(&ranks(&group.ranks)));
                            });
                        });
                    }
                });
            });
            out.key(self.library(), |out| out.text(WRITER));
            out.key("pg_status", |out| {
                out.dict(|out| {
                    for (pg_id, status) in &self.status {
                        out.key(&pg_id.to_string(), |out| {
                            out.dict(|out| {
                                let seqs = [
                                    ("last_enqueued_collective", status.last_enqueued),
                                    ("last_started_collective", None),
                                    ("last_completed_collective", status.last_completed),
                                ];
                                for (name, seq) in seqs {
                                    out.key(name, |out| out.number_or_never(seq));
                                }
                            });
                        });
                    }
                });
            });
            out.key("entries", |out| {
                out.list(|out| {
                    for entry in &self.entries {
                        if let Some(site) = self.site(entry) {
                            self.entry(out, entry, site);
                        }
                    }
                });
            });
        });
        out.finish()
    }

    fn entry(&self, out: &mut Pickler, entry: &Entry, site: &Site) {
        out.dict(|out| {
            out.key("frames", |out| {
                out.list(|out| site.stack.iter().for_each(|frame| out.frame(frame)));
            });
            out.key("record_id", |out| out.number(entry.record_id.unwrap_or(0)));
            out.key("pg_id", |out| out.number(site.pg_id));
            let group = site.group.as_deref().unwrap_or_default();
            out.key("process_group", |out| out.pair(group, &site.group_desc));
            out.key("thread_name", |out| out.text("python"));
            out.key("thread_id", |out| out.text("0"));
            out.key("collective_seq_id", |out| out.number(entry.collective_seq.unwrap_or(0)));
            out.key("p2p_seq_id", |out| out.number(entry.p2p_seq.unwrap_or(0)));
            let op = if site.p2p { entry.p2p_seq } else { entry.collective_seq };
            out.key("op_id", |out| out.number(op.unwrap_or(0)));
            out.key("profiling_name", |out| out.text(&site.profiling_name));
            out.key("time_created_ns", |out| out.number(entry.created_ns));
            for (sizes, dtypes, tensors) in [
                ("input_sizes", "input_dtypes", &site.inputs),
                ("output_sizes", "output_dtypes", &site.outputs),
            ] {
                out.key(sizes, |out| {
                    out.list(|out| {
                        for tensor in tensors {
                            out.list(|out| tensor.shape.iter().for_each(|size| out.number(*size)));
                        }
                    });
                });
                out.key(dtypes, |out| {
                    out.list(|out| tensors.iter().for_each(|t| out.text(t.dtype.scalar_type())));
                });
            }
            out.key("state", |out| out.text(state(entry)));
            out.key("time_discovered_started_ns", |out| out.number_or_none(entry.started_ns));
            out.key("time_discovered_completed_ns", |out| out.number_or_none(entry.completed_ns));
            out.key("retired", |out| out.boolean(entry.completed));
            out.key("timeout_ms", |out| out.number(site.timeout_ms.unwrap_or(0)));
            out.key("is_p2p", |out| out.boolean(site.p2p));
        });
    }

    fn written_version(&self) -> &str {
        self.version.as_deref().unwrap_or(VERSION)
    }

    /// The key of the library's version: it was renamed in 2.10.
    fn library(&self) -> &'static str {
        match self.version_pair() {
            Some(version) if version < (2, 10) => LIBRARIES[0],
            _ => LIBRARIES[1],
        }
    }
}

/// `[0, 1]`.
fn ranks(ranks: &[GlobalRank]) -> String {
    let ranks: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    format!("[{}]", ranks.join(", "))
}

/// Only `retired` shows that a call ended whose start was not seen, as gloo's never are.
fn state(entry: &Entry) -> &'static str {
    match (entry.started, entry.completed) {
        (true, true) => "completed",
        (true, false) => "started",
        (false, _) => "scheduled",
    }
}
