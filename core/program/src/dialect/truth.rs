//! `if queue:` as `if _truth(queue):`, if a class of the program defines `__bool__` or `__len__`: the
//! interpreter calls neither. Names (`queue`, `self.queue`) are rewritten in conditions, after `not` and in
//! `bool()`. Any other truth test of such an object is noted in the process, which refuses it.

use super::operand::closing;
use super::scan;
use std::borrow::Cow;

/// Methods by which a class says it, as the rewriting of classes writes them.
const SAYS: [&str; 2] = ["__method____bool__(", "__method____len__("];

/// Words that are no names.
const WORDS: [&str; 12] = [
    "True", "False", "None", "lambda", "in", "is", "return", "yield", "await", "def", "with",
    "import",
];

/// Rewrites the conditions of a program; one without such a class stays.
pub(super) fn rewrite(text: &str) -> Cow<'_, str> {
    if !SAYS.iter().any(|says| text.contains(says)) {
        return Cow::Borrowed(text);
    }
    let Ok(statements) = scan::scan(text) else { return Cow::Borrowed(text) };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for own in &statements {
        let mut text = own.text.clone();
        for (from, to) in asked(&own.mask).into_iter().rev() {
            text.insert(to, ')');
            text.insert_str(from, "_truth(");
        }
        for (line, text) in lines.iter_mut().skip(own.first).zip(text.split('\n')) {
            text.clone_into(line);
        }
    }
    Cow::Owned(lines.join("\n") + "\n")
}

/// The text in front of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    /// A word that begins a condition, or joins its parts.
    Joins,
    Not,
    Other,
}

/// The begin and end of names that are taken for true or false.
fn asked(mask: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    // Per bracket that is open, whether what stands there is asked whether it is true.
    let mut open = vec![false];
    let mut front = Front::Other;
    let mut called = false;
    let mut at = 0;
    while let Some(first) = mask.get(at..).and_then(|rest| rest.chars().next()) {
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        if first.is_whitespace() || first == '\\' {
            at += first.len_utf8();
            continue;
        }
        if first != '.' && part(first) {
            let rest = &mask[at..];
            let end = at + rest.find(|c| !part(c)).unwrap_or(rest.len());
            let word = &mask[at..end];
            called = word == "bool" && front_is_free(mask, at);
            front = match word {
                "if" | "elif" | "while" => {
                    set(&mut open, true);
                    Front::Joins
                }
                "and" | "or" => Front::Joins,
                "not" => Front::Not,
                "else" | "for" => {
                    set(&mut open, false);
                    Front::Other
                }
                _ => {
                    let condition = open.last() == Some(&true) && front == Front::Joins;
                    let name = !first.is_ascii_digit() && !WORDS.contains(&word);
                    if name && (condition || front == Front::Not) && ends(mask, end) {
                        found.push((at, end));
                    }
                    Front::Other
                }
            };
            at = end;
            continue;
        }
        match first {
            '(' | '[' | '{' => {
                let close = closing(mask.as_bytes(), at);
                let whole = close.is_some_and(|close| ends(mask, close + 1));
                let group = match front {
                    Front::Joins => open.last() == Some(&true),
                    Front::Not => true,
                    Front::Other => false,
                };
                let truth = first == '(' && (called || (group && whole));
                open.push(truth);
                front = if truth { Front::Joins } else { Front::Other };
            }
            ')' | ']' | '}' => {
                open.pop();
                front = Front::Other;
            }
            ',' | ':' | ';' | '=' => {
                set(&mut open, false);
                front = Front::Other;
            }
            _ => front = Front::Other,
        }
        called = false;
        at += first.len_utf8();
    }
    found
}

fn set(open: &mut [bool], condition: bool) {
    if let Some(last) = open.last_mut() {
        *last = condition;
    }
}

/// True if the word at this place is not an attribute of something.
fn front_is_free(mask: &str, at: usize) -> bool {
    !mask[..at].trim_end().ends_with('.')
}

/// True if an operand of a condition ends at this place.
fn ends(mask: &str, at: usize) -> bool {
    let rest = mask.get(at..).unwrap_or_default().trim_start_matches([' ', '\n', '\\']);
    let word = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    let walrus = rest.starts_with(":=");
    rest.is_empty()
        || (rest.starts_with([':', ')', ']', '}', ';', ',']) && !walrus)
        || ["and", "or", "else", "if", "for"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::asked;

    #[test]
    fn names_are_asked_where_they_are_taken_for_true_or_false() {
        for (text, expected) in [
            ("if q:", &["q"][..]),
            ("elif not self.items and n > 1 or (done and x):", &["self.items", "done", "x"]),
            ("while q: q.pop()", &["q"]),
            ("print('y' if b else 'n', not b, b or c, bool(b))", &["b", "b", "b"]),
            ("x = [i for i in own if i.ok]", &["i.ok"]),
            ("if q.ready():", &[]),
            ("if f(a or b) and c[d]:", &[]),
            ("if (a) > 0 and -b or 1 or None:", &[]),
            ("x = a and b", &[]),
            ("if a == b and not c in d:", &[]),
            ("f(if_=a, k={'x': not a})", &["a"]),
        ] {
            let found = asked(text);
            let names: Vec<&str> = found.iter().map(|(from, to)| &text[*from..*to]).collect();
            assert_eq!(names, expected, "{text}");
        }
    }
}
