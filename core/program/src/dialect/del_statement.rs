//! `del d[key]` as `_delete(d, key)`; a name that is deleted needs no end.

use crate::dialect::expressions::expression;
use crate::dialect::operand::closing;
use crate::dialect::scan::Logical;

/// The rewritten statement; `None` for a target that cannot be deleted here.
pub(super) fn statement(own: &Logical) -> Option<String> {
    let start = own.mask.len() - own.mask.trim_start().len();
    let end = own.mask.trim_end().len();
    let at = start + own.mask[start..end].strip_prefix("del ").map(|_| "del ".len())?;
    let (text, mask) = (own.text.get(at..end)?.trim_end(), own.mask.get(at..end)?);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let name = |part: &str| !part.trim().is_empty() && part.trim().chars().all(word);
    if mask.split(',').all(name) {
        return Some("pass".to_owned());
    }
    let open = mask.rfind('[')?;
    // The last subscript is what is deleted.
    let open = (0..=open).rev().find(|at| {
        mask.as_bytes().get(*at) == Some(&b'[')
            && closing(mask.as_bytes(), *at).map(|close| close + 1) == Some(mask.len())
    })?;
    let key = mask.get(open + 1..mask.len() - 1)?;
    if open == 0 || key.contains([':', ',']) {
        return None;
    }
    let (of, key) = (text.get(..open)?, text.get(open + 1..mask.len() - 1)?);
    let written = |part: &str| expression(part.trim(), own.asks);
    Some(format!("_delete({}, {})", written(of), written(key)))
}

#[cfg(test)]
mod tests {
    use super::super::rewrite;

    #[test]
    fn entries_are_deleted_and_names_need_no_end() {
        let text = "del x, y\ndel os.environ[\"A\"]\ndel d[f(1)]\n";
        let made = "pass\n_delete(os.environ, \"A\")\n_delete(d, f(1))\n";
        assert_eq!(rewrite(text).map(|made| made.text), Ok(made.to_owned()));
        assert!(rewrite("del x.y\n").is_err());
    }
}
