//! Works of sends and receives that only a name holds: `req = dist.isend(x, 1)` in a loop, where the next
//! turn releases the work, or in a function, where its end does. To gloo it makes a difference whether
//! anything still holds a work.
//!
//! A name is followed only if the text shows that nothing else can hold its works: the name is assigned,
//! asked (`req.wait()`), compared or iterated (`for r in reqs: r.wait()`), and not used otherwise in the
//! whole of its function. `req = …` is written as `req = _bound("req", …, True)`, and `return x` as `return
//! _ended(x)`.

use crate::dialect::inline::{equals, simple};
use crate::dialect::operand::closing;
use crate::dialect::scan::Logical;
use crate::dialect::unheld_works::CALLS;
use std::collections::{BTreeMap, BTreeSet};

/// The calls on a work that do not hand it on.
const ASKED: [&str; 5] =
    [".wait(", ".is_completed(", ".is_success(", ".exception(", ".source_rank("];

/// The names that are followed.
#[derive(Default)]
pub(super) struct Bound {
    /// The innermost function of each statement, by the function's first statement.
    within: Vec<Option<usize>>,
    /// By function, or the file itself.
    names: BTreeMap<Option<usize>, BTreeSet<String>>,
}

/// The names that are followed at a statement.
#[derive(Clone, Copy, Default)]
pub(super) struct Here<'b> {
    names: Option<&'b BTreeSet<String>>,
    /// True if the statement is in a function.
    function: bool,
}

impl Bound {
    /// Looks for them.
    pub(super) fn find(statements: &[Logical]) -> Bound {
        if !statements.iter().any(|one| CALLS.iter().any(|call| one.mask.contains(call))) {
            return Bound::default();
        }
        let within = functions(statements);
        let mut names: BTreeMap<Option<usize>, BTreeSet<String>> = BTreeMap::new();
        for (statement, function) in statements.iter().zip(&within) {
            for range in simple(&statement.mask) {
                if let Some((name, value)) = assignment(&statement.mask, range)
                    && held_by(value)
                {
                    names.entry(*function).or_default().insert(name.to_owned());
                }
            }
        }
        for (function, names) in &mut names {
            names.retain(|name| alone(name, *function, statements, &within));
        }
        names.retain(|_, names| !names.is_empty());
        Bound { within, names }
    }

    /// The names that are followed at a statement.
    pub(super) fn at(&self, statement: usize) -> Here<'_> {
        let function = self.within.get(statement).copied().flatten();
        Here { names: self.names.get(&function), function: function.is_some() }
    }

    /// True if works are followed by name in the function that begins with this statement.
    pub(super) fn begins(&self, statement: usize) -> bool {
        self.names.contains_key(&Some(statement))
    }
}

/// The innermost function around each statement, by its first statement.
pub(super) fn functions(statements: &[Logical]) -> Vec<Option<usize>> {
    let mut open: Vec<usize> = Vec::new();
    let mut within = Vec::with_capacity(statements.len());
    for (at, statement) in statements.iter().enumerate() {
        let ended =
            |def: &usize| statements.get(*def).is_some_and(|def| statement.indent <= def.indent);
        while open.last().is_some_and(ended) {
            open.pop();
        }
        within.push(open.last().copied());
        let head = statement.mask.trim();
        if crate::dialect::words::first_word(head) == "def" && head.ends_with(':') {
            open.push(at);
        }
    }
    within
}

