//! The calls that Python makes on objects implicitly and the interpreter does not: `x[key]` of an object with
//! `__getitem__`, and of dicts that make missing values (`defaultdict`), and `for x in y` of an object with
//! `__iter__` or `__next__`. Programs that have such objects are written with calls in these places.

use super::inline::{body, equals, simple};
use super::operand::{before, closing, opening};
use super::own_operators;
use crate::dialect::asked_methods::Asks;

/// The texts in a program that show that its objects have items.
const ITEMS: [&str; 6] = [
    "__method____getitem__(",
    "__method____setitem__(",
    "__method____delitem__(",
    "defaultdict",
    "Counter",
    "namedtuple",
];
const PIECES: [&str; 8] = [
    "__method____iter__(",
    "__method____next__(",
    "__method____getitem__(",
    "cycle(",
    "count(",
    "repeat(",
    " iter(",
    "islice(",
];

/// Words that a value does not end with.
const NO_VALUES: [&str; 10] =
    ["in", "return", "and", "or", "not", "if", "else", "is", "lambda", "assert"];

impl Asks {
    /// The questions of a text whose classes are rewritten; `sums` in any case.
    pub(super) fn of(text: &str, sums: bool) -> Asks {
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        Asks {
            items: has(&ITEMS),
            pieces: has(&PIECES),
            sums: sums || own_operators::sums(text),
            orders: own_operators::orders(text),
        }
    }

    /// True if arithmetic operators call methods of the program's classes.
    pub(super) fn sums(self) -> bool {
        self.sums
    }

    /// True if comparisons call methods of the program's classes.
    pub(super) fn orders(self) -> bool {
        self.orders
    }

    /// The same, where every comparison is a call: one of a number with a tensor can then say that it is not known.
    pub(super) fn comparing(self) -> Asks {
        Asks { orders: true, ..self }
    }

    /// True if loops ask iterators for one item after the other.
    pub(super) fn pieces(self) -> bool {
        self.pieces
    }

    /// Rewrites them in a statement and its mask, which stay of one length.
    pub(super) fn rewrite(self, text: &mut String, mask: &mut String) {
        through(text, mask, self.pieces);
        if self.items {
            items(text, mask);
        }
    }
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `for x in y` as `for x in _through(y)`: of names, attributes and texts, and, where a program has
/// something that is gone through piece by piece, of everything.
fn through(text: &mut String, mask: &mut String, all: bool) {
    let mut end = mask.len();
    while let Some(at) = mask.get(..end).and_then(|rest| rest.rfind("for ")) {
        end = at;
        // A loop that takes one piece after the other is written as a whole.
        let taken = all && mask[..at].trim().is_empty() && body(mask).is_none();
        if taken || mask[..at].ends_with(word) {
            continue;
        }
        let Some((from, to)) = iterable(mask, at + "for ".len()) else { continue };
        let own = &mask[from..to];
        let path = own.chars().all(|c| word(c) || c == '.') && !own.starts_with(char::is_numeric);
        let literal = own.chars().all(|c| c == '\u{1}');
        if own.is_empty() || !(path || literal || all) {
            continue;
        }
        for of in [&mut *text, &mut *mask] {
            of.insert(to, ')');
            of.insert_str(from, "_through(");
        }
    }
}

/// The iterable of a `for` whose names begin there.
pub(super) fn iterable(mask: &str, names: usize) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let mut from = None;
    let mut at = names;
    while let Some(c) = mask.get(at..).and_then(|rest| rest.chars().next()) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return Some((from?, mask[..at].trim_end().len())),
            ')' | ']' | '}' => depth -= 1,
            ':' | ',' if depth == 0 && from.is_some() => {
                return Some((from?, mask[..at].trim_end().len()));
            }
            c if word(c) => {
                let rest = &mask[at..];
                let length = rest.find(|c| !word(c)).unwrap_or(rest.len());
                match &rest[..length] {
                    "in" if depth == 0 && from.is_none() => {
                        let blank = rest[length..].len() - rest[length..].trim_start().len();
                        from = Some(at + length + blank);
                    }
                    // `a if b else c` goes through one of two: it is left as it is.
                    "if" | "for" if depth == 0 && from.is_some() => {
                        return Some((from?, mask[..at].trim_end().len()));
                    }
                    "lambda" if depth == 0 => return None,
                    _ => {}
                }
                at += length;
                continue;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    let end = mask.trim_end().len();
    from.filter(|from| *from < end).map(|from| (from, end))
}

/// `x[key]` as `_item(x, key)`, and `x[key] = y` as `_set_item(x, key, (y))`.
fn items(text: &mut String, mask: &mut String) {
    for range in simple(mask).into_iter().rev() {
        stored(text, mask, range);
    }
    let mut end = mask.len();
    while let Some(open) = mask.get(..end).and_then(|rest| rest.rfind('[')) {
        end = open;
        let Some((start, close)) = subscript(mask, open) else { continue };
        if is_target(mask, close + 1) {
            continue;
        }
        for of in [&mut *text, &mut *mask] {
            of.replace_range(close..=close, ")");
            of.replace_range(open..=open, ", ");
            of.insert_str(start, "_item(");
        }
        // The value in front of it may end with it: `x[a][b]`.
        end = open + "_item(".len();
    }
}

/// A subscript that opens at this place: the start of its value, and its closing bracket; `None` for a slice,
/// or for another bracket.
fn subscript(mask: &str, open: usize) -> Option<(usize, usize)> {
    let front = &mask[..open];
    let name = front.rsplit(|c| !word(c)).next().unwrap_or_default();
    if !front.ends_with(|c: char| word(c) || c == ')' || c == ']' || c == '\u{1}')
        || NO_VALUES.contains(&name)
    {
        return None;
    }
    let close = closing(mask.as_bytes(), open)?;
    let inside = &mask[open + 1..close];
    let mut depth = 0_usize;
    let slice = inside.chars().any(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ':' && depth == 0
    });
    if slice || inside.trim().is_empty() {
        return None;
    }
    Some((before(mask.as_bytes(), open)?, close))
}

