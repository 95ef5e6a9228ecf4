//! Loops that only wait: besides asking stores, they call only functions without effect.

use crate::dialect::scan::Logical;

/// True if a block that is indented deeper than `indent` only sleeps and asks stores.
pub(super) fn only_waits(after: &[Logical], indent: usize) -> bool {
    let called = |mask: &str| {
        let before = |(at, _): (usize, &str)| {
            let name = mask[..at].trim_end();
            let word = |c: char| c.is_alphanumeric() || c == '_';
            name.rsplit(|c| !word(c)).next().is_none_or(|name| WAITS.contains(&name))
        };
        mask.match_indices('(').all(before)
    };
    after.iter().take_while(|next| next.indent > indent).all(|next| called(&next.mask))
}

/// The calls of a loop that does nothing but wait: stores' methods, and those that go with them.
const WAITS: [&str; 21] = [
    "",
    "_truth",
    "sleep",
    "print",
    "set",
    "get",
    "add",
    "check",
    "wait",
    "append",
    "multi_get",
    "decode",
    "encode",
    "int",
    "str",
    "len",
    "if",
    "not",
    "and",
    "or",
    "in",
];
