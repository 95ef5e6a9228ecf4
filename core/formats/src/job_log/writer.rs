//! Who wrote a line, as its beginning says: `[rank3]:` of PyTorch, `[default3]:` of
//! `torchrun --tee`, `3: ` of `srun --label`, `[1,3]<stderr>:` of `mpirun --tag-output`.
//!
//! What a launcher puts there is a number of its own: torchrun's counts on one machine, srun's counts
//! tasks. Where PyTorch's own prefix stands behind it, that says which rank it is, of all labels that
//! the same launcher wrote.

use super::line_words::number;
use std::collections::{BTreeMap, BTreeSet};

/// Roles that torchrun's workers have in practice.
const ROLES: [&str; 3] = ["default", "trainer", "worker"];

/// So many lines are looked at to see whether they are labelled.
const LOOKED_AT: usize = 2000;

/// Who wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Writer {
    /// It does not say.
    Nobody,
    /// The rank.
    Rank(u64),
    /// What a launcher calls by a number.
    Labelled(u64),
}

/// A line, taken apart.
pub(crate) struct Line<'a> {
    pub(crate) label: Option<u64>,
    pub(crate) rank: Option<u64>,
    /// What is behind both.
    pub(crate) text: &'a str,
}

impl<'a> Line<'a> {
    /// Takes a line apart; `numbered` if its log's lines begin with numbers.
    pub(crate) fn of(line: &'a str, numbered: bool) -> Line<'a> {
        let labelled = by_torchrun(line).or_else(|| by_mpirun(line));
        let labelled = labelled.or_else(|| by_srun(line).filter(|_| numbered));
        let (label, text) = match labelled {
            Some((label, text)) => (Some(label), text),
            None => (None, line),
        };
        match speaker(text) {
            Some((rank, behind)) => {
                let text = behind.strip_prefix(' ').unwrap_or(behind);
                Line { label, rank: Some(rank), text }
            }
            None => Line { label, rank: None, text },
        }
    }

    pub(crate) fn writer(&self) -> Writer {
        match (self.rank, self.label) {
            (Some(rank), _) => Writer::Rank(rank),
            (None, Some(label)) => Writer::Labelled(label),
            (None, None) => Writer::Nobody,
        }
    }
}

/// Whose line it is, by the `[rank2]:` that PyTorch puts before what it prints, and what is behind. It
/// need not come first: progress bars end in no new line.
pub(crate) fn speaker(line: &str) -> Option<(u64, &str)> {
    // Ray has another bracket of that name before it: `(Worker[rank=3] pid=7) [rank3]: …`.
    line.match_indices("[rank").find_map(|(at, what)| {
        let rest = line.get(at + what.len()..)?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        Some((rest.get(..digits)?.parse().ok()?, rest.get(digits..)?.strip_prefix("]:")?))
    })
}

fn by_torchrun(line: &str) -> Option<(u64, &str)> {
    let (name, text) = line.strip_prefix('[')?.split_once("]:")?;
    let role = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let label = name.get(role.len()..)?.parse().ok()?;
    ROLES.contains(&role).then_some((label, text))
}

fn by_mpirun(line: &str) -> Option<(u64, &str)> {
    let (name, rest) = line.strip_prefix('[')?.split_once("]<std")?;
    let (_, label) = name.rsplit_once(',')?;
    let (stream, text) = rest.split_once(">:")?;
    matches!(stream, "out" | "err").then_some((label.parse().ok()?, text))
}

fn by_srun(line: &str) -> Option<(u64, &str)> {
    let (label, text) = line.split_once(':')?;
    let label = label.trim_start();
    let is_number = !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit());
    let text = if text.is_empty() { text } else { text.strip_prefix(' ')? };
    Some((number(label).filter(|_| is_number)?, text))
}

/// True if most of a log's lines begin with a number, as `srun --label` writes them.
pub(crate) fn is_numbered(text: &[u8]) -> bool {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(LOOKED_AT);
    let (mut all, mut numbered) = (0, 0);
    for line in lines {
        let start = String::from_utf8_lossy(line.get(..line.len().min(32)).unwrap_or(line));
        all += 1;
        numbered += usize::from(by_srun(&start).is_some());
    }
    all > 1 && numbered * 2 >= all
}

/// Which rank each label stands for, as far as lines say.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    seen: BTreeMap<u64, BTreeSet<u64>>,
}

impl Labels {
    pub(crate) fn take(&mut self, line: &Line<'_>) {
        const MOST: usize = 1 << 16;
        if let Some(label) = line.label
            && (self.seen.len() < MOST || self.seen.contains_key(&label))
        {
            let ranks = self.seen.entry(label).or_default();
            ranks.extend(line.rank.filter(|_| ranks.len() < 2));
        }
    }

    /// The rank that a label stands for; `None` where it stands for several, or nothing orders it
    /// among those that are known.
    pub(crate) fn rank_of(&self, label: u64) -> Option<u64> {
        let one = |ranks: &BTreeSet<u64>| match ranks.len() {
            1 => ranks.first().copied(),
            _ => None,
        };
        if self.seen.values().any(|ranks| ranks.len() > 1) {
            return None;
        }
        if let Some(rank) = self.seen.get(&label).and_then(one) {
            return Some(rank);
        }
        let known = self.seen.iter().filter_map(|(label, ranks)| Some((*label, one(ranks)?)));
        let apart: BTreeSet<Option<u64>> =
            known.map(|(label, rank)| rank.checked_sub(label)).collect();
        match apart.len() {
            0 => Some(label),
            1 => label.checked_add((*apart.first()?)?),
            _ => None,
        }
    }

    /// The ranks that have written something.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = u64> {
        self.seen.keys().filter_map(|label| self.rank_of(*label))
    }
}
