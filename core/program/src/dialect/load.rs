//! `load`, which is a word of Starlark's and a name in Python: `torch.load(path)`, `def load(path):`.

/// Writes the name as `_load` in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let found: Vec<usize> = mask.match_indices("load").map(|(at, _)| at).collect();
    for at in found.into_iter().rev() {
        if !mask[..at].ends_with(word) && !mask[at + "load".len()..].starts_with(word) {
            text.insert(at, '_');
            mask.insert(at, '_');
        }
    }
}
