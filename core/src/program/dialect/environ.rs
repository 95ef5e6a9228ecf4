//! `os.environ["RANK"]` and `os.environ["MASTER_ADDR"] = "localhost"` as calls: Starlark's values do
//! not know which rank reads them.

/// Rewrites them in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find("environ[")) {
        let open = at + found + "environ".len();
        at = open + 1;
        let Some(close) = closing(mask, open) else { return };
        let after = mask.get(close + 1..).unwrap_or_default().trim_start();
        let assigned = after.starts_with('=') && !after.starts_with("==");
        if assigned && mask[..open].trim_start().starts_with("os.environ") {
            let value = mask.len() - after.len() + 1;
            let end = mask.trim_end().len();
            for text in [&mut *text, &mut *mask] {
                text.insert(end, ')');
                text.replace_range(close..value, ",");
                text.replace_range(open..=open, "._set(");
            }
        } else {
            for text in [&mut *text, &mut *mask] {
                text.replace_range(close..=close, ")");
                text.replace_range(open..=open, "._item(");
            }
        }
    }
}

/// Where the bracket at `open` closes.
fn closing(mask: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in mask.get(open..)?.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + at);
        }
    }
    None
}
