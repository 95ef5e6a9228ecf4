//! `try:` with `except`, `else` and `finally`. The interpreter has none, so the block is written as parts
//! that are tried one by one, each only if no earlier part has raised.
//!
//! `x = f(y)` becomes `if _try_0.goes: _tried = _attempt(_try_0, lambda: (f(y)))` and `if _try_0.goes: x =
//! _tried`; a loop in it ends once something has raised; `except ValueError as e:` becomes `if
//! _catches(_try_0, lambda: (ValueError)):`, and an exception that no handler takes is raised again
//! afterwards. `finally` is written at the end, and in front of each `return`, `break` and `continue` that
//! leaves it.

use crate::dialect::inline::{AGAIN, body, simple};
use crate::dialect::rewritten::Rewritten;
use crate::dialect::scan::{self, Logical};
use crate::dialect::try_clauses::{colon, is_clause};
use crate::dialect::try_steps::steps;
use crate::dialect::words::first_word;
use lockstep_scenarios::program::ProgramError;
use std::ops::Range;

/// Statements that are written at most: `finally` in front of every `return` can make many of few.
const MAX_LINES: usize = 100_000;
/// The most bytes of the rewritten program, and the most nested blocks.
const MAX_BYTES: usize = 16 << 20;
const MAX_DEPTH: usize = 100;

/// Rewrites every `try` of a program in Starlark's words.
///
/// # Errors
/// A clause without its `try`, or more of them than allowed.
pub(super) fn rewrite(from: Rewritten) -> Result<Rewritten, ProgramError> {
    let statements = scan::scan(&from.text)?;
    let (out, origin) = from.begun_anew();
    let statements = &statements[..];
    let mut writer = Writer { out, origin, statements, tries: 0, depth: 0 };
    writer.block(0..statements.len(), &Around::default(), 0)?;
    Ok(writer.out)
}

/// The surroundings of a statement.
#[derive(Clone, Debug, Default)]
struct Around {
    /// The innermost `try` whose parts are tried one by one.
    guard: Option<usize>,
    /// The `finally` blocks that run when these are left, outermost first.
    finals: Vec<Final>,
    /// The number of them around the innermost loop.
    of_loop: usize,
    /// The `try` whose handler the statement is in.
    handled: Option<usize>,
    /// The outermost one of whose handlers a `return` leaves, and one that leaves the loop.
    returns: Option<usize>,
    breaks: Option<usize>,
}

/// A `finally`, and the condition that guards it.
#[derive(Clone, Debug)]
struct Final {
    block: Range<usize>,
    guard: Option<usize>,
}

struct Writer<'s> {
    out: Rewritten,
    /// Per line of the text, where it came from.
    origin: Vec<u32>,
    statements: &'s [Logical],
    tries: usize,
    /// The number of open blocks.
    depth: usize,
}

/// A part of a `try`.
struct Clause<'s> {
    head: &'s Logical,
    block: Range<usize>,
}

impl<'s> Writer<'s> {
    /// The statements after one that are indented deeper.
    fn behind(&self, at: usize, end: usize) -> Range<usize> {
        let Some(head) = self.statements.get(at) else { return end..end };
        let rest = self.statements.get(at + 1..end).unwrap_or_default();
        let length = rest.iter().take_while(|own| own.indent > head.indent).count();
        at + 1..at + 1 + length
    }

    /// Writes a text so far in, whose first line came from that one.
    fn put(&mut self, indent: usize, text: &str, first: usize) -> Result<(), ProgramError> {
        let last = self.origin.len().saturating_sub(1);
        for (nth, line) in text.split('\n').enumerate() {
            let from = self.origin.get((first + nth).min(last)).copied().unwrap_or(0);
            let indent = if nth == 0 { indent } else { 0 };
            self.out.line(&format!("{:indent$}{line}", ""), from as usize);
        }
        if self.out.origin.len() > MAX_LINES || self.out.text.len() > MAX_BYTES {
            return Err(ProgramError::whole("what stands in `try` and `finally` becomes too long"));
        }
        Ok(())
    }

