//! Translates Python into Starlark: imports, `with`, `while`, `raise`, `assert`, `is` and f-strings are
//! rewritten, and every line remembers where it came from.
//!
//! Constructs without a counterpart (coroutines) are refused with advice on an alternative.

mod annotations;
mod arguments;
mod asked_methods;
mod assignment_targets;
mod augmented;
mod blocks;
mod bytes;
mod chain;
mod class_attribute;
mod classes;
mod column;
mod compare;
mod decorated;
mod del_statement;
mod displays;
mod environ;
mod expressions;
mod fstring;
mod generators;
mod globals;
mod held_works;
mod import;
mod inline;
mod leaving_contexts;
mod load;
mod loop_else;
mod methods;
mod objects;
mod operand;
mod operators;
mod own_operators;
mod passed_over;
pub(crate) mod properties;
mod reflected;
mod refused;
pub(crate) mod rewritten;
pub(crate) mod scan;
mod semicolons;
mod slice_assignment;
mod starred;
mod subscript;
mod truth;
mod try_clauses;
mod try_statement;
mod try_steps;
mod unheld_works;
mod waiting_loops;
mod walrus;
mod while_and_for;
mod words;

#[cfg(test)]
mod tests;

pub(super) use column::{first as place, of as column};

use blocks::{Ahead, Block, Open, block_head, contexts_left};
use decorated::Decorated;
use expressions::expressions;
use generators::Generators;
use held_works::{Bound, Here};
use lockstep_scenarios::program::ProgramError;
use passed_over::PassedOver;
use rewritten::Rewritten;
use scan::Logical;
use waiting_loops::only_waits;
use while_and_for::POLLS;
use words::first_word;

/// Rewrites a program.
#[cfg(test)]
fn rewrite(text: &str) -> Result<Rewritten, ProgramError> {
    asking(text, false)
}

/// Rewrites a program; with `sums`, operators become calls even if no class defines them.
///
/// # Errors
/// The program contains something that programs cannot have.
pub(super) fn asking(text: &str, sums: bool) -> Result<Rewritten, ProgramError> {
    let mut out = Rewritten::of(text);
    let text = loop_else::rewrite(text);
    let text = globals::rewrite(&text);
    let text = classes::rewrite(&text);
    let text = &*truth::rewrite(&text);
    let mut statements = scan::scan(text)?;
    let asks = asked_methods::Asks::of(text, sums);
    statements.iter_mut().for_each(|own| own.asks = asks);
    let mut blocks: Vec<Open> = Vec::new();
    let mut at = 0;
    let generators = Generators::rewrite(&mut statements)?;
    let bound = Bound::find(&statements);
    let mut decorated: Vec<Decorated> = Vec::new();
    let physical: Vec<&str> = text.lines().collect();
    let tries = statements.iter().any(|own| try_clauses::is_clause(&own.mask));
    for (index, statement) in statements.iter().enumerate() {
        // Blank lines and comments stay where they are.
        for line in at..statement.first {
            out.line("", line);
        }
        at = statement.last + 1;
        let head = statement.mask.trim_start();
        // `else:` and the like continue a block of their own indentation.
        let continues = ["else", "elif"].iter().any(|word| first_word(head) == *word);
        while let Some(open) = blocks.last() {
            let ended = statement.indent <= open.indent;
            if !ended {
                break;
            }
            if matches!(open.kind, Block::With { .. })
                && continues
                && statement.indent == open.indent
            {
                return Err(ProgramError::at(statement.first, 0, "`with` has no `else`"));
            }
            out.ends(open, statement.first.saturating_sub(1));
            blocks.pop();
            out.decorates(&mut decorated, blocks.len());
        }
        let body = statements.get(index + 1).map(|next| next.indent);
        let inner = body.filter(|body| *body > statement.indent).unwrap_or(statement.indent + 4);
        let word = |at: usize| statements.get(at).map(|next| next.mask.trim());
        let leaves = head.trim_end().ends_with(": break")
            || (inner == body.unwrap_or(0) && word(index + 1) == Some("break"));
        let idle = only_waits(statements.get(index + 1..).unwrap_or_default(), statement.indent);
        let passed_over = PassedOver::of(&statements, index);
        let turned = passed_over.as_ref().map(|_| passed_over::as_elif(statement));
        for one in passed_over.iter().flat_map(|passed| passed.question(statement)) {
            write(
                &mut out,
                &mut blocks,
                &one,
                Ahead { inner, leaves, idle, names: bound.at(index) },
            )?;
        }
        let statement = turned.as_ref().unwrap_or(statement);
        for whole in try_clauses::parts(statement, tries) {
            let apart = leaving_contexts::parts(&whole, |word| contexts_left(&blocks, word) > 0);
            for part in apart.iter().flat_map(|apart| semicolons::parts(apart)) {
                let word = first_word(part.mask.trim_start());
                if leaving_contexts::LEAVE.contains(&word) && contexts_left(&blocks, word) > 0 {
                    leaving_contexts::in_order(&statements, index, text)?;
                }
                let ahead = Ahead { inner, leaves, idle, names: bound.at(index) };
                write(&mut out, &mut blocks, &part, ahead)?;
            }
        }
        if first_word(head) == "def" {
            decorated.extend(Decorated::of(&statements, index, blocks.len().saturating_sub(1))?);
        }
        let (holds, generates) = (bound.begins(index), generators.begins(index));
        if let (true, Some(open)) = (holds || generates, blocks.last_mut()) {
            for begin in [(holds, "_begun()"), (generates, generators::BEGINS)] {
                let (true, text) = begin else { continue };
                out.line(&format!("{:inner$}{text}", ""), statement.last);
            }
            open.kind = Block::Ending { inner, holds, generates };
        }
    }
    for line in at..physical.len() {
        out.line("", line);
    }
    while let Some(open) = blocks.pop() {
        out.ends(&open, physical.len().saturating_sub(1));
        out.decorates(&mut decorated, blocks.len());
    }
    if tries { try_statement::rewrite(out) } else { Ok(out) }
}

