//! The output of PyTorch's own analyser of Flight Recorder dumps: `torchfrtrace`
//! (`torch/distributed/ flight_recorder/fr_trace.py`; each collective as `EntryState.log` in
//! `components/types.py` prints it).
//!
//! A block begins with a line that names the collective's number, and each line below is `name: value`. Older
//! releases print `print`'s lines, newer ones `logging`'s: what stands before the name is passed over.

mod reader;

pub(crate) use reader::TorchFrTraceReader;

use crate::job_log::{JobLog, Said, Statement};
use crate::place::Place;
use lockstep_core::rank::{GlobalRank, MAX_WORLD_SIZE};

/// The beginning of a block whose collective not all ranks joined.
const NOT_JOINED: &str = "Not all ranks joining collective";
/// The beginning of a block whose calls differ.
const HAS_ERRORS: &str = "Collective sequence number:";

/// The most ranks of one block that are kept.
const MOST_RANKS: usize = 1 << 12;
/// The most statements of a file that are kept.
const MOST_STATEMENTS: usize = 1 << 16;

/// The collective of a block, as far as it was read.
#[derive(Debug, Default)]
struct Block {
    seq: Option<u64>,
    line: u64,
    group: String,
    op: String,
}

/// The statements of the analyser about ranks; empty if the text is not its output.
pub fn read(file: &str, text: &[u8]) -> JobLog {
    let mut log = JobLog::default();
    let mut block: Option<Block> = None;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = String::from_utf8_lossy(line.get(..line.len().min(1 << 16)).unwrap_or(line));
        if let Some(seq) = begins(&line) {
            block = Some(Block { seq, line: number, ..Block::default() });
            // The first releases wrote all in one line.
            if let Some((_, rest)) = line.split_once(" for group ") {
                let (group, rest) = rest.split_once(" collective ").unwrap_or((rest, ""));
                let (op, rest) = rest.split_once(" Missing ranks are ").unwrap_or((rest, ""));
                let op = op.trim().rsplit(':').next().unwrap_or_default().to_owned();
                let ranks = rest.split('}').next().unwrap_or_default();
                for rank in listed(ranks) {
                    let said =
                        Said::NotJoined { group: group.to_owned(), seq: None, op: op.clone() };
                    log.statements.push(Statement { rank, said, place: Place::new(file, number) });
                }
            }
            continue;
        }
        let Some(open) = &mut block else { continue };
        let value = |name: &str| line.split_once(name).map(|(_, value)| value.trim().to_owned());
        if let Some(group) = value("group info: ") {
            open.group = group;
        } else if let Some(op) = value("collective: ") {
            // `nccl:all_reduce`, also `gloo:` and what newer backends record.
            open.op = op.rsplit(':').next().unwrap_or_default().to_owned();
        } else if let Some(ranks) = value("missing ranks: ") {
            for rank in listed(&ranks) {
                let Block { seq, group, op, .. } = &*open;
                let said = Said::NotJoined { group: group.clone(), seq: *seq, op: op.clone() };
                log.statements.push(Statement { rank, said, place: Place::new(file, open.line) });
            }
        } else if let Some(errors) = value("error msg: ") {
            for (rank, what) in culprits(&errors) {
                let Block { seq, group, op, .. } = &*open;
                let seq = seq.unwrap_or(0);
                let said = Said::Differs { group: group.clone(), seq, op: op.clone(), what };
                log.statements.push(Statement { rank, said, place: Place::new(file, open.line) });
            }
        } else if let Some(size) = value("world size: ").and_then(|size| size.parse::<u32>().ok())
            && size <= MAX_WORLD_SIZE
            && open.group.contains("default_pg")
        {
            log.world_size = log.world_size.max(Some(size));
        }
        log.statements.truncate(MOST_STATEMENTS);
    }
    log
}

/// The number of the collective whose block a line begins: `Not all ranks joining collective, sequence number:
/// 31`, of older releases `Not all ranks joining collective 5 at entry 4`.
fn begins(line: &str) -> Option<Option<u64>> {
    let digits = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text.get(..end)?.parse().ok()
    };
    if let Some((_, rest)) = line.split_once(NOT_JOINED) {
        return Some(digits(rest.split_once("sequence number:").map_or(rest, |(_, rest)| rest)));
    }
    let (_, rest) = line.split_once(HAS_ERRORS)?;
    rest.contains("has errors").then(|| digits(rest))
}

/// The ranks of `{3, 4}`.
fn listed(text: &str) -> Vec<GlobalRank> {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    numbers.filter(|rank| *rank < MAX_WORLD_SIZE).map(GlobalRank).take(MOST_RANKS).collect()
}

/// The ranks of `Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH, …, Culprit rank 2; …`, and the
/// difference of their calls.
fn culprits(text: &str) -> Vec<(GlobalRank, String)> {
    let parts = text.split("Culprit rank ").skip(1).take(MOST_RANKS);
    let one = |part: &str| {
        let (rank, rest) = part.split_once(';')?;
        let rank = rank.trim().parse().ok().filter(|rank| *rank < MAX_WORLD_SIZE)?;
        let what = rest.trim().trim_start_matches("Error type: ");
        let end = what.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(what.len());
        Some((GlobalRank(rank), what.get(..end)?.to_owned()))
    };
    parts.filter_map(one).collect()
}

#[cfg(test)]
mod tests;
