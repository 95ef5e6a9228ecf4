//! Properties of a program's classes: `meter.avg` as `_property(meter, "avg")`, since nothing can be
//! called for an attribute. It is marked in the whole text, and written as a call with the expressions.

use super::inline::{equals, simple};
use super::operand::before;
use super::scan::{self, Logical};

/// The mark behind the name of a property in that of the method which sets it.
pub(crate) const SETTER: &str = "__setter";

/// The mark behind the name of a property where it is asked for.
const MARK: &str = "__property__";

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The properties of a class, by its block.
pub(super) fn of(block: &[Logical]) -> Vec<String> {
    let pairs = block.windows(2).filter_map(|pair| {
        let [front, def] = pair else { return None };
        let name =
            def.mask.trim().strip_prefix("def ").filter(|_| front.mask.trim() == "@property")?;
        Some(name.chars().take_while(|c| word(*c)).collect())
    });
    pairs.collect()
}

/// True if a statement of a class is the decorator of a property's setter.
pub(super) fn is_setter(own: &Logical) -> bool {
    own.mask.trim().strip_prefix('@').is_some_and(|rest| rest.ends_with(".setter"))
}

/// The head of such a method, by its name here.
pub(super) fn setter(own: &Logical) -> Option<Logical> {
    let open = own.mask.find('(').filter(|_| own.mask.trim_start().starts_with("def "))?;
    let put = |of: &str| format!("{}{SETTER}{}", &of[..open], &of[open..]);
    Some(Logical { text: put(&own.text), mask: put(&own.mask), ..own.clone() })
}

/// The properties of a class that can be set.
pub(super) fn set(block: &[Logical]) -> Vec<String> {
    let setters = block.iter().filter(|own| is_setter(own));
    let names =
        setters.filter_map(|own| own.mask.trim().strip_prefix('@')?.strip_suffix(".setter"));
    names.map(str::to_owned).collect()
}

/// `x.name = value` as a call, of a property that can be set, where it is a statement by itself.
fn assigned(own: &Logical, names: &[String]) -> Option<String> {
    let [(start, end)] = simple(&own.mask)[..] else { return None };
    let plain = equals(&own.mask[..end], start)?;
    let (target, value, sign) = match plain[..] {
        [at] => (at, at + 1, None),
        _ => {
            let signs = ["+=", "-=", "*=", "/="].iter();
            let mut found = signs.filter_map(|sign| Some((own.mask[start..end].find(sign)?, sign)));
            let (at, sign) = found.next()?;
            (start + at, start + at + 2, Some(&sign[..1]))
        }
    };
    let target = own.mask[..target].trim_end().len();
    let dot = own.mask[start..target].rfind('.').map(|at| start + at)?;
    let name = own.mask.get(dot + 1..target)?;
    let whole = before(own.mask.as_bytes(), target) == Some(start);
    if !whole || !names.iter().any(|own| own == name) {
        return None;
    }
    let (of, value) = (&own.text[start..dot], own.text[value..end].trim());
    let value = match sign {
        Some(sign) => format!("{of}.{name}{MARK} {sign} ({value})"),
        None => value.to_owned(),
    };
    let (front, behind) = (&own.text[..start], &own.text[end..]);
    Some(format!("{front}_set_property({of}, \"{name}\", ({value})){behind}"))
}

/// The text with a mark behind each of those that is asked for.
pub(super) fn asked(lines: Vec<String>, names: &[String], set: &[String]) -> String {
    let text = lines.join("\n") + "\n";
    if names.is_empty() {
        return text;
    }
    let Ok(statements) = scan::scan(&text) else { return text };
    let mut lines = lines;
    for own in &statements {
        let mut places: Vec<usize> = Vec::new();
        for name in names {
            let dotted = format!(".{name}");
            let ends = own.text.match_indices(&dotted).map(|(at, _)| at + dotted.len());
            places.extend(ends.filter(|end| is_asked(own, *end, dotted.len())));
        }
        places.sort_unstable();
        // Two classes may have an attribute of one name.
        places.dedup();
        let mut made = own.text.clone();
        for at in places.into_iter().rev() {
            made.insert_str(at, MARK);
        }
        if let Some(call) = assigned(&marked(own, &made), set) {
            made = call;
        }
        let mut parts = made.split('\n');
        for line in lines.iter_mut().take(own.last + 1).skip(own.first) {
            if let Some(part) = parts.next() {
                part.clone_into(line);
            }
        }
    }
    lines.join("\n") + "\n"
}

/// A statement with its marks.
fn marked(own: &Logical, text: &str) -> Logical {
    let scanned = scan::scan(text).ok().and_then(|all| all.into_iter().next());
    scanned.unwrap_or_else(|| own.clone())
}

/// True if the attribute that ends at this place is read: it is not assigned, and not called. Inside a text
/// this holds only within the braces of an f-string.
fn is_asked(own: &Logical, end: usize, length: usize) -> bool {
    let (Some(text), Some(mask)) = (own.text.get(end..), own.mask.get(end..)) else { return false };
    if text.starts_with(word) {
        return false;
    }
    let dot = end - length;
    if own.mask.get(dot..=dot) != Some(".") {
        let Some(front) = own.text.get(..dot) else { return false };
        let object = front.trim_end_matches(|c: char| word(c) || c == '.');
        return object.ends_with('{') && object.len() < front.len();
    }
    let rest = mask.trim_start();
    let assigned = rest.starts_with('=') && !rest.starts_with("==");
    let augmented = rest.get(1..2) == Some("=") && rest.starts_with(['+', '-', '*', '/']);
    !rest.starts_with('(') && !assigned && !augmented
}

/// Writes the calls in a statement and its mask, which stay of one length.
pub(super) fn rewrite(text: &mut String, mask: &mut String) {
    while let Some(mark) = mask.find(MARK) {
        let dot = mask.get(..mark).and_then(|front| front.rfind('.'));
        let start = dot.and_then(|dot| before(mask.as_bytes(), dot));
        let (Some(dot), Some(start)) = (dot, start) else { break };
        let name = mask[dot + 1..mark].to_owned();
        let masked = format!(", {}{}{})", "\u{1}", "\u{1}".repeat(name.len()), "\u{1}");
        for (of, call) in [(&mut *text, format!(", \"{name}\")")), (&mut *mask, masked)] {
            of.replace_range(dot..mark + MARK.len(), &call);
            of.insert_str(start, "_property(");
        }
    }
}
