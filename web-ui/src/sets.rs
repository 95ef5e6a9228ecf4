//! Sets, made one element after the other.

use std::collections::BTreeSet;

/// The set of some items. `collect` would sort them first: that is 6 KB of WebAssembly for each type of item.
pub(crate) fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}