    /// Writes the statements of a block, moved by so much.
    fn block(
        &mut self,
        range: Range<usize>,
        around: &Around,
        shift: isize,
    ) -> Result<(), ProgramError> {
        if self.depth >= MAX_DEPTH {
            return Err(ProgramError::whole("blocks around a `try` are nested too deep"));
        }
        self.depth += 1;
        let written = self.statements_of(range, around, shift);
        self.depth -= 1;
        written
    }

    fn statements_of(
        &mut self,
        range: Range<usize>,
        around: &Around,
        shift: isize,
    ) -> Result<(), ProgramError> {
        let statements = self.statements;
        let mut at = range.start;
        while at < range.end {
            let Some(own) = statements.get(at) else { break };
            let head = own.mask.trim();
            let inner = self.behind(at, range.end);
            match first_word(head) {
                "try" if is_clause(&own.mask) => {
                    at = self.attempt(at, range.end, around, shift)?;
                    continue;
                }
                "except" | "finally" if is_clause(&own.mask) => {
                    let line = self.origin.get(own.first).copied().unwrap_or(0) as usize;
                    let why = format!("there is no `try` for this `{}`", first_word(head));
                    return Err(ProgramError::at(line, own.indent, why));
                }
                "def" => {
                    self.verbatim(own, around, shift)?;
                    self.block(inner.clone(), &Around::default(), shift)?;
                }
                "if" | "elif" | "else" | "for" if colon(&own.mask).is_some() => {
                    self.head(own, inner.clone(), around, shift)?;
                }
                _ => self.simple(own, (0, own.mask.len()), around, moved(own.indent, shift))?,
            }
            at = inner.end.max(at + 1);
        }
        Ok(())
    }

    fn verbatim(
        &mut self,
        own: &Logical,
        around: &Around,
        shift: isize,
    ) -> Result<(), ProgramError> {
        let text = raised_again(own.text.get(own.indent..).unwrap_or_default(), around);
        self.put(moved(own.indent, shift), &text, own.first)
    }

    /// The head of a block, and the block.
    fn head(
        &mut self,
        own: &'s Logical,
        inner: Range<usize>,
        around: &Around,
        shift: isize,
    ) -> Result<(), ProgramError> {
        let indent = moved(own.indent, shift);
        let word = first_word(own.mask.trim());
        let mut around = around.clone();
        if word == "for" {
            around.of_loop = around.finals.len();
            around.breaks = None;
        }
        let one_line = body(&own.mask);
        let end = match one_line {
            Some(start) => own.mask[..start].rfind(':').unwrap_or(start),
            None => own.mask.trim_end().len() - 1,
        };
        let Some(guard) = around.guard else {
            let Some(start) = one_line else {
                self.verbatim(own, &around, shift)?;
                return self.block(inner, &around, shift);
            };
            if around.returns.is_none() {
                return self.verbatim(own, &around, shift);
            }
            let head = own.text.get(own.indent..end).unwrap_or_default();
            self.put(indent, &format!("{head}:"), own.first)?;
            return self.simple(own, (start, own.mask.len()), &around, indent + 4);
        };
        let goes = format!("_try_{guard}.goes");
        let from = own.indent + word.len();
        let inside = own.text.get(from..end).unwrap_or_default().trim();
        let head = match word {
            "else" => format!("elif {goes}:"),
            "for" => {
                // ` in ` of the loop itself is the first one.
                let at = own.mask.get(from..end).and_then(|mask| mask.find(" in "));
                let (names, of) = match at {
                    Some(at) => (&own.text[from..from + at], &own.text[from + at + 4..end]),
                    None => (inside, "[]"),
                };
                let (names, of) = (names.trim(), of.trim());
                format!("for {names} in _each(_try_{guard}, lambda: ({of})):")
            }
            word => format!("{word} {goes} and _attempt(_try_{guard}, lambda: ({inside})):"),
        };
        self.put(indent, &head, own.first)?;
        let within = match (one_line, self.statements.get(inner.start)) {
            (None, Some(first)) if !inner.is_empty() => moved(first.indent, shift),
            _ => indent + 4,
        };
        match one_line {
            Some(start) => self.simple(own, (start, own.mask.len()), &around, within)?,
            None => self.block(inner, &around, shift)?,
        }
        if word == "for" {
            self.put(within, &format!("if not {goes}: break"), own.first)?;
        }
        Ok(())
    }

