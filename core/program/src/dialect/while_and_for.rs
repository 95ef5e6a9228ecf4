//! Loops that the interpreter lacks: `while`, as a loop of many turns that is left when its condition fails,
//! and a `for` over an iterator that is not a list (`_iter` decides), so that an own `__next__` is called at
//! the same times as in Python.

use crate::dialect::blocks::{Ahead, Block, Open, block_head};
use crate::dialect::expressions::expressions;
use crate::dialect::objects::iterable;
use crate::dialect::rewritten::Rewritten;
use crate::dialect::scan::Logical;
use lockstep_scenarios::program::ProgramError;

/// As many turns as a loop may have.
const TURNS: &str = "for _ in range(2147483647):";

/// Methods of a store that a loop may ask until it likes the answer.
pub(super) const POLLS: [&str; 3] = [".add(", ".get(", ".check("];

/// Begins a `while`; returns its condition.
pub(super) fn begin_while(
    out: &mut Rewritten,
    statement: &Logical,
) -> Result<String, ProgramError> {
    let Logical { first, indent, .. } = *statement;
    let (text, mask) = expressions(statement)?;
    let Some((from, to)) = block_head(&mask, "while") else {
        return Err(ProgramError::at(first, 0, "`while` and its block stand on one line")
            .with_help("Write the block on lines of its own."));
    };
    let condition = text[from..to].replace('\n', " ");
    out.line(&format!("{:indent$}{TURNS}", ""), first);
    Ok(condition.trim().to_owned())
}

/// A statement as each turn of a loop begins with it.
pub(super) fn inside(own: &Logical, inner: usize) -> Logical {
    let put = |of: &str| format!("{:inner$}{}", "", of.trim_start());
    Logical { indent: inner, text: put(&own.text), mask: put(&own.mask), ..own.clone() }
}

/// Writes where a `while` is left, and opens its block.
pub(super) fn open_while(
    out: &mut Rewritten,
    blocks: &mut Vec<Open>,
    statement: &Logical,
    condition: &str,
    Ahead { inner, idle, .. }: Ahead<'_>,
) {
    let Logical { first, indent, .. } = *statement;
    // A loop that asks a store is the wait that it stands for.
    let has = |words: &[&str]| words.iter().any(|word| statement.mask.contains(word));
    if idle && has(&POLLS) {
        let exact = if has(&["=="]) { "True" } else { "False" };
        out.line(&format!("{:inner$}_polling({exact})", ""), first);
        out.line(&format!("{:inner$}if not _polled({condition}): break", ""), first);
    } else {
        out.line(&format!("{:inner$}if not ({condition}): break", ""), first);
    }
    let kind = match idle && condition == "True" {
        true => Block::Endless { inner },
        false => Block::Loop,
    };
    blocks.push(Open { indent, kind });
}

/// Writes a `for` that takes one piece after the other; returns whether it is one.
pub(super) fn for_loop(
    out: &mut Rewritten,
    statement: &Logical,
    Ahead { inner, .. }: Ahead<'_>,
) -> Result<bool, ProgramError> {
    let Logical { first, indent, asks, .. } = *statement;
    if !asks.pieces() || !statement.mask.trim_end().ends_with(':') {
        return Ok(false);
    }
    let (text, mask) = expressions(statement)?;
    let names = indent + "for ".len();
    let Some((from, to)) = iterable(&mask, names) else { return Ok(false) };
    let of = text[from..to].replace('\n', " ");
    let taken = text[names..from].trim_end().strip_suffix("in").map(str::trim);
    let Some(taken) = taken.filter(|taken| !taken.contains('*') && !of.starts_with("range("))
    else {
        return Ok(false);
    };
    out.line(&format!("{:indent$}_turns_{first} = _iter({of})", ""), first);
    out.line(&format!("{:indent$}{TURNS}", ""), first);
    out.line(&format!("{:inner$}_turn_{first} = _advance(_turns_{first})", ""), first);
    out.line(&format!("{:inner$}if not _turn_{first}: break", ""), first);
    out.line(&format!("{:inner$}{taken} = _turn_{first}[0]", ""), statement.last);
    Ok(true)
}
