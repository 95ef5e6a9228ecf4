//! A rank that others started, and its end without rank 0.
//!
//! Rank 0's process ends the run for everybody, as long as it can. A rank that hears nothing more of it ends
//! by itself, as PyTorch's ranks do, each by its own watchdog: at once when the connection is gone; otherwise
//! (a process that is stopped, a cable that is pulled) when a call of its own is late, or when no word has
//! come for longer than any call may take. It then keeps its own dump, because no other process has it.

use crate::RankDump;
use lockstep_core::rank::GlobalRank;
use std::sync::Mutex;

/// Takes a rank's flight recorder dump when there is no rank 0 to send it to.
pub type KeepDump = Box<dyn Fn(&RankDump) + Send + Sync>;

/// The end of a rank without rank 0.
pub(crate) struct Alone {
    rank: GlobalRank,
    pub(super) keep: Option<KeepDump>,
    /// Removes the files that rank 0 would remove, the last of all.
    clear: Option<Box<dyn Fn() + Send + Sync>>,
    /// Held by the thread that ends the process: two may find out.
    pub(super) ending: Mutex<()>,
}

impl Alone {
    pub(crate) fn new(
        rank: GlobalRank,
        keep: Option<KeepDump>,
        clear: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Alone {
        Alone { rank, keep, clear, ending: Mutex::default() }
    }

    /// Removes the files that rank 0, which is gone, cannot remove.
    pub(super) fn clear(&self) {
        if let Some(clear) = &self.clear {
            clear();
        }
    }

    /// Says something in this rank's own output.
    pub(super) fn say(&self, what: &str) {
        // At once: other ranks write to the same place.
        let line = format!("lockstep rank: rank {}: {what}\n", self.rank);
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }
}
