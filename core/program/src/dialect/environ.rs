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
        // The statement among several in one line.
        let statement = mask[..open].rfind(';').map_or(0, |semicolon| semicolon + 1);
        if assigned && mask[statement..open].trim_start().starts_with("os.environ") {
            let value = mask.len() - after.len() + 1;
            let end = mask[value..].find(';').map_or(mask.len(), |semicolon| value + semicolon);
            let end = mask[..end].trim_end().len();
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
    named(text, mask);
}

/// `"RANK" in os.environ` as a look at its names.
fn named(text: &mut String, mask: &mut String) {
    const ENVIRON: &str = "os.environ";
    let mut at = 0;
    while let Some(found) = mask.get(at..).and_then(|rest| rest.find(ENVIRON)) {
        let start = at + found;
        at = start + ENVIRON.len();
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let before = mask[..start].trim_end();
        let within = before.strip_suffix("in").is_some_and(|rest| !rest.ends_with(word));
        let apart = before.len() < start;
        let goes_on = mask[at..].trim_start().starts_with(['.', '[', '(']);
        if within && apart && !goes_on && !mask[at..].starts_with(word) {
            for of in [&mut *text, &mut *mask] {
                of.insert_str(at, ".keys()");
            }
        }
    }
}

/// The place where the bracket at `open` closes.
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
