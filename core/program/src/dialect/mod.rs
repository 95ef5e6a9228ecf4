//! Python as people write it, as Starlark: imports, `with`, `while`, `raise`, `assert`, `is` and
//! f-strings are written in Starlark's words, and every line remembers where it came from.
//!
//! What has no counterpart (generators, coroutines) is refused with what to write instead.

mod annotations;
mod arguments;
mod asks;
mod assigned;
mod attempt_parts;
mod attempt_steps;
mod attempts;
mod augmented;
mod bound;
mod bytes;
mod chain;
mod classes;
mod column;
mod compare;
mod decorated;
mod deleted;
mod displays;
mod dropped;
mod environ;
mod exits;
mod followed;
mod fstring;
mod globals;
mod import;
mod inline;
mod load;
mod loops;
mod methods;
mod modules;
mod objects;
mod operand;
mod operators;
mod own_operators;
mod properties;
mod reflected;
mod refused;
pub(crate) mod rewritten;
mod scan;
mod semicolons;
mod starred;
mod subscript;

use rewritten::Rewritten;

#[cfg(test)]
mod tests;
mod truth;
mod turns;
mod waits;
mod walrus;
mod words;

pub(super) use column::{first as place, of as column};

use bound::{Bound, Here};
use decorated::Decorated;
use lockstep_scenarios::program::ProgramError;
use scan::Logical;
use waits::only_waits;
use words::first_word;

/// A block whose end needs a statement.
struct Open {
    indent: usize,
    kind: Block,
}

impl Open {
    /// Whether it is a loop without a condition, and a statement stands directly in it.
    fn is_endless(&self, indent: usize) -> bool {
        self.kind == Block::Endless { inner: indent }
    }
}

/// Methods of a store that a loop may ask until it likes the answer.
const POLLS: [&str; 3] = [".add(", ".get(", ".check("];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Loop,
    /// `while True`, whose statements stand so far in.
    Endless {
        inner: usize,
    },
    Def,
    /// A function in which names hold works alone, whose statements stand so far in.
    Holding {
        inner: usize,
    },
    /// `with`, of so many contexts, begun in this line.
    With {
        contexts: usize,
        line: usize,
    },
}

/// Rewrites a program.
#[cfg(test)]
fn rewrite(text: &str) -> Result<Rewritten, ProgramError> {
    asking(text, false)
}

/// Rewrites a program; `sums` says that operators become calls also where no class asks for it.
///
/// # Errors
/// When it has what a program cannot have.
pub(super) fn asking(text: &str, sums: bool) -> Result<Rewritten, ProgramError> {
    let original = text.lines().map(str::to_owned).collect();
    let text = loops::rewrite(text);
    let text = modules::rewrite(&text);
    let text = globals::rewrite(&text);
    let text = classes::rewrite(&text);
    let text = &*truth::rewrite(&text);
    let mut statements = scan::scan(text)?;
    let asks = asks::Asks::of(text, sums);
    statements.iter_mut().for_each(|own| own.asks = asks);
    let room = String::with_capacity(text.len() + 64);
    let mut out = Rewritten { text: room, origin: Vec::new(), original };
    let mut blocks: Vec<Open> = Vec::new();
    let mut at = 0;
    let bound = Bound::find(&statements);
    let mut decorated: Vec<Decorated> = Vec::new();
    let physical: Vec<&str> = text.lines().collect();
    let tries = statements.iter().any(|own| attempt_parts::is_one(&own.mask));
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
        for whole in attempt_parts::parts(statement, tries) {
            let apart = exits::parts(&whole, |word| contexts_left(&blocks, word) > 0);
            for part in apart.iter().flat_map(|apart| semicolons::parts(apart)) {
                let word = first_word(part.mask.trim_start());
                if exits::LEAVE.contains(&word) && contexts_left(&blocks, word) > 0 {
                    exits::in_order(&statements, index, text)?;
                }
                let ahead = Ahead { inner, leaves, idle, names: bound.at(index) };
                write(&mut out, &mut blocks, &part, ahead)?;
            }
        }
        if first_word(head) == "def" {
            decorated.extend(Decorated::of(&statements, index, blocks.len().saturating_sub(1))?);
        }
        if let (true, Some(open)) = (bound.begins(index), blocks.last_mut()) {
            out.line(&format!("{:inner$}_begun()", ""), statement.last);
            open.kind = Block::Holding { inner };
        }
    }
    for line in at..physical.len() {
        out.line("", line);
    }
    while let Some(open) = blocks.pop() {
        out.ends(&open, physical.len().saturating_sub(1));
        out.decorates(&mut decorated, blocks.len());
    }
    if tries { attempts::rewrite(out) } else { Ok(out) }
}

impl Rewritten {
    /// The lines that end a block, behind the line `last`.
    fn ends(&mut self, open: &Open, last: usize) {
        match open.kind {
            Block::With { contexts, line } => {
                for _ in 0..contexts {
                    self.line(&format!("{:1$}_exit()", "", open.indent), line);
                }
            }
            Block::Holding { inner } => self.line(&format!("{:inner$}_ended()", ""), last),
            Block::Loop | Block::Endless { .. } | Block::Def => {}
        }
    }
}

