//! `global best`: module variables that a function assigns, as attributes of one object (`_globals.best`),
//! wherever they are used. If a name may be another one as well, the statement stays, and is refused.

use super::scan::{self, Logical};
use std::borrow::Cow;

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn named(statement: &Logical) -> Vec<&str> {
    let names = statement.mask.trim().strip_prefix("global ").map(|names| names.split(','));
    names.into_iter().flatten().map(str::trim).filter(|name| name.chars().all(word)).collect()
}

/// Rewrites a program.
pub(super) fn rewrite(text: &str) -> Cow<'_, str> {
    if !text.contains("global ") {
        return Cow::Borrowed(text);
    }
    let Ok(statements) = scan::scan(text) else { return Cow::Borrowed(text) };
    let mut names: Vec<&str> = statements.iter().flat_map(named).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| is_one(&statements, name));
    if names.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for own in &statements {
        let declared = named(own);
        let made = match declared.is_empty() {
            true => replaced(own, &names),
            // Others of the same statement are refused.
            false if declared.iter().all(|name| names.contains(name)) => {
                format!("{:1$}pass", "", own.indent)
            }
            false => continue,
        };
        let mut parts = made.split('\n');
        for line in lines.iter_mut().take(own.last + 1).skip(own.first) {
            *line = parts.next().unwrap_or_default().to_owned();
        }
    }
    Cow::Owned(lines.join("\n") + "\n")
}

/// The places of a name in a statement, as itself.
fn places(mask: &str, name: &str) -> Vec<usize> {
    let whole = |at: &usize| {
        let before = mask[..*at].chars().next_back();
        let behind = mask[at + name.len()..].chars().next();
        !before.is_some_and(|c| word(c) || c == '.') && !behind.is_some_and(word)
    };
    mask.match_indices(name).map(|(at, _)| at).filter(whole).collect()
}

/// True if the name at this place is the keyword of an argument: `f(best=1)`.
fn names_argument(mask: &str, at: usize, name: &str) -> bool {
    let depth = mask[..at].matches(['(', '[', '{']).count();
    let closed = mask[..at].matches([')', ']', '}']).count();
    let rest = mask[at + name.len()..].trim_start();
    depth > closed && rest.starts_with('=') && !rest.starts_with("==")
}

/// True if a name always means the module's variable: no function has an argument or a local variable of this
/// name.
fn is_one(statements: &[Logical], name: &str) -> bool {
    // The functions around a statement: how far in they stand, and whether they declare the name.
    let mut around: Vec<(usize, bool)> = Vec::new();
    for (at, own) in statements.iter().enumerate() {
        around.retain(|(indent, _)| *indent < own.indent);
        let mask = own.mask.as_str();
        let head = mask.trim_start();
        let found = places(mask, name);
        let introduces =
            ["def ", "import ", "from ", "class "].iter().any(|word| head.starts_with(word));
        if introduces && found.iter().any(|at| !names_value(mask, *at)) {
            return false;
        }
        if !found.is_empty() && (head.starts_with("nonlocal ") || head.starts_with("del ")) {
            return false;
        }
        let bound = |at: &usize| {
            let front = mask[..*at].trim_end();
            let ends = |word: &str| front.ends_with(word);
            ends(" for") || ends("lambda") || ends(" as") || front.trim_start() == "for"
        };
        if found.iter().any(bound) {
            return false;
        }
        if head.starts_with("def ") {
            let body = statements.get(at + 1..).unwrap_or_default();
            let body = body.iter().take_while(|next| next.indent > own.indent);
            let declares = body.into_iter().any(|next| named(next).contains(&name));
            around.push((own.indent, declares));
            continue;
        }
        let inside = around.last().is_some_and(|(_, declares)| !declares);
        if inside && found.iter().any(|at| is_assigned(mask, *at + name.len())) {
            return false;
        }
    }
    true
}

/// True if the name at this place is the default value of a parameter.
fn names_value(mask: &str, at: usize) -> bool {
    let front = mask[..at].trim_end();
    front.ends_with('=') && !front.ends_with("==")
}

/// True if the name that ends at this place is assigned a value, alone or in a list of targets.
fn is_assigned(mask: &str, end: usize) -> bool {
    let rest = mask[end..].trim_start();
    let operator = rest.trim_start_matches(['+', '-', '*', '/', '%', '|', '&', '^', '@', '<', '>']);
    let alone = operator.starts_with('=') && !operator.starts_with("==");
    let listed = rest.starts_with([',', ')']) && {
        let equals = mask.find(" = ");
        equals.is_some_and(|equals| equals >= end)
    };
    // `x < best <= y` is none.
    (alone && !rest.starts_with(['<', '>'])) || rest.starts_with(':') || listed
}

fn replaced(own: &Logical, names: &[&str]) -> String {
    let mut made = own.text.clone();
    let mut all: Vec<usize> = Vec::new();
    for name in names {
        let found = places(&own.mask, name);
        all.extend(found.into_iter().filter(|at| !names_argument(&own.mask, *at, name)));
        // In the braces of an f-string.
        let inside = |at: &usize| {
            let hidden = own.mask.get(*at..at + name.len()).is_some_and(|own| own != *name);
            hidden && own.text[..*at].ends_with('{')
        };
        all.extend(places(&own.text, name).into_iter().filter(inside));
    }
    all.sort_unstable();
    for at in all.into_iter().rev() {
        made.insert_str(at, "_globals.");
    }
    made
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn names_of_outside_become_attributes_of_one_object() {
        let text = "best = 0\ndef main(a=best):\n    global best\n    best = max(a, best)\n    \
                    f(best=best); x.best = 1\n    print(f\"{best} best\")\n";
        let made = "_globals.best = 0\ndef main(a=_globals.best):\n    pass\n    _globals.best = \
                    max(a, _globals.best)\n    f(best=_globals.best); x.best = 1\n    \
                    print(f\"{_globals.best} best\")\n";
        assert_eq!(rewrite(text), made);
        for own in [
            "def f(best):\n    print(best)\n",
            "def f():\n    best = 1\n",
            "x = [best for best in y]\n",
            "best = lambda best: 1\n",
        ] {
            let text = format!("best = 0\ndef main():\n    global best\n    best = 1\n{own}");
            assert_eq!(rewrite(&text), text);
        }
    }
}
