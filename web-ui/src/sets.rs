//! Small collections without the sorts of the standard library, each of which is kilobytes of WebAssembly for each type of
//! item.

use std::collections::BTreeSet;

/// The set of some items. `collect` would sort them first.
pub(crate) fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

/// Sorts a few items by a key, by insertion. Items of one key stay in order.
pub(crate) fn sort_few<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && key(&items[at - 1]) > key(&items[at]) {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn few_are_sorted_as_the_standard_library_does(mut items: Vec<(u8, u32)>) {
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            sort_few(&mut items, |item| item.0);
            prop_assert_eq!(items, expected);
        }
    }
}
