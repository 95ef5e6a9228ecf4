//! `dist.isend(x, 1)` as a statement of its own, whose work nothing holds, as `_let_go(dist.isend(x, 1))`: to
//! gloo it makes a difference if something does.

use crate::dialect::inline::simple;
use crate::dialect::operand::{closing, wrap};

/// Calls whose works end when nothing holds them any more.
pub(super) const CALLS: [&str; 3] = ["isend", "irecv", "batch_isend_irecv"];

/// Rewrites it in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    if !CALLS.iter().any(|call| mask.contains(call)) {
        return;
    }
    for (start, end) in simple(mask).into_iter().rev() {
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let Some(rest) = mask.get(start..end) else { continue };
        let open = start + rest.find(|c| !part(c)).unwrap_or(rest.len());
        let called = mask.get(start..open).and_then(|path| path.rsplit('.').next());
        let whole = mask.as_bytes().get(open) == Some(&b'(')
            && closing(mask.as_bytes(), open).map(|at| at + 1) == Some(end);
        if whole && called.is_some_and(|called| CALLS.contains(&called)) {
            wrap((text, mask), (start, end), "_let_go(", ")");
        }
    }
}