    /// The statements of a line, or of a part of it.
    fn simple(
        &mut self,
        own: &Logical,
        (from, to): (usize, usize),
        around: &Around,
        indent: usize,
    ) -> Result<(), ProgramError> {
        if around.guard.is_none() && around.returns.is_none() {
            let text = own.text.get(from..to).unwrap_or_default().trim_start();
            return self.put(indent, &raised_again(text, around), own.first);
        }
        let goes = around.guard.map_or_else(|| "True".to_owned(), |at| format!("_try_{at}.goes"));
        for (start, end) in simple(&own.mask).into_iter().filter(|(start, _)| *start >= from) {
            let (mask, text) = (&own.mask[start..end], &own.text[start..end]);
            let line = own.first + own.text[..start].matches('\n').count();
            let text = raised_again(text, around);
            let word = first_word(mask);
            match word {
                "pass" => self.put(indent, "pass", line)?,
                "return" => {
                    let value = text["return".len()..].trim();
                    let value = if value.is_empty() { "None" } else { value };
                    let left = match around.guard {
                        Some(guard) => {
                            format!("if {goes}: _left = _attempt(_try_{guard}, lambda: ({value}))")
                        }
                        None => format!("_left = ({value})"),
                    };
                    self.put(indent, &left, line)?;
                    self.leaves((0, around.returns), "return _left", around, indent, line)?;
                }
                "break" | "continue" => {
                    self.leaves((around.of_loop, around.breaks), word, around, indent, line)?;
                }
                _ => match around.guard {
                    Some(guard) => {
                        for step in steps(&text, mask, guard) {
                            self.put(indent, &step, line)?;
                        }
                    }
                    None => self.put(indent, &text, line)?,
                },
            }
        }
        Ok(())
    }

    /// A statement that leaves all `finally` but the first ones: they come before it, and behind the
    /// end of the handlers that it leaves.
    fn leaves(
        &mut self,
        (kept, handled): (usize, Option<usize>),
        statement: &str,
        around: &Around,
        indent: usize,
        line: usize,
    ) -> Result<(), ProgramError> {
        let goes = around.guard.map_or_else(|| "True".to_owned(), |at| format!("_try_{at}.goes"));
        self.put(indent, &format!("if {goes}:"), line)?;
        if let Some(handled) = handled {
            self.put(indent + 4, &format!("_handled(_try_{handled})"), line)?;
        }
        let mut outer = None;
        for nth in (kept..around.finals.len()).rev() {
            let Some(last) = around.finals.get(nth).cloned() else { continue };
            let Some(first) = self.statements.get(last.block.start) else { continue };
            let shift = (indent + 4) as isize - first.indent as isize;
            let before = around.finals.get(..nth).unwrap_or_default().to_vec();
            let of_loop = around.of_loop.min(nth);
            let inner = Around { guard: last.guard, finals: before, of_loop, ..Around::default() };
            self.block(last.block, &inner, shift)?;
            outer = last.guard;
        }
        let statement = match outer {
            Some(outer) => format!("if _try_{outer}.goes: {statement}"),
            None => statement.to_owned(),
        };
        self.put(indent + 4, &statement, line)
    }

