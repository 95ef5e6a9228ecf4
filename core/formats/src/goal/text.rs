//! The text of a GOAL file as operations, by the grammar of LogGOPSim's `txt2bin.re`.

use super::graph::{Kind, Operation, Waits};
use super::{GoalError, LineError};
use std::collections::BTreeMap;

/// The most ranks of a file: a short text could claim any number.
pub(super) const MAX_RANKS: u32 = 1 << 14;
/// The most operations, and the most `requires` of all ranks together.
const MAX_OPERATIONS: usize = 1 << 23;

/// Per rank its operations. Ranks without a block have none.
pub(super) fn parse(text: &str) -> Result<Vec<Vec<Operation>>, GoalError> {
    let mut ranks: Vec<Option<Vec<Operation>>> = Vec::new();
    let mut block: Option<Block> = None;
    let mut held = 0;
    let mut comment = false;
    for (line, text) in (1..).zip(text.lines()) {
        let bad = |why| GoalError::Line { line, why };
        let text = without_comments(text, &mut comment);
        let words = words(&text).map_err(bad)?;
        let Some((first, rest)) = words.split_first() else { continue };
        held += 1;
        if held > MAX_OPERATIONS {
            return Err(bad(LineError::TooMany { limit: MAX_OPERATIONS }));
        }
        match (&mut block, *first, rest) {
            (None, "num_ranks", [number]) => {
                let count = self::number(number, "number of ranks", 1, u64::from(MAX_RANKS))
                    .map_err(bad)?;
                if !ranks.is_empty() {
                    return Err(bad(LineError::RanksTwice));
                }
                ranks.resize_with(count as usize, || None);
            }
            (None, "rank", [number, "{"]) => {
                if ranks.is_empty() {
                    return Err(bad(LineError::RankFirst));
                }
                let last = ranks.len() as u64 - 1;
                let rank = self::number(number, "rank", 0, last).map_err(bad)? as u32;
                if ranks[rank as usize].is_some() {
                    return Err(bad(LineError::RankTwice(rank)));
                }
                block = Some(Block::of(rank));
            }
            (Some(open), "}", []) => {
                let slot = &mut ranks[open.rank as usize];
                *slot = Some(std::mem::take(&mut open.operations));
                block = None;
            }
            (Some(open), _, _) => open.line(&words, line, ranks.len() as u32).map_err(bad)?,
            (None, _, _) => {
                return Err(bad(LineError::NoBlock));
            }
        }
    }
    let line = text.lines().count().max(1);
    match (block, ranks.is_empty()) {
        (Some(block), _) => Err(GoalError::Line { line, why: LineError::OpenBlock(block.rank) }),
        (None, true) => Err(GoalError::Line { line, why: LineError::NoRanks }),
        (None, false) => Ok(ranks.into_iter().map(Option::unwrap_or_default).collect()),
    }
}

/// The line without `// …` and `/* … */`, which may go over lines.
fn without_comments<'a>(line: &'a str, inside: &mut bool) -> std::borrow::Cow<'a, str> {
    if !*inside && !line.contains('/') {
        return line.into();
    }
    let (mut kept, mut rest) = (String::new(), line);
    loop {
        if *inside {
            match rest.split_once("*/") {
                None => break,
                Some((_, after)) => (rest, *inside) = (after, false),
            }
        }
        match (rest.find("//"), rest.find("/*")) {
            (Some(end), other) if other.is_none_or(|other| end < other) => {
                kept.push_str(&rest[..end]);
                break;
            }
            (_, Some(start)) => {
                kept.push_str(&rest[..start]);
                kept.push(' ');
                (rest, *inside) = (&rest[start + 2..], true);
            }
            _ => {
                kept.push_str(rest);
                break;
            }
        }
    }
    kept.into()
}

/// The words of a line: `l1: send 8b to 1` has `l1`, `:`, `send`, `8`, `b`, `to` and `1`.
fn words(line: &str) -> Result<Vec<&str>, LineError> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            ':' | '{' | '}' => 1,
            '-' => 1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1),
            '0'..='9' => rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()),
            c if c.is_ascii_alphabetic() => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            other => return Err(LineError::Character(other)),
        };
        words.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