/// The statements that follow a statement.
#[derive(Clone, Copy)]
struct Ahead<'b> {
    /// The names that hold works alone.
    names: Here<'b>,
    /// The indentation of the block inside.
    inner: usize,
    /// Whether its block does nothing but leave a loop.
    leaves: bool,
    /// Whether its block does nothing but wait.
    idle: bool,
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
            return turns::while_loop(out, blocks, &own, &named, ahead);
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
        "with" => {
            let (text, mask) = expressions(statement)?;
            let Some(head) = block_head(&mask, "with") else {
                return refused(
                    "`with` and its block stand on one line",
                    "Write the block on lines of its own.",
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
            return Ok(());
        }
        "while" => return turns::while_loop(out, blocks, statement, &[], ahead),
        // The same in a loop that is left from within.
        "if" if leaves && blocks.last().is_some_and(|open| open.is_endless(indent)) => {
            let (text, mask) = expressions(statement)?;
            let end = block_head(&mask, "if").or_else(|| {
                let colon = mask.trim_end().strip_suffix("break")?.trim_end();
                Some((mask.find("if")? + 2, colon.strip_suffix(':')?.len()))
            });
            if let Some((from, to)) = end
                && POLLS.iter().any(|word| head.contains(word))
            {
                let exact = if head.contains("!=") { "True" } else { "False" };
                out.line(&format!("{:indent$}_polling({exact})", ""), first);
                let condition = text[from..to].replace('\n', " ");
                let condition = condition.trim();
                let rest = &text[to..];
                let head = format!("{:indent$}if _polled({condition}, True){rest}", "");
                out.line(&head, first);
                (first + 1..=statement.last).for_each(|line| out.line("", line));
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
        "try" | "except" | "finally" if attempt_parts::is_one(&statement.mask) => {
            out.lines(&statement.text[..statement.mask.trim_end().len()], statement);
            return Ok(());
        }
        word @ ("return" | "break" | "continue") if contexts_left(blocks, word) > 0 => {
            return leaving(out, statement, contexts_left(blocks, word), names);
        }
        "for" => {
            let written = turns::for_loop(out, statement, ahead)?;
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
        "del" if deleted::statement(statement).is_some() => {
            let text = deleted::statement(statement).unwrap_or_default();
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
    assigned::rewrite(&mut text, &mut mask);
    dropped::rewrite(&mut text, &mut mask);
    names.rewrite(&mut text, &mut mask);
    inline::rewrite(&mut text, &mut mask);
    out.lines(&text, statement);
    Ok(())
}

/// The number of contexts of `with` blocks that a statement leaves.
fn contexts_left(blocks: &[Open], word: &str) -> usize {
    let mut left = 0;
    for open in blocks.iter().rev() {
        match open.kind {
            Block::With { contexts, .. } => left += contexts,
            Block::Loop | Block::Endless { .. } if word != "return" => return left,
            Block::Def | Block::Holding { .. } => return left,
            Block::Loop | Block::Endless { .. } => {}
        }
    }
    left
}

/// A statement that leaves `with` blocks: they end behind what it returns.
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

/// The statement with f-strings and comparisons in Starlark's words, and its mask.
fn expressions(statement: &Logical) -> Result<(String, String), ProgramError> {
    let (mut text, mut mask) = fstring::rewrite(statement)?;
    properties::rewrite(&mut text, &mut mask);
    load::rewrite(&mut text, &mut mask);
    annotations::rewrite(&mut text, &mut mask);
    environ::rewrite(&mut text, &mut mask);
    bytes::rewrite(&mut text, &mut mask);
    displays::rewrite(&mut text, &mut mask);
    arguments::rewrite(&mut text, &mut mask);
    operators::rewrite(&mut text, &mut mask);
    if statement.asks.sums() {
        own_operators::rewrite(&mut text, &mut mask);
    }
    reflected::rewrite(&mut text, &mut mask);
    methods::rewrite(&mut text, &mut mask);
    subscript::rewrite(&mut text, &mut mask);
    statement.asks.rewrite(&mut text, &mut mask);
    chain::rewrite(&mut text, &mut mask);
    compare::rewrite(&mut text, &mut mask, statement.asks.orders());
    Ok((text, mask))
}

/// An expression inside of a text, in Starlark's words; as it is where it cannot be read.
fn expression(text: &str, asks: asks::Asks) -> String {
    let rewritten = match scan::scan(text).as_deref() {
        Ok([one]) => expressions(&Logical { asks, ..one.clone() }).ok(),
        _ => None,
    };
    rewritten.map_or_else(|| text.to_owned(), |(text, _)| text)
}

/// The text between the keyword and the colon that ends the line, as a range.
fn block_head(mask: &str, word: &str) -> Option<(usize, usize)> {
    let from = mask.find(word)? + word.len();
    let end = mask.trim_end();
    end.ends_with(':').then(|| (from, end.len() - 1))
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