    /// A `try` with all that belongs to it; returns where the next statement is.
    fn attempt(
        &mut self,
        at: usize,
        end: usize,
        around: &Around,
        shift: isize,
    ) -> Result<usize, ProgramError> {
        let statements = self.statements;
        let Some(own) = statements.get(at) else { return Ok(end) };
        let tried = self.behind(at, end);
        let mut next = tried.end;
        let (mut handlers, mut otherwise, mut last) = (Vec::new(), None, None);
        while let Some(head) = statements.get(next).filter(|head| head.indent == own.indent) {
            let block = self.behind(next, end);
            let behind = block.end;
            let clause = Clause { head, block };
            match first_word(head.mask.trim()) {
                "except" => handlers.push(clause),
                "else" => otherwise = Some(clause),
                "finally" => last = Some(clause),
                _ => break,
            }
            next = behind;
        }
        let line = own.first;
        if handlers.is_empty() && last.is_none() {
            let line = self.origin.get(line).copied().unwrap_or(0) as usize;
            let why = "this `try` has neither `except` nor `finally`";
            return Err(ProgramError::at(line, own.indent, why));
        }
        let mut indent = moved(own.indent, shift);
        let mut shift = shift;
        if let Some(guard) = around.guard {
            self.put(indent, &format!("if _try_{guard}.goes:"), line)?;
            (indent, shift) = (indent + 4, shift + 4);
        }
        let mut within = around.clone();
        let finally = last.map(|clause| (self.number(), clause));
        if let Some((number, clause)) = &finally {
            self.put(indent, &format!("_try_{number} = _trying()"), line)?;
            within.guard = Some(*number);
            within.finals.push(Final { block: clause.block.clone(), guard: around.guard });
        }
        match handlers.is_empty() {
            true => {
                self.put(indent, "if True:", line)?;
                self.block(tried, &within, shift)?;
            }
            false => {
                let number = self.number();
                self.put(indent, &format!("_try_{number} = _trying()"), line)?;
                self.put(indent, "if True:", line)?;
                let guarded = Around { guard: Some(number), ..within.clone() };
                self.block(tried, &guarded, shift)?;
                self.handlers(number, &handlers, otherwise, (&within, indent, shift))?;
                self.again(number, within.guard, indent, line)?;
            }
        }
        if let Some((number, clause)) = finally {
            self.put(indent, "if True:", clause.head.first)?;
            self.block(clause.block, around, shift)?;
            self.again(number, around.guard, indent, line)?;
        }
        Ok(next)
    }

    fn number(&mut self) -> usize {
        self.tries += 1;
        self.tries - 1
    }

    /// Raises an exception again that was not handled.
    fn again(
        &mut self,
        number: usize,
        guard: Option<usize>,
        indent: usize,
        line: usize,
    ) -> Result<(), ProgramError> {
        let again = match guard {
            Some(guard) => {
                let goes = format!("if _try_{guard}.goes:");
                format!("{goes} _attempt(_try_{guard}, lambda: _again(_try_{number}))")
            }
            None => format!("_again(_try_{number})"),
        };
        self.put(indent, &again, line)
    }

    fn handlers(
        &mut self,
        number: usize,
        handlers: &[Clause<'_>],
        otherwise: Option<Clause<'_>>,
        (around, indent, shift): (&Around, usize, isize),
    ) -> Result<(), ProgramError> {
        let mut word = "if";
        for Clause { head, block } in handlers {
            let Some(end) = colon(&head.mask) else {
                let line = self.origin.get(head.first).copied().unwrap_or(0) as usize;
                return Err(ProgramError::at(line, head.indent, "this `except` has no end"));
            };
            let from = head.indent + "except".len();
            let (text, mask) = (&head.text[from.min(end)..end], &head.mask[from.min(end)..end]);
            let named = mask.rfind(" as ").map(|at| text[at + 4..].trim());
            let classes = mask.rfind(" as ").map_or(text, |at| &text[..at]).trim();
            let caught = match classes.is_empty() {
                true => format!("{word} _catches(_try_{number}, None):"),
                false => format!("{word} _catches(_try_{number}, lambda: ({classes})):"),
            };
            self.put(indent, &caught, head.first)?;
            let first = self.statements.get(block.start).filter(|_| !block.is_empty());
            let inner = first.map_or(indent + 4, |first| moved(first.indent, shift));
            if let Some(name) = named {
                self.put(inner, &format!("{name} = _try_{number}.error"), head.first)?;
            }
            let (returns, breaks) =
                (around.returns.or(Some(number)), around.breaks.or(Some(number)));
            let around = Around { handled: Some(number), returns, breaks, ..around.clone() };
            self.block(block.clone(), &around, shift)?;
            word = "elif";
        }
        if let Some(Clause { head, block }) = otherwise {
            self.put(indent, &format!("elif _try_{number}.goes:"), head.first)?;
            self.block(block, around, shift)?;
        }
        Ok(())
    }
}

/// An indentation that is moved.
fn moved(indent: usize, shift: isize) -> usize {
    indent.checked_add_signed(shift).unwrap_or(0)
}

/// A statement in which a bare `raise` raises the exception that is being handled.
fn raised_again(text: &str, around: &Around) -> String {
    match around.handled {
        Some(number) => text.replace(AGAIN, &format!("_reraise(_try_{number})")),
        None => text.to_owned(),
    }
}
