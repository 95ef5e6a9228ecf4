//! One rank's dump.

use super::entry::{Entry, Site};
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A larger file is refused: 2,000 entries with deep stacks take 2 MB.
pub const MAX_DUMP_BYTES: usize = 512 << 20;

/// One rank's dump, read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dump {
    /// The file's name.
    pub file_name: String,
    /// The rank that wrote it.
    pub rank: GlobalRank,
    /// The form in which it is written.
    pub form: Form,
    /// The recorder's version, `2.10`; `None` before torch 2.3.
    pub version: Option<String>,
    /// The process groups that the rank knew of, as listed; gloo's dumps list one of no name.
    pub groups: Vec<GroupConfig>,
    /// Per `pg_id`, how far its collectives have come; empty before torch 2.5.
    pub status: BTreeMap<u64, GroupStatus>,
    /// The common parts of entries.
    pub sites: Vec<Site>,
    /// The calls, oldest first.
    pub entries: Vec<Entry>,
    /// The size of the file.
    pub bytes: usize,
}

impl Dump {
    /// Removes the ends of collectives that the watchdog gave up.
    ///
    /// A recorder that watches a backend's calls sees when they end. A collective of that backend that it
    /// retired without having seen its end timed out, or its communicator was aborted (`ProcessGroupNCCL`'s
    /// watchdog retires calls that raised, too).
    pub(super) fn take_back_failed(&mut self) {
        let backend = |entry: &Entry| {
            let site = self.sites.get(entry.site as usize).filter(|site| !site.p2p)?;
            Some(site.profiling_name.split_once(':')?.0)
        };
        let watched: BTreeSet<&str> = self
            .entries
            .iter()
            .filter(|it| it.completed_ns.is_some())
            .filter_map(backend)
            .collect();
        let failed: Vec<bool> = match watched.is_empty() {
            true => return,
            false => {
                let of_watched =
                    |entry: &Entry| backend(entry).is_some_and(|it| watched.contains(it));
                self.entries.iter().map(|it| it.is_only_retired() && of_watched(it)).collect()
            }
        };
        for (entry, failed) in self.entries.iter_mut().zip(failed) {
            entry.completed &= !failed;
        }
    }
}

/// The form in which a dump is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Form {
    /// `_dump_fr_trace()`: everything.
    Pickle,
    /// `_dump_fr_trace_json()`: without stacks.
    Json,
}

/// A process group as a dump's `pg_config` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// Its unique name; empty in gloo's dumps, which then say nothing reliable.
    pub name: String,
    /// Its description.
    pub desc: String,
    /// Its members in group-rank order.
    pub ranks: Vec<GlobalRank>,
}

/// The progress of a group's collectives on a rank, also where the ring has dropped them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The number of the last that was called.
    pub last_enqueued: Option<u64>,
    /// The number of the last that was seen to end.
    pub last_completed: Option<u64>,
}