/// True if the expression that ends at this place is an assignment target: `a[0], b[1] = c`.
fn is_target(mask: &str, end: usize) -> bool {
    let rest = mask[end..].trim_start();
    if rest.starts_with('=') {
        return !rest.starts_with("==");
    }
    if ["+=", "-=", "*=", "/=", "%=", "|=", "&=", "^="].iter().any(|own| rest.starts_with(own)) {
        return true;
    }
    let listed = rest.starts_with(',')
        && mask[..end].matches(['(', '[', '{']).count()
            == mask[..end].matches([')', ']', '}']).count();
    listed
        && simple(mask).into_iter().any(|(start, to)| {
            let last = equals(&mask[..to], start).and_then(|all| all.last().copied());
            start < end && last.is_some_and(|last| last > end)
        })
}

/// `x[key] = y`, and `x[key] += y`.
fn stored(text: &mut String, mask: &mut String, (start, end): (usize, usize)) {
    let Some(&[equal]) = equals(&mask[..end], start).as_deref() else {
        return augmented(text, mask, (start, end));
    };
    let target = mask[..equal].trim_end().len();
    let Some(open) = target_of(mask, start, target) else { return };
    for of in [&mut *text, &mut *mask] {
        of.insert_str(end, "))");
        of.replace_range(target - 1..=equal, ", (");
        of.replace_range(open..=open, ", ");
        of.insert_str(start, "_set_item(");
    }
}

/// The place where the subscript opens that a target between two places is.
fn target_of(mask: &str, start: usize, target: usize) -> Option<usize> {
    let whole = mask[..target].ends_with(']') && before(mask.as_bytes(), target) == Some(start);
    let open = start + opening(&mask.as_bytes()[start..target])?;
    let (from, _) = subscript(mask, open).filter(|_| whole)?;
    (from == start).then_some(open)
}

fn augmented(text: &mut String, mask: &mut String, (start, end): (usize, usize)) {
    let operator = ["+=", "-=", "*=", "/="].iter().find_map(|operator| {
        let at = mask[start..end].find(operator)? + start;
        let target = mask[..at].trim_end().len();
        Some((at, target, target_of(mask, start, target)?, &operator[..1]))
    });
    let Some((at, target, open, sign)) = operator else { return };
    let parts = |of: &str| {
        let (own, key) = (&of[start..open], &of[open + 1..target - 1]);
        (own.to_owned(), key.to_owned(), of[at + 2..end].trim().to_owned())
    };
    let call = |(own, key, value): (String, String, String), quote: char| {
        let sign = if quote == '"' { sign.to_owned() } else { quote.to_string() };
        format!("_augment_item({own}, {key}, {quote}{sign}{quote}, ({value}))")
    };
    let (new, masked) = (call(parts(text), '"'), call(parts(mask), '\u{1}'));
    text.replace_range(start..end, &new);
    mask.replace_range(start..end, &masked);
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use crate::dialect::asked_methods::Asks;

    fn written(text: &str, asks: Asks) -> String {
        let own = scan::scan(text).unwrap().remove(0);
        let (mut text, mut mask) = (own.text, own.mask);
        asks.rewrite(&mut text, &mut mask);
        assert_eq!(text.len(), mask.len());
        text
    }

    #[test]
    fn items_and_pieces_are_asked_for_by_calls() {
        let all = Asks { items: true, pieces: true, ..Asks::default() };
        for (text, made) in [
            ("x, y = d[i]", "x, y = _item(d, i)"),
            ("a[b[1]][c] = d[e]", "_set_item(_item(a, _item(b, 1)), c, ( _item(d, e)))"),
            ("d[k] += f(x)[0]", "_augment_item(d, k, \"+\", (_item(f(x), 0)))"),
            ("x[1:3] = [y]", "x[1:3] = [y]"),
            ("a[0], b[1] = c[2], 3", "a[0], b[1] = _item(c, 2), 3"),
            ("return [d[0], 1]", "return [_item(d, 0), 1]"),
            ("for i, x in enumerate(d): f(i)", "for i, x in _through(enumerate(d)): f(i)"),
            ("z = [x for x in y if x]", "z = [x for x in _through(y) if x]"),
        ] {
            assert_eq!(written(text, all), made, "{text}");
        }
        assert_eq!(written("for i in range(3):", Asks::default()), "for i in range(3):");
        assert_eq!(written("for i in self.x:", Asks::default()), "for i in _through(self.x):");
    }
}
