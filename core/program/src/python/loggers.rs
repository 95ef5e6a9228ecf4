//! The settings of a process's loggers.

use std::collections::{BTreeMap, BTreeSet};

/// The settings of a process's loggers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loggers {
    /// By name, the root's being empty: from which level on a message is one.
    pub(crate) levels: BTreeMap<String, i32>,
    /// Those with handlers of their own.
    pub(crate) handled: BTreeSet<String>,
}

/// The least level of a shown message where nothing says otherwise.
pub(crate) const WARNING: i32 = 30;

impl Loggers {
    /// A logger and those above it: `a.b`, `a`, the root.
    fn above(name: &str) -> impl Iterator<Item = &str> {
        let parts = name.match_indices('.').map(|(at, _)| &name[..at]);
        let mut all: Vec<&str> = [""].into_iter().chain(parts).chain([name]).collect();
        all.reverse();
        all.into_iter()
    }

    /// True if a message of this level is printed. Without a handler Python prints warnings and above.
    pub(crate) fn tells(&self, name: &str, level: i32) -> bool {
        let own = Loggers::above(name).find_map(|of| self.levels.get(of).filter(|own| **own > 0));
        let handled = Loggers::above(name).any(|of| self.handled.contains(of));
        level >= own.copied().unwrap_or(WARNING) && (handled || level >= WARNING)
    }
}
