//! `x.shape == (2, 3)`: a tuple that stands written where something is compared with it is compared
//! when it is looked at. The interpreter asks what is constant whether it equals the other side, and
//! a tuple of Starlark's knows no `torch.Size`.

use super::operand::{closing, wrap};

/// Rewrites them in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let mut at = 0;
    let next = |rest: &str| ["==", "!="].iter().filter_map(|word| rest.find(word)).min();
    while let Some(found) = mask.get(at..).and_then(next) {
        let operator = at + found + 2;
        at = operator;
        let blank = mask[operator..].len() - mask[operator..].trim_start_matches(' ').len();
        let start = operator + blank;
        if !mask[start..].starts_with('(') {
            continue;
        }
        let Some(end) = closing(mask.as_bytes(), start) else { continue };
        // `(a, b)[0]` and `(f)(x)` are no tuples.
        let more = mask[end + 1..].trim_start().starts_with(['[', '(', '.']);
        if !more && mask[start..end].contains(',') {
            wrap((text, mask), (start, end + 1), "_it(", ")");
            at = start + "_it(".len();
        }
    }
}
