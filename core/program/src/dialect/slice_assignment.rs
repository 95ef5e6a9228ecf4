//! `x[1:3] = y` as `_assign(x[1:3], (y))`: a slice can be assigned only in a tensor.

use crate::dialect::inline::{equals, simple};
use crate::dialect::operand::{before, opening};

/// Rewrites it in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    if !mask.contains("] =") && !mask.contains("]=") {
        return;
    }
    for (start, end) in simple(mask).into_iter().rev() {
        let Some(&[equals]) = equals(&mask[..end], start).as_deref() else { continue };
        let target = mask[..equals].trim_end().len();
        let whole = mask[..target].ends_with(']') && before(mask.as_bytes(), target) == Some(start);
        let open = opening(&mask.as_bytes()[start..target]).map_or(target, |at| start + at);
        let inside = &mask[open..target];
        if !whole || !(inside.contains(':') || inside.contains("_slice(")) {
            continue;
        }
        for of in [&mut *text, &mut *mask] {
            of.insert_str(end, "))");
            of.replace_range(target..=equals, ", (");
            of.insert_str(start, "_assign(");
        }
    }
}
