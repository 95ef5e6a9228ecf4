//! Finds the code, strings and comments of a Python text, and the lines that begin a statement.

use crate::dialect::asked_methods::Asks;
use lockstep_scenarios::program::ProgramError;

/// Brackets that may be open at once. A parser and a compiler recurse into them.
const MAX_DEPTH: usize = 48;
/// Operators, calls and the like between two commas of one statement: they nest in the syntax tree.
const MAX_CHAIN: u32 = 200;
/// Blocks in blocks.
const MAX_INDENT: usize = 24;

/// A statement's first line up to where the statement, or the head of its block, ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logical {
    /// Index of its first physical line.
    pub(crate) first: usize,
    /// Index of its last physical line.
    pub(crate) last: usize,
    /// Bytes of white space in front.
    pub(crate) indent: usize,
    /// Its text.
    pub(crate) text: String,
    /// Its text with strings and comments blanked out, of the same length.
    pub(crate) mask: String,
    /// The questions that its program asks of objects.
    pub(super) asks: Asks,
}

/// Splits a text into statements. Blank lines and comments belong to none.
///
/// # Errors
/// A string or bracket that is not closed, or nesting deeper than allowed.
pub(crate) fn scan(text: &str) -> Result<Vec<Logical>, ProgramError> {
    let mut lines = Vec::new();
    let mut masks = Mask::new();
    let mut open: Option<Logical> = None;
    let mut indents: Vec<usize> = vec![0];
    for (number, line) in text.lines().enumerate() {
        let goes_on = masks.goes_on();
        // A string that goes on is one.
        let between = if masks.string.is_some() { '\u{1}' } else { '\n' };
        let mask = masks.line(line, number)?;
        if !goes_on {
            lines.extend(open.take());
            let bare = mask.trim();
            if bare.is_empty() {
                continue;
            }
            let indent = mask.len() - mask.trim_start().len();
            if let Some(tab) = mask[..indent].find('\t') {
                let why = "a tab in front of a statement; indent with spaces";
                return Err(error_at((number, tab), why));
            }
            while indents.last().is_some_and(|last| *last > indent) {
                indents.pop();
            }
            if indents.last().is_some_and(|last| *last < indent) {
                indents.push(indent);
            }
            if indents.len() > MAX_INDENT {
                return Err(ProgramError::at(number, 0, "blocks are nested too deep"));
            }
            let (text, asks) = (line.to_owned(), Asks::default());
            open = Some(Logical { first: number, last: number, indent, text, mask, asks });
        } else if let Some(open) = &mut open {
            open.last = number;
            open.text.push('\n');
            open.text.push_str(line);
            open.mask.push(between);
            open.mask.push_str(&mask);
        }
    }
    lines.extend(open);
    masks.finish()?;
    Ok(lines)
}

/// A line and a column in characters, both counted from 0.
type Place = (usize, usize);

/// An error at a place, whose column counts even where it is the first.
fn error_at((line, column): Place, message: impl Into<String>) -> ProgramError {
    ProgramError { column: column as u32 + 1, ..ProgramError::at(line, 0, message) }
}

/// The strings and brackets that are open at the end of a line.
struct Mask {
    /// The quote that closes the string that is open, and where it began.
    string: Option<(&'static str, bool, Place)>,
    /// The brackets that are open, outermost first.
    opened: Vec<(char, Place)>,
    backslash: bool,
    chain: u32,
}

impl Mask {
    fn new() -> Mask {
        Mask { string: None, opened: Vec::new(), backslash: false, chain: 0 }
    }

    /// True if the next line continues this statement.
    fn goes_on(&self) -> bool {
        self.string.is_some() || !self.opened.is_empty() || self.backslash
    }

    fn finish(&self) -> Result<(), ProgramError> {
        if let Some((quote, _, place)) = self.string {
            return Err(error_at(place, format!("the string is not closed with {quote}")));
        }
        match self.opened.last() {
            Some((bracket, place)) => {
                Err(error_at(*place, format!("the bracket {bracket} is not closed")))
            }
            None => Ok(()),
        }
    }

    /// The line with strings and comments blanked out.
    fn line(&mut self, line: &str, number: usize) -> Result<String, ProgramError> {
        if !self.goes_on() {
            self.chain = 0;
        }
        self.backslash = false;
        let mut mask = String::with_capacity(line.len());
        let mut rest = line;
        let mut before = ' ';
        let mut column = 0;
        while let Some(next) = rest.chars().next() {
            let taken = match self.string {
                Some((quote, raw, _)) => match rest {
                    _ if rest.starts_with('\\') && !raw => {
                        1 + rest[1..].chars().next().map_or(0, char::len_utf8)
                    }
                    _ if rest.starts_with(quote) => {
                        self.string = None;
                        quote.len()
                    }
                    _ => next.len_utf8(),
                },
                None if next == '#' => rest.len(),
                None if next == '"' || next == '\'' => {
                    let quote = match next {
                        '"' if rest.starts_with("\"\"\"") => "\"\"\"",
                        '"' => "\"",
                        _ if rest.starts_with("'''") => "'''",
                        _ => "'",
                    };
                    self.string = Some((quote, matches!(before, 'r' | 'R'), (number, column)));
                    quote.len()
                }
                None if next == '\\' && rest.len() == 1 => {
                    self.backslash = true;
                    mask.push(' ');
                    rest = "";
                    continue;
                }
                None => {
                    self.code(next, before, rest, number, column)?;
                    mask.push(next);
                    before = next;
                    column += 1;
                    rest = &rest[next.len_utf8()..];
                    continue;
                }
            };
            // A string is no blank, so that what stands beside it is not seen as one word.
            let blank = if next == '#' && self.string.is_none() { ' ' } else { '\u{1}' };
            mask.extend(std::iter::repeat_n(blank, taken));
            before = ' ';
            column += rest[..taken].chars().count();
            rest = &rest[taken..];
        }
        if let Some((quote, _, from)) = self.string
            && quote.len() == 1
            && !line.ends_with('\\')
        {
            return Err(error_at(from, format!("the string is not closed with {quote}")));
        }
        Ok(mask)
    }

    /// Counts brackets.
    fn code(
        &mut self,
        next: char,
        before: char,
        rest: &str,
        number: usize,
        column: usize,
    ) -> Result<(), ProgramError> {
        let word = !before.is_alphanumeric() && before != '_';
        let chains = match next {
            ',' | ';' => {
                self.chain = 0;
                false
            }
            '(' | '[' | '{' => {
                self.opened.push((next, (number, column)));
                true
            }
            ')' | ']' | '}' => {
                if self.opened.pop().is_none() {
                    let why = format!("nothing is open for this {next}");
                    return Err(error_at((number, column), why));
                }
                false
            }
            '+' | '-' | '*' | '/' | '%' | '|' | '&' | '^' | '~' | '<' | '>' | '=' | '.' => true,
            _ if word && next.is_alphabetic() => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let word = &rest[..end.unwrap_or(rest.len())];
                matches!(
                    word,
                    "not" | "and" | "or" | "in" | "if" | "else" | "lambda" | "for" | "is"
                )
            }
            _ => false,
        };
        self.chain += u32::from(chains);
        if self.opened.len() > MAX_DEPTH || self.chain > MAX_CHAIN {
            return Err(error_at((number, column), "the expression is nested too deep")
                .with_help("Give parts of it names, on lines of their own."));
        }
        Ok(())
    }
}
