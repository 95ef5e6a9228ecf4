//! Generator functions: the interpreter has none, so the values that such a function yields are collected, and the
//! call returns an iterator over them.
//!
//! `yield x` is written as `_yielded.append(x)`, and every end of the function as `return _generated(_yielded)`. The
//! body runs when the function is called, not when the loop asks for the next value. `_generated` refuses one that makes
//! calls of torch.distributed, whose order that would change; prints, and names that body and loop both change, keep the
//! other order. A generator without an end is refused here.

use super::held_works::functions;
use super::inline::simple;
use super::scan::Logical;
use super::words::first_word;
use lockstep_scenarios::program::ProgramError;
use std::collections::BTreeSet;

/// The statement with which a generator function begins.
pub(super) const BEGINS: &str = "_yielded = _generates()";
/// The statement with which it ends.
pub(super) const ENDS: &str = "return _generated(_yielded)";

const LIST_INSTEAD: &str =
    "Return a list: `out = []`, `out.append(x)` where the generator yields, `return out`.";

/// The functions of a program that are generators, by their first statements.
#[derive(Default)]
pub(super) struct Generators(BTreeSet<usize>);

impl Generators {
    /// Finds them, and rewrites what they yield and return.
    ///
    /// # Errors
    /// A generator that cannot be followed.
    pub(super) fn rewrite(statements: &mut [Logical]) -> Result<Generators, ProgramError> {
        let mut found = Generators::default();
        if !statements.iter().any(|one| has_word(&one.mask, "yield")) {
            return Ok(found);
        }
        let within = functions(statements);
        for (statement, function) in statements.iter_mut().zip(&within) {
            let Some(function) = function else { continue };
            for (start, end) in simple(&statement.mask).into_iter().rev() {
                if first_word(&statement.mask[start..end]) == "yield" {
                    put_yield(statement, start, end);
                    found.0.insert(*function);
                }
            }
        }
        for (at, statement) in statements.iter().enumerate() {
            if has_word(&statement.mask, "yield") {
                let why = "a `yield` is followed as a statement of its own in a function's block";
                return Err(ProgramError::at(statement.first, 0, why).with_help(LIST_INSTEAD));
            }
            if found.0.contains(&at) {
                found.followed(statements, &within, at)?;
            }
        }
        for (statement, function) in statements.iter_mut().zip(&within) {
            if !function.is_some_and(|function| found.0.contains(&function)) {
                continue;
            }
            for (start, end) in simple(&statement.mask).into_iter().rev() {
                let part = &statement.mask[start..end];
                if first_word(part) != "return" {
                    continue;
                }
                if !["", "None"].contains(&part["return".len()..].trim()) {
                    let why = "the value that a generator returns is not followed";
                    return Err(ProgramError::at(statement.first, 0, why)
                        .with_help("Leave it with a bare `return`."));
                }
                for of in [&mut statement.text, &mut statement.mask] {
                    of.replace_range(start..end, ENDS);
                }
            }
        }
        Ok(found)
    }

    /// True if the function that begins with this statement is a generator.
    pub(super) fn begins(&self, statement: usize) -> bool {
        self.0.contains(&statement)
    }

    /// Refuses a generator whose values cannot be collected.
    fn followed(
        &self,
        statements: &[Logical],
        within: &[Option<usize>],
        at: usize,
    ) -> Result<(), ProgramError> {
        let before = statements.get(..at).unwrap_or_default().iter().rev();
        let mut decorators = before.take_while(|one| one.mask.trim_start().starts_with('@'));
        if let Some(decorator) = decorators.find(|one| one.mask.contains("contextmanager")) {
            let why = "a context manager made of a generator is not followed";
            return Err(ProgramError::at(decorator.first, 0, why)
                .with_help("Write a class with __enter__ and __exit__, or make the calls of both without `with`."));
        }
        for (index, statement) in statements.iter().enumerate().skip(at + 1) {
            if within.get(index) != Some(&Some(at)) || !is_endless(&statement.mask) {
                continue;
            }
            let block = statements.get(index + 1..).unwrap_or_default();
            let mut block = block.iter().take_while(|one| one.indent > statement.indent);
            let leaves = |one: &Logical| {
                ["break", "return", "raise"].iter().any(|word| has_word(&one.mask, word))
            };
            if !block.any(leaves) {
                let why = "a generator that never ends is not followed";
                return Err(ProgramError::at(statement.first, 0, why).with_help(
                    "Have the training loop go through the data itself: `for epoch in range(n): for batch in loader:`.",
                ));
            }
        }
        Ok(())
    }
}

/// Writes `yield value`, from `start` to `end` of a statement, as a call that keeps the value.
fn put_yield(statement: &mut Logical, start: usize, end: usize) {
    let behind = &statement.mask[start + "yield".len()..end];
    let value = start + "yield".len() + (behind.len() - behind.trim_start().len());
    let from = first_word(&statement.mask[value..end]) == "from";
    let (value, before, after) = match () {
        () if from => (value + "from".len(), "_yielded.extend(_through((", ")))"),
        () if value >= end => (end, "_yielded.append((None", "))"),
        // `yield a, b` yields a tuple.
        () => (value, "_yielded.append((", "))"),
    };
    for of in [&mut statement.text, &mut statement.mask] {
        of.insert_str(end, after);
        of.replace_range(start..value, before);
    }
}

/// True of `while True:`, `for x in itertools.cycle(xs):` and their like.
fn is_endless(mask: &str) -> bool {
    let gone_through =
        mask.trim_start().strip_prefix("for ").and_then(|rest| rest.split_once(" in "));
    if let Some((_, of)) = gone_through {
        let of = of.trim_start();
        let of = of.strip_prefix("itertools.").unwrap_or(of);
        return ["cycle(", "count("].iter().any(|endless| of.starts_with(endless));
    }
    let condition = mask.trim_start().strip_prefix("while").and_then(|rest| rest.split(':').next());
    condition.is_some_and(|condition| ["True", "1", "(True)"].contains(&condition.trim()))
}

fn has_word(mask: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    mask.match_indices(word).any(|(at, _)| {
        !mask[..at].ends_with(|c| part(c) || c == '.') && !mask[at + word.len()..].starts_with(part)
    })
}

#[cfg(test)]
mod tests {
    use super::super::rewrite;

    #[test]
    fn what_a_generator_yields_is_collected() {
        let text = "def f(n):\n    for i in range(n):\n        if i: yield i, 2\n    yield\n    yield from g(n)\n    \
                    if n: return\n    return\nf(1)\n";
        let written = rewrite(text).unwrap();
        assert_eq!(
            written.text,
            "def f(n):\n    _yielded = _generates()\n    for i in range(n):\n        if i: _yielded.append((i, 2))\n    \
             _yielded.append((None))\n    _yielded.extend(_through(( g(n))))\n    \
             if n: return _generated(_yielded)\n    return _generated(_yielded)\n    return _generated(_yielded)\nf(1)\n"
        );
    }

    #[test]
    fn what_cannot_be_collected_is_refused() {
        for (text, line, why) in [
            ("def f(x):\n    while True:\n        yield x\n", 2, "never ends"),
            ("def f(x):\n    for y in itertools.cycle(x):\n        yield y\n", 2, "never ends"),
            ("@contextmanager\ndef f(x):\n    yield x\n", 1, "context manager"),
            ("def f(x):\n    y = yield x\n", 2, "a statement of its own"),
            ("def f(x):\n    yield x\n    return x\n", 3, "returns"),
        ] {
            let error = rewrite(text).unwrap_err();
            assert!(error.line == line && error.message.contains(why), "{text}: {error}");
        }
    }
}