/// Writes one statement.
fn write(
    out: &mut Rewritten,
    blocks: &mut Vec<Open>,
    statement: &Logical,
    ahead: Ahead<'_>,
) -> Result<(), ProgramError> {
    let Ahead { leaves, names, .. } = ahead;
    let Logical { first, indent, .. } = *statement;
    if let Some((named, own)) = walrus::hoisted(statement)? {
        if first_word(own.mask.trim_start()) == "while" {
            return write_while(out, blocks, &own, &named, ahead);
        }
        for one in &named {
            write(out, blocks, one, ahead)?;
        }
        return write(out, blocks, &own, ahead);
    }
    let head = statement.mask.trim_start();
    let refused = |why: &str, help: &str| Err(ProgramError::at(first, 0, why).with_help(help));
    match first_word(head) {
        "import" | "from" => {
            let text = import::statement(statement)?;
            // An empty block is none.
            let text = if text.is_empty() && indent > 0 { "pass".to_owned() } else { text };
            out.line(&format!("{:indent$}{text}", ""), first);
            (first + 1..=statement.last).for_each(|line| out.line("", line));
            return Ok(());
        }
        "with" => return write_with(out, blocks, statement),
        "while" => return write_while(out, blocks, statement, &[], ahead),
        // The same in a loop that is left from within.
        "if" if leaves && blocks.last().is_some_and(|open| open.is_endless(indent)) => {
            if write_polling(out, statement)? {
                return Ok(());
            }
        }
        "raise" | "assert" => {
            let (text, mask) = expressions(statement)?;
            let word = first_word(head);
            let from = indent + word.len();
            let to = inline::raised(&mask, from);
            let called = match text[from..to].trim() {
                "" => inline::AGAIN.to_owned(),
                what => format!("_{word}({what})"),
            };
            out.lines(&format!("{:indent$}{called}", ""), statement);
            return Ok(());
        }
        "try" | "except" | "finally" if try_clauses::is_clause(&statement.mask) => {
            out.lines(&statement.text[..statement.mask.trim_end().len()], statement);
            return Ok(());
        }
        word @ ("return" | "break" | "continue") if contexts_left(blocks, word) > 0 => {
            return leaving(out, statement, contexts_left(blocks, word), names);
        }
        "for" => {
            let written = while_and_for::for_loop(out, statement, ahead)?;
            blocks.push(Open { indent, kind: Block::Loop });
            if written {
                return Ok(());
            }
        }
        "def" => blocks.push(Open { indent, kind: Block::Def }),
        // Behind its function, in which the line is written.
        "" if head.starts_with('@') => {
            (first..=statement.last).for_each(|line| out.line("", line));
            return Ok(());
        }
        "del" if del_statement::statement(statement).is_some() => {
            let text = del_statement::statement(statement).unwrap_or_default();
            out.line(&format!("{:indent$}{text}", ""), first);
            (first + 1..=statement.last).for_each(|line| out.line("", line));
            return Ok(());
        }
        word => {
            if let Some((why, help)) = refused::statement(word, &head[word.len()..]) {
                return refused(&why, help);
            }
        }
    }
    let (mut text, mut mask) = expressions(statement)?;
    starred::rewrite(&mut text, &mut mask);
    augmented::rewrite(&mut text, &mut mask);
    slice_assignment::rewrite(&mut text, &mut mask);
    unheld_works::rewrite(&mut text, &mut mask);
    names.rewrite(&mut text, &mut mask);
    inline::rewrite(&mut text, &mut mask);
    out.lines(&text, statement);
    Ok(())
}