/// `name = value` as its parts.
fn assignment(mask: &str, (start, end): (usize, usize)) -> Option<(&str, &str)> {
    let [at] = equals(mask.get(..end)?, start)?[..] else { return None };
    let (name, value) = (mask.get(start..at)?.trim(), mask.get(at + 1..end)?.trim());
    let plain = !name.is_empty() && name.chars().all(word);
    plain.then_some((name, value))
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// True if only the value of the expression holds the works: a call, or a list of calls.
fn held_by(value: &str) -> bool {
    if is_call(value) {
        return true;
    }
    let inside = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let mut depth = 0usize;
    let cut = |c: char| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let items = inside.unwrap_or_default().split(cut).map(str::trim);
    let mut items = items.filter(|item| !item.is_empty()).peekable();
    let call = |item: &str| is_call(item.find(" for ").map_or(item, |at| &item[..at]));
    items.peek().is_some() && items.all(call)
}

/// True if an expression is a single call of one of [`CALLS`].
fn is_call(value: &str) -> bool {
    let value = value.trim();
    let open = value.find(|c: char| !word(c) && c != '.').unwrap_or(value.len());
    let called = value[..open].rsplit('.').next().unwrap_or_default();
    CALLS.contains(&called)
        && value.as_bytes().get(open) == Some(&b'(')
        && closing(value.as_bytes(), open).map(|at| at + 1) == Some(value.len())
}

/// True if nothing but this name can hold the works that are assigned to it.
fn alone(
    name: &str,
    function: Option<usize>,
    statements: &[Logical],
    within: &[Option<usize>],
) -> bool {
    let mut waited: BTreeSet<&str> = BTreeSet::new();
    let mut through: BTreeSet<&str> = BTreeSet::new();
    let last = function.and_then(|def| {
        let own = statements.get(def)?;
        let behind = statements.get(def + 1..)?;
        Some(def + behind.iter().take_while(|one| one.indent > own.indent).count())
    });
    let first = function.unwrap_or(0);
    let last = last.unwrap_or(statements.len().saturating_sub(1));
    for (at, statement) in statements.iter().enumerate().take(last + 1).skip(first) {
        let mask = statement.mask.as_str();
        for (found, _) in mask.match_indices(".wait(") {
            waited.insert(mask[..found].rsplit(|c| !word(c)).next().unwrap_or_default());
        }
        for (start, _) in mask.match_indices(name) {
            let (before, behind) = (&mask[..start], &mask[start + name.len()..]);
            if before.ends_with(word) || behind.starts_with(word) {
                continue;
            }
            // Another one's attribute, or the keyword of an argument, has the name only.
            if before.trim_end().ends_with('.') {
                continue;
            }
            if within.get(at) != Some(&function) || mask.contains("lambda") {
                return false;
            }
            let given = simple(mask).into_iter().any(|range| {
                range.0 == start && assignment(mask, range).is_some_and(|(own, _)| own == name)
            });
            match gone_through(before, behind) {
                Some(each) => {
                    through.insert(each);
                }
                None if given || only_looked_at(before, behind) => {}
                None => return false,
            }
        }
    }
    // The variable of a loop over the list holds its last work.
    through.is_subset(&waited)
}

/// The loop variable of `for each in name:` or `[each.wait() for each in name]`.
fn gone_through<'m>(before: &'m str, behind: &str) -> Option<&'m str> {
    let each = before.trim_end().strip_suffix(" in")?.rsplit("for ").next()?.trim();
    let ends = behind.trim_start().starts_with([':', ']', ')']);
    (ends && !each.is_empty() && each.chars().all(word)).then_some(each)
}

/// True if the text around a name only queries it or compares it, and passes it to nothing.
fn only_looked_at(before: &str, behind: &str) -> bool {
    let behind = behind.trim_start();
    let called = before.strip_suffix('(').map(str::trim_end);
    let condition = |word: &str| {
        let rest = before.trim_end().strip_suffix(word);
        rest.is_some_and(|rest| !rest.ends_with(crate::dialect::held_works::word))
    };
    ASKED.iter().any(|asked| behind.starts_with(asked))
        || behind.starts_with(".append(")
        || behind.starts_with("is ")
        || (behind.starts_with(')') && called.is_some_and(|called| called.ends_with("len")))
        || (behind.starts_with(':') && ["if", "elif", "not", "while"].iter().any(|w| condition(w)))
}