fn number(word: &str, what: &'static str, from: u64, to: u64) -> Result<u64, LineError> {
    let number = word.parse::<u64>().ok().filter(|number| (from..=to).contains(number));
    number.ok_or_else(|| LineError::Number { word: shown(word), what, from, to })
}

/// The beginning of a word.
fn shown(word: &str) -> String {
    word.chars().take(40).collect()
}

/// One rank's block, while it is read.
struct Block {
    rank: u32,
    operations: Vec<Operation>,
    labels: BTreeMap<String, u32>,
}

impl Block {
    fn of(rank: u32) -> Block {
        Block { rank, operations: Vec::new(), labels: BTreeMap::new() }
    }

    fn line(&mut self, words: &[&str], line: usize, ranks: u32) -> Result<(), LineError> {
        match words {
            [waiting, kind @ ("requires" | "irequires"), awaited] => {
                let (waiting, awaited) = (self.labelled(waiting)?, self.labelled(awaited)?);
                let Waits { ended, begun } = &mut self.operations[waiting as usize].waits;
                if *kind == "requires" {
                    ended.push(awaited)
                } else {
                    begun.push(awaited)
                }
                Ok(())
            }
            [label, ":", operation @ ..] => {
                let index = self.operations.len() as u32;
                if self.labels.insert((*label).to_owned(), index).is_some() {
                    return Err(LineError::LabelTwice(shown(label)));
                }
                self.operation(operation, line, ranks)
            }
            operation => self.operation(operation, line, ranks),
        }
    }

    fn labelled(&self, label: &str) -> Result<u32, LineError> {
        let known = self.labels.get(label).copied();
        known.ok_or_else(|| LineError::NoLabel(shown(label)))
    }

    fn operation(&mut self, words: &[&str], line: usize, ranks: u32) -> Result<(), LineError> {
        let peer = |word: &str| number(word, "peer", 0, u64::from(ranks) - 1).map(|p| p as u32);
        let bytes = |word: &str| number(word, "size in bytes", 0, 1 << 40);
        let (kind, options) = match words {
            ["calc", time, options @ ..] => {
                (Kind::Calc { ns: number(time, "time in nanoseconds", 0, u64::MAX >> 1)? }, options)
            }
            ["send", size, "b", "to", to, options @ ..] => {
                (Kind::Send { bytes: bytes(size)?, to: peer(to)?, tag: 0 }, options)
            }
            ["recv", size, "b", "from", from, options @ ..] => {
                let from = if *from == "-1" { None } else { Some(peer(from)?) };
                (Kind::Receive { bytes: bytes(size)?, from, tag: 0 }, options)
            }
            _ => {
                return Err(LineError::NoOperation);
            }
        };
        let mut operation = Operation { kind, waits: Waits::default(), line };
        operation.options(options)?;
        if let Kind::Send { to, .. } | Kind::Receive { from: Some(to), .. } = operation.kind
            && to == self.rank
        {
            return Err(LineError::Itself(to));
        }
        self.operations.push(operation);
        Ok(())
    }
}

impl Operation {
    /// `tag N`, `cpu N` and `nic N`. Our ranks have one of each of the latter.
    fn options(&mut self, words: &[&str]) -> Result<(), LineError> {
        let mut words = words;
        while let [name, value, rest @ ..] = words {
            match (*name, &mut self.kind) {
                ("tag", Kind::Send { tag, .. } | Kind::Receive { tag, .. }) => {
                    if *value == "-1" {
                        return Err(LineError::AnyTag);
                    }
                    *tag = number(value, "tag", 0, u64::from(u32::MAX))? as u32;
                }
                ("cpu", _) => {
                    number(value, "cpu", 0, 255)?;
                }
                ("nic", _) => {
                    number(value, "nic", 0, 255)?;
                }
                _ => return Err(LineError::Word(shown(name))),
            }
            words = rest;
        }
        match words {
            [] => Ok(()),
            [left, ..] => Err(LineError::NoNumber(shown(left))),
        }
    }
}