/// Writes a `with`: its contexts are entered, and left where its block ends.
fn write_with(
    out: &mut Rewritten,
    blocks: &mut Vec<Open>,
    statement: &Logical,
) -> Result<(), ProgramError> {
    let Logical { first, indent, .. } = *statement;
    let (text, mask) = expressions(statement)?;
    let Some(head) = block_head(&mask, "with") else {
        let why = "`with` and its block stand on one line";
        return Err(
            ProgramError::at(first, 0, why).with_help("Write the block on lines of its own.")
        );
    };
    let items = split_items(&text, &mask, head);
    for item in &items {
        let enter = match item {
            (context, Some(name)) => format!("{name} = _enter({context})"),
            (context, None) => format!("_enter({context})"),
        };
        let flat = enter.replace('\n', " ");
        out.line(&format!("{:indent$}{flat}", ""), first);
    }
    out.line(&format!("{:indent$}if True:", ""), first);
    let kind = Block::With { contexts: items.len(), line: first };
    blocks.push(Open { indent, kind });
    Ok(())
}

/// Writes an `if` that leaves an endless loop when a poll says so, such as `if work.is_completed(): break`;
/// false if it polls nothing.
fn write_polling(out: &mut Rewritten, statement: &Logical) -> Result<bool, ProgramError> {
    let Logical { first, indent, .. } = *statement;
    let (text, mask) = expressions(statement)?;
    let end = block_head(&mask, "if").or_else(|| {
        let colon = mask.trim_end().strip_suffix("break")?.trim_end();
        Some((mask.find("if")? + 2, colon.strip_suffix(':')?.len()))
    });
    let head = statement.mask.trim_start();
    let Some((from, to)) = end.filter(|_| POLLS.iter().any(|word| head.contains(word))) else {
        return Ok(false);
    };
    let exact = if head.contains("!=") { "True" } else { "False" };
    out.line(&format!("{:indent$}_polling({exact})", ""), first);
    let condition = text[from..to].replace('\n', " ");
    let condition = condition.trim();
    let rest = &text[to..];
    out.line(&format!("{:indent$}if _polled({condition}, True){rest}", ""), first);
    (first + 1..=statement.last).for_each(|line| out.line("", line));
    Ok(true)
}

/// Writes a `while`, with the statements that give names to parts of its condition.
fn write_while(
    out: &mut Rewritten,
    blocks: &mut Vec<Open>,
    statement: &Logical,
    named: &[Logical],
    ahead: Ahead<'_>,
) -> Result<(), ProgramError> {
    let condition = while_and_for::begin_while(out, statement)?;
    for own in named {
        write(out, blocks, &while_and_for::inside(own, ahead.inner), ahead)?;
    }
    while_and_for::open_while(out, blocks, statement, &condition, ahead);
    Ok(())
}

/// A statement that leaves `with` blocks: they end after its value is computed.
fn leaving(
    out: &mut Rewritten,
    statement: &Logical,
    contexts: usize,
    names: Here<'_>,
) -> Result<(), ProgramError> {
    let Logical { first, indent, .. } = *statement;
    let (mut text, mut mask) = expressions(statement)?;
    let word = first_word(mask.trim_start()).to_owned();
    let end = mask.trim_end().len();
    let value = indent + word.len();
    let returns = word == "return" && !mask[value..end].trim().is_empty();
    let mut last = format!("{:indent$}{word}", "");
    if returns {
        for of in [&mut text, &mut mask] {
            of.replace_range(end.., "");
            of.replace_range(indent..value, "_left =");
        }
        inline::rewrite(&mut text, &mut mask);
        out.lines(&text, statement);
        last.push_str(" _left");
    }
    for _ in 0..contexts {
        out.line(&format!("{:indent$}_exit()", ""), first);
    }
    let mut mask = last.clone();
    names.rewrite(&mut last, &mut mask);
    out.line(&last, statement.last);
    Ok(())
}

/// `a as b, c` as its items.
fn split_items(text: &str, mask: &str, head: (usize, usize)) -> Vec<(String, Option<String>)> {
    let mut items = Vec::new();
    let mut depth = 0;
    let mut start = head.0;
    let mut push = |from: usize, to: usize| {
        let (item, mask) = (&text[from..to], &mask[from..to]);
        let named = mask.rfind(" as ").map(|at| (&item[..at], &item[at + 4..]));
        items.push(match named {
            Some((context, name)) => (context.trim().to_owned(), Some(name.trim().to_owned())),
            None => (item.trim().to_owned(), None),
        });
    };
    for (at, c) in mask[..head.1].char_indices().skip_while(|(at, _)| *at < head.0) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                push(start, at);
                start = at + 1;
            }
            _ => {}
        }
    }
    push(start, head.1);
    items
}
