//! The ranks that change each key.

use crate::stores::Log;
use crate::stores::log::{At, Place, What};
use crate::stores::times::Times;
use lockstep_torch::c10d::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The changer of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// One rank, as often as it likes.
    By(usize),
    /// One rank, which sets it once: the operation, after how many barriers, the value, and when.
    SetOnce(At, u32, Vec<u8>, Option<Clock>),
    /// Several ranks.
    Shared,
}

impl Touched {
    /// True if no other rank changes the key.
    pub(super) fn only_by(touched: Option<&Touched>, rank: usize) -> bool {
        match touched {
            None => true,
            Some(Touched::By(by) | Touched::SetOnce((by, _), ..)) => *by == rank,
            Some(Touched::Shared) => false,
        }
    }
}

/// The changer of each key.
pub(super) fn touched(logs: &[Log], times: &Times) -> BTreeMap<(Arc<Place>, String), Touched> {
    let mut table: BTreeMap<(Arc<Place>, String), Touched> = BTreeMap::new();
    for (rank, log) in logs.iter().enumerate() {
        for (at, op) in log.ops.iter().enumerate().filter(|(_, op)| op.what.changes()) {
            for key in &op.keys {
                let known = table.get(&(op.store.clone(), key.clone()));
                let now = match (known, &op.what) {
                    (None, What::Set(value)) => {
                        let done = times.done((rank, at));
                        Touched::SetOnce((rank, at), op.barriers, value.clone(), done)
                    }
                    (known, _) if Touched::only_by(known, rank) => Touched::By(rank),
                    _ => Touched::Shared,
                };
                table.insert((op.store.clone(), key.clone()), now);
            }
        }
    }
    table
}
