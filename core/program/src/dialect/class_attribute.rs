//! `x.__class__` as `type(x)`: modules and tensors have no such attribute here.

use super::operand::before;

/// Rewrites it in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    const ATTRIBUTE: &str = ".__class__";
    let mut end = mask.len();
    while let Some(at) = mask.get(..end).and_then(|rest| rest.rfind(ATTRIBUTE)) {
        end = at;
        let behind = &mask[at + ATTRIBUTE.len()..];
        let longer = behind.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = behind.trim_start();
        let assigned = rest.starts_with('=') && !rest.starts_with("==");
        let Some(start) = before(mask.as_bytes(), at).filter(|_| !longer && !assigned) else {
            continue;
        };
        for of in [&mut *text, &mut *mask] {
            of.replace_range(at..at + ATTRIBUTE.len(), ")");
            of.insert_str(start, "type(");
        }
        end = start + "type(".len() + (at - start);
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn a_class_is_asked_of_the_operand() {
        for (text, made) in [
            ("name = m.__class__.__name__", "name = type(m).__name__"),
            ("if f(x)[0].__class__ == A:", "if type(f(x)[0]) == A:"),
            ("a.b.__class__.c.__class__", "type(type(a.b).c)"),
            ("x.__class__ = B", "x.__class__ = B"),
        ] {
            let (mut own, mut mask) = (text.to_owned(), text.to_owned());
            rewrite(&mut own, &mut mask);
            assert_eq!((own.as_str(), mask.as_str()), (made, made));
        }
    }
}
