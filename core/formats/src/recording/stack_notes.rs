//! The place of each rank's main thread, in sentences: ranks in one line share one.

use crate::frames::short_frame;
use crate::stacks::{Cause, ProcessStacks, ThreadStack};
use lockstep_core::rank::GlobalRank;
use lockstep_core::words::rank_list;
use std::collections::BTreeMap;

/// The most processes without a rank that are named.
const SHOWN: usize = 3;

/// More places than this are counted, not named.
const MOST_PLACES: usize = 8;

/// A process of the notes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Rank(GlobalRank),
    /// A process whose rank is unknown, by number or by the position of its stacks.
    Process(u64),
    Place(String, u64),
}

/// Sentences on the last stacks of each process.
pub(super) fn of(stacks: &[ProcessStacks]) -> Vec<String> {
    let mut last: BTreeMap<Owner, String> = BTreeMap::new();
    for process in stacks.iter().filter(|process| process.parent.is_none()) {
        let Some(thread) = process.main_thread() else { continue };
        let Some(place) = place(thread) else { continue };
        let owner = match (process.rank, process.pid) {
            (Some(rank), _) => Owner::Rank(rank),
            (None, Some(pid)) => Owner::Process(pid),
            (None, None) => Owner::Place(process.file_name.clone(), process.line),
        };
        let place = match &process.cause {
            Cause::Fatal(error) => format!("{place} when Python died of \"{error}\""),
            _ => place,
        };
        last.insert(owner, place);
    }
    let mut places: BTreeMap<&str, Vec<&Owner>> = BTreeMap::new();
    for (owner, place) in &last {
        places.entry(place).or_default().push(owner);
    }
    let mut places: Vec<(&str, Vec<&Owner>)> = places.into_iter().collect();
    places.sort_by(|a, b| a.1.cmp(&b.1));
    let more = places.len().saturating_sub(MOST_PLACES);
    let told = places.iter().take(MOST_PLACES).map(|(place, owners)| sentence(place, owners));
    let rest = (more > 0).then(|| format!("Stacks were also written in {more} other places."));
    told.chain(rest).collect()
}

/// `train_step (train.py:88), in all_reduce`
fn place(thread: &ThreadStack) -> Option<String> {
    let frame = thread.user_frame()?;
    let call = thread.distributed_call().map(|call| format!(", in {call}")).unwrap_or_default();
    Some(format!("{} ({}){call}", frame.function, short_frame(frame)))
}

fn sentence(place: &str, owners: &[&Owner]) -> String {
    let ranks: Vec<GlobalRank> = owners
        .iter()
        .filter_map(|owner| match owner {
            Owner::Rank(rank) => Some(*rank),
            _ => None,
        })
        .collect();
    let others = owners.iter().filter_map(|owner| match owner {
        Owner::Rank(_) => None,
        Owner::Process(pid) => Some(format!("process {pid}")),
        Owner::Place(file, line) => Some(format!("the process at line {line} of {file}")),
    });
    let others: Vec<String> = others.collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let of_ranks = (!ranks.is_empty()).then(|| format!("{noun} {}", rank_list(&ranks)));
    let mut named: Vec<String> = of_ranks.into_iter().collect();
    named.extend(others.iter().take(SHOWN).cloned());
    if let Some(more) = others.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    let (threads, were) = match owners.len() {
        1 => ("thread", "was"),
        _ => ("threads", "were"),
    };
    format!("By the stacks, the main {threads} of {} {were} in {place}.", named.join(", "))
}
