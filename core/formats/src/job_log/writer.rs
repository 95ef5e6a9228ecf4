//! The writer of a line, by its prefix: `[rank3]:` of PyTorch, `[default3]:` of `torchrun --tee`, `3: ` of
//! `srun --label`, `[1,3]<stderr>:` of `mpirun --tag-output`.
//!
//! Ray writes `(Trainer pid=7, ip=10.0.0.2)` before all of that, containers write the time, or the name of
//! the container; the rest is read as if it were the line.
//!
//! The number in a launcher's prefix is its own: torchrun counts on one machine, srun counts tasks. If
//! PyTorch's own prefix follows, it gives the rank of all labels that the same launcher wrote.

use super::colours::without_colours;
use super::line_words::{after, number};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64;

/// Roles that torchrun's workers have in practice.
const ROLES: [&str; 3] = ["default", "trainer", "worker"];

/// The most lines that are searched for labels.
const LOOKED_AT: usize = 2000;

/// The writer of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Writer {
    /// It does not say.
    Nobody,
    /// The rank.
    Rank(u64),
    /// A process that a launcher calls by a number.
    Labelled(u64),
    /// A process that the carrier of its lines calls by a text, of which this is the digest.
    Carried(u64),
}

/// A line, taken apart.
pub(crate) struct Line<'a> {
    /// The digest of the carrier's prefix, if it names one process.
    carrier: Option<u64>,
    pub(crate) label: Option<u64>,
    pub(crate) rank: Option<u64>,
    /// The text behind both.
    pub(crate) text: &'a str,
}

impl<'a> Line<'a> {
    /// Takes a line apart; `numbered` if its log's lines begin with numbers.
    pub(crate) fn of(line: &'a str, numbered: bool) -> Line<'a> {
        let (carrier, line) = carried(line);
        let carrier = carrier.map(|carrier| xxh3_64(carrier.as_bytes()));
        let labelled = by_torchrun(line).or_else(|| by_mpirun(line));
        let labelled = labelled.or_else(|| by_srun(line).filter(|_| numbered));
        let (label, text) = match labelled {
            Some((label, text)) => (Some(label), text),
            None => (None, line),
        };
        match speaker(text) {
            Some((rank, behind)) => {
                let text = behind.strip_prefix(' ').unwrap_or(behind);
                Line { carrier, label, rank: Some(rank), text }
            }
            None => Line { carrier, label, rank: None, text },
        }
    }

    pub(crate) fn writer(&self) -> Writer {
        match (self.rank, self.label, self.carrier) {
            (Some(rank), _, _) => Writer::Rank(rank),
            (None, Some(label), _) => Writer::Labelled(label),
            (None, None, Some(carrier)) => Writer::Carried(carrier),
            (None, None, None) => Writer::Nobody,
        }
    }
}

/// The rank of a line, by the `[rank2]:` that PyTorch puts before its output, and the rest of the
/// line. It need not come first: progress bars end in no new line.
pub(crate) fn speaker(line: &str) -> Option<(u64, &str)> {
    // Ray has another bracket of that name before it: `(Worker[rank=3] pid=7) [rank3]: …`.
    line.match_indices("[rank").find_map(|(at, what)| {
        let rest = line.get(at + what.len()..)?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        Some((rest.get(..digits)?.parse().ok()?, rest.get(digits..)?.strip_prefix("]:")?))
    })
}

/// The process that the carrier of a line names, and the line without it.
fn carried(line: &str) -> (Option<&str>, &str) {
    if let Some((name, rest)) = by_ray(line) {
        return (Some(name), rest);
    }
    let rest = behind_time(line);
    // Kubernetes' files: `2024-05-01T10:00:00.123456789Z stderr F text`.
    let rest =
        ["stdout F ", "stderr F "].iter().find_map(|what| rest.strip_prefix(what)).unwrap_or(rest);
    // `kubectl logs --prefix`, and docker compose.
    if let Some((name, rest)) = rest.strip_prefix("[pod/").and_then(|rest| rest.split_once("] ")) {
        return (Some(name), rest);
    }
    if let Some((name, text)) = rest.split_once(" | ")
        && name.len() < 64
        && !name.trim_end().contains(' ')
        && name.trim_end().ends_with(|c: char| c.is_ascii_digit())
    {
        return (Some(name.trim_end()), text);
    }
    (None, rest)
}

/// `(Trainer pid=7, ip=10.0.0.2) text` of Ray.
fn by_ray(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix('(')?.split_once(')')?;
    let (_, pid) = name.split_once(" pid=")?;
    pid.starts_with(|c: char| c.is_ascii_digit())
        .then(|| (name, rest.strip_prefix(' ').unwrap_or(rest)))
}

/// A line without the time that a container's log puts first: `2024-05-01T10:00:00.123Z `.
fn behind_time(line: &str) -> &str {
    let Some((time, rest)) = line.split_once(' ') else { return line };
    let bytes = time.as_bytes();
    let is_time = (20..40).contains(&time.len())
        && bytes.get(4) == Some(&b'-')
        && bytes.get(10) == Some(&b'T')
        && time.ends_with('Z')
        && time.starts_with(|c: char| c.is_ascii_digit());
    if is_time { rest } else { line }
}

/// The job of a line, by Ray's class of actors: those of one class are the ranks of one job.
pub(super) fn job(line: &str) -> Option<&str> {
    let (name, _) = by_ray(line)?;
    let (class, _) = name.split_once(" pid=")?;
    Some(class.split(['[', '(']).next().unwrap_or(class))
}

/// The jobs whose ranks write into a text, where there may be several.
pub(super) fn jobs(text: &[u8]) -> BTreeSet<String> {
    const MOST: usize = 16;
    let mut jobs = BTreeSet::new();
    for line in text.split(|byte| *byte == b'\n') {
        // Colours may stand before it.
        if !line.iter().take(16).any(|byte| *byte == b'(') || jobs.len() >= MOST {
            continue;
        }
        let line = String::from_utf8_lossy(line.get(..line.len().min(512)).unwrap_or(line));
        let line = without_colours(&line);
        if speaker(&line).is_some()
            && let Some(job) = job(&line)
        {
            jobs.insert(job.to_owned());
        }
    }
    jobs
}

/// The number of other processes that wrote the same, as Ray says behind a line: `[repeated 14x
/// across cluster]`.
pub(super) fn repeated(line: &str) -> u64 {
    after(line, "[repeated ")
        .filter(|rest| rest.contains("across cluster"))
        .and_then(number)
        .unwrap_or(0)
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

/// The rank of each label, as far as lines say.
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

    /// The rank of a label; `None` if it may be several, or nothing orders it among the known ones.
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
