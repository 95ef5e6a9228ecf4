//! `return`, `break` and `continue` in a `with` block: its contexts end at the statement, also after an `if`
//! on one line. Out of a `finally` in the block the contexts end after the `finally`, but are written in
//! front of it: that is the same unless an `__exit__` of the program's own does something.

use crate::dialect::inline::{body, simple};
use crate::dialect::scan::Logical;
use crate::dialect::try_clauses::is_clause;
use crate::dialect::words::first_word;
use lockstep_scenarios::program::ProgramError;
use std::borrow::Cow;

/// Words of statements that leave a block.
pub(super) const LEAVE: [&str; 3] = ["return", "break", "continue"];

/// The statements of a line, where one of them leaves `with` blocks; the line itself elsewhere.
pub(super) fn parts(statement: &Logical, leaves: impl Fn(&str) -> bool) -> Vec<Cow<'_, Logical>> {
    let whole = || vec![Cow::Borrowed(statement)];
    let (text, mask) = (&statement.text, &statement.mask);
    let begins = first_word(mask.trim_start());
    if ["def", "with", "class", "while", "try", "except", "finally"].contains(&begins) {
        return whole();
    }
    let ranges = simple(mask);
    let behind = body(mask);
    let leaving = ranges.iter().any(|(from, to)| {
        let word = first_word(&mask[*from..*to]);
        LEAVE.contains(&word) && leaves(word)
    });
    if !leaving || (behind.is_none() && ranges.len() < 2) {
        return whole();
    }
    let mut made = Vec::new();
    let mut indent = statement.indent;
    if let Some(behind) = behind {
        let end = mask[..behind].trim_end().len();
        let cut = |of: &str| of[..end].to_owned();
        made.push(Cow::Owned(Logical { text: cut(text), mask: cut(mask), ..statement.clone() }));
        indent += 4;
    }
    made.extend(ranges.into_iter().map(|(from, to)| {
        let cut = |of: &str| format!("{:indent$}{}", "", &of[from..to]);
        Cow::Owned(Logical { indent, text: cut(text), mask: cut(mask), ..statement.clone() })
    }));
    made
}

/// Nothing leaves a `with` block through a `finally` in it where an `__exit__` of the program's own may be
/// called.
///
/// # Errors
/// When something does.
pub(super) fn in_order(
    statements: &[Logical],
    index: usize,
    text: &str,
) -> Result<(), ProgramError> {
    if !text.contains("__method____exit__(") || !crosses(statements, index) {
        return Ok(());
    }
    let line = statements.get(index).map_or(0, |own| own.first);
    let why = "this leaves a `with` block out of a `try` with `finally` in it, in a program whose classes \
               have an __exit__: the order of the two is not followed";
    Err(ProgramError::at(line, 0, why)
        .with_help("Keep the value in a name, and return it behind the `with` block."))
}

/// True if a statement leaves a `with` block through a `finally` inside the block.
fn crosses(statements: &[Logical], index: usize) -> bool {
    let Some(own) = statements.get(index) else { return false };
    let word = first_word(own.mask.trim());
    let mut indent = own.indent;
    let mut crossed = false;
    for (at, head) in statements.iter().enumerate().take(index).rev() {
        if head.indent >= indent {
            continue;
        }
        indent = head.indent;
        match first_word(head.mask.trim()) {
            "def" | "class" => return false,
            "for" | "while" if word != "return" => return false,
            "with" if crossed => return true,
            "try" | "except" | "else" => crossed |= is_final(statements, at),
            _ => {}
        }
    }
    false
}

/// True if a clause of a `try` is followed by a `finally`.
fn is_final(statements: &[Logical], at: usize) -> bool {
    let Some(head) = statements.get(at) else { return false };
    let behind = statements.get(at + 1..).unwrap_or_default();
    let beside = behind.iter().take_while(|own| own.indent >= head.indent);
    for own in beside.filter(|own| own.indent == head.indent) {
        match first_word(own.mask.trim()) {
            "finally" if is_clause(&own.mask) => return true,
            "except" | "else" => {}
            _ => return false,
        }
    }
    false
}
