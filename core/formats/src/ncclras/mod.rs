//! The output of NCCL's RAS client (`ncclras`, NCCL 2.24 and later: `src/ras/client_support.cc`):
//! communicators with ranks that launched other numbers of collectives than most.
//!
//! Below `Communicator ranks have different AllGather operation counts` are lines with the number of ranks
//! that have launched up to each operation, the most first. The ranks of a count that few have are listed
//! below it; a single one is named in the line itself. If the job is one communicator its ranks are the
//! job's; with several it is unclear which rank of the job is meant, and they are skipped.

mod reader;

pub(crate) use reader::NcclRasReader;

use crate::job_log::{JobLog, Said, Statement};
use crate::place::Place;
use lockstep_core::rank::{GlobalRank, MAX_WORLD_SIZE};

/// The most statements of a file that are kept.
const MOST_STATEMENTS: usize = 1 << 16;

/// The words that announce a difference.
const DIFFERENT: &str = "Communicator ranks have different ";

/// A difference that is being read.
#[derive(Debug, Default)]
struct Difference {
    op: String,
    /// The number of ranks for each number of launched operations, in the order of the lines.
    counts: Vec<(u64, u64)>,
}

/// The statements of RAS about ranks; empty if the text is not its output.
pub fn read(file: &str, text: &[u8]) -> JobLog {
    let mut log = JobLog::default();
    let mut open: Option<Difference> = None;
    let mut communicators = 0u32;
    // An empty line ends a difference, and so does the text.
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n').chain([&b""[..]])) {
        let line = String::from_utf8_lossy(line.get(..line.len().min(1 << 12)).unwrap_or(line));
        let line = line.trim();
        // `#0-0 (fa93daea854b060b) MISMATCH`
        if line.starts_with('#') && line.contains('(') {
            communicators += 1;
        }
        if let Some(rest) = line.strip_prefix(DIFFERENT) {
            let op = rest.split_whitespace().next().unwrap_or_default().to_owned();
            open = rest
                .ends_with("operation counts")
                .then(|| Difference { op, ..Difference::default() });
            continue;
        }
        let Some(difference) = &mut open else { continue };
        if line.is_empty() {
            let ranks = difference.counts.iter().fold(0u64, |sum, it| sum.saturating_add(it.0));
            let ranks = u32::try_from(ranks).ok().filter(|ranks| *ranks <= MAX_WORLD_SIZE);
            log.world_size = log.world_size.max(ranks);
            open = None;
            continue;
        }
        if let Some(counted) = counted(line) {
            difference.counts.push(counted);
        }
        if let Some(rank) = listed(line)
            && let [(most, others), .., (_, count)] = difference.counts.as_slice()
            && log.statements.len() < MOST_STATEMENTS
        {
            let (op, count, others, most) = (difference.op.clone(), *count, *others, *most);
            let said = Said::Launched { op, count, others, most };
            log.statements.push(Statement { rank, said, place: Place::new(file, number) });
        }
    }
    if communicators > 1 {
        log.statements.clear();
        log.world_size = None;
    }
    log
}

/// The number of ranks and of their launched operations: `6 ranks have launched up to operation
/// 64`, `2 ranks have not launched any operations`, and of one rank `Rank 7 has launched up to
/// operation 60 -- GPU 3 managed …`.
fn counted(line: &str) -> Option<(u64, u64)> {
    let (ranks, rest) = match line.strip_prefix("Rank ") {
        Some(rest) => (1, rest.split_once(" has ")?.1),
        None => {
            let (ranks, rest) = line.split_once(" ranks have ")?;
            (ranks.trim().parse().ok()?, rest)
        }
    };
    if rest.starts_with("not launched any operations") {
        return Some((ranks, 0));
    }
    let operation = rest.strip_prefix("launched up to operation ")?;
    let end = operation.find(|c: char| !c.is_ascii_digit()).unwrap_or(operation.len());
    Some((ranks, operation.get(..end)?.parse().ok()?))
}

/// The rank of `Rank 2 -- GPU 2 managed by process 3032 on node 10.0.0.4`, or of one that is counted alone.
fn listed(line: &str) -> Option<GlobalRank> {
    let rest = line.strip_prefix("Rank ").filter(|rest| rest.contains(" -- GPU "))?;
    let (rank, _) = rest.split_once(' ')?;
    rank.parse().ok().filter(|rank| *rank < MAX_WORLD_SIZE).map(GlobalRank)
}

#[cfg(test)]
mod tests;