impl Here<'_> {
    /// Rewrites a statement's uses of such names, in its text and its mask, which keep equal lengths.
    pub(super) fn rewrite(self, text: &mut String, mask: &mut String) {
        let Some(names) = self.names else { return };
        for (start, end) in simple(mask).into_iter().rev() {
            let part = &mask[start..end];
            if self.function && crate::dialect::words::first_word(part) == "return" {
                let from = start + "return".len();
                for of in [&mut *text, &mut *mask] {
                    of.insert(end, ')');
                    of.insert_str(from, " _ended(");
                }
                continue;
            }
            let Some((name, value)) = assignment(mask, (start, end)) else { continue };
            if !names.contains(name) {
                continue;
            }
            let held = if held_by(value) { "True" } else { "False" };
            let (name, from) = (name.to_owned(), end - value.len());
            let before = format!("_bound(\"{name}\", (");
            let masked = format!("_bound({}, (", "\u{1}".repeat(name.len() + 2));
            let behind = format!("), {held})");
            text.insert_str(end, &behind);
            mask.insert_str(end, &behind);
            text.insert_str(from, &before);
            mask.insert_str(from, &masked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rewrite;

    fn followed(body: &str) -> bool {
        let text = format!("def main(works):\n    {}\n", body.replace('\n', "\n    "));
        rewrite(&text).unwrap().text.contains("_bound(")
    }

    #[test]
    fn a_name_that_alone_holds_a_work_is_followed() {
        for body in [
            "req = dist.isend(x, 1)\nreq = dist.isend(x, 1)\nreq.wait()",
            "if rank == 0: req = dist.isend(x, 1)\nelse: dist.recv(x, 0)",
            "req = None\nreq = isend(x, 1)\nif req is not None:\n    req.wait()",
            "reqs = [dist.isend(x, 1), dist.irecv(y, 1)]\nfor r in reqs:\n    r.wait()",
            "reqs = [dist.isend(x, d) for d in range(2)]\nfor r in reqs: r.wait()",
            "reqs = dist.batch_isend_irecv(ops)\nprint(len(reqs))",
            "reqs = dist.batch_isend_irecv(ops)\n[r.wait() for r in reqs]",
        ] {
            assert!(followed(body), "{body}");
        }
    }

    #[test]
    fn a_name_whose_work_may_be_held_elsewhere_is_not() {
        for body in [
            "req = dist.isend(x, 1)\nworks.append(req)",
            "req = dist.isend(x, 1)\nreturn req",
            "req = dist.isend(x, 1)\nkept = req",
            "req = dist.isend(x, 1)\nkept = (req, x)",
            "req = dist.isend(x, 1)\nworks[0] = req",
            "req = dist.isend(x, 1)\nwait_for(req)",
            "req = dist.isend(x, 1)\nlater = lambda: req.wait() or req",
            "req = dist.isend(x, 1)\ndef later():\n    req.wait()",
            "reqs = [dist.isend(x, 1)]\nkept = reqs[0]",
            "reqs = [dist.isend(x, 1)]\nfor r in reqs: works.append(r)",
            "works = dist.isend(x, 1)\nworks.get_future()",
            "req = other = dist.isend(x, 1)",
            "req = dist.isend(x, 1).wait()",
        ] {
            assert!(!followed(body), "{body}");
        }
    }

    #[test]
    fn what_is_followed_ends_with_its_function() {
        let text =
            "def f(x):\n    req = dist.isend(x, 1)\n    if x:\n        return x + 1\n\nf(1)\n";
        let written = rewrite(text).unwrap();
        assert_eq!(
            written.text,
            "def f(x):\n    _begun()\n    req = _bound(\"req\", (dist.isend(x, 1)), True)\n    if x:\n        \
             return _ended( x + 1)\n\n    _ended()\nf(1)\n"
        );
        assert_eq!(written.origin, [0, 0, 1, 2, 3, 4, 4, 5]);
    }
}
