//! Messages of `TORCH_DISTRIBUTED_DEBUG=DETAIL`: ranks whose calls differ under one number, or that are at
//! different numbers (`ProcessGroupWrapper.cpp`).

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::log_finding::finding;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// The call of each rank, as the message prints it: name, shapes, types.
type Print<'a> = (&'a str, &'a str, &'a str);

/// So many sides are told.
const SHOWN: usize = 8;

/// The finding of the first collective in which ranks differ.
pub(crate) fn found(statements: &[Statement]) -> Option<Claim> {
    let mut numbers: BTreeMap<u64, BTreeMap<GlobalRank, (&Statement, Print<'_>)>> = BTreeMap::new();
    for it in statements {
        if let Said::Runs { seq, op, shape, dtype } = &it.said {
            numbers.entry(*seq).or_default().insert(it.rank, (it, (op, shape, dtype)));
        }
    }
    let (first, there) = numbers.first_key_value()?;
    let prints: BTreeSet<&Print<'_>> = there.values().map(|(_, print)| print).collect();
    if prints.len() > 1 {
        return differing(*first, there);
    }
    match numbers.len() {
        1 => elsewhere(statements, *first, there),
        _ => apart(&numbers),
    }
}

/// Ranks whose calls differ under one number.
fn differing(seq: u64, there: &BTreeMap<GlobalRank, (&Statement, Print<'_>)>) -> Option<Claim> {
    let mut sides: BTreeMap<Print<'_>, Vec<GlobalRank>> = BTreeMap::new();
    for (rank, (_, print)) in there {
        sides.entry(*print).or_default().push(*rank);
    }
    let most = sides.values().map(Vec::len).max()?;
    let mut leaders = sides.iter().filter(|(_, ranks)| ranks.len() == most);
    let (usual, _) = leaders.next()?;
    let tie = leaders.next().is_some();
    let odd = |print: &Print<'_>| tie || print != usual;
    let about: Vec<&Statement> =
        there.values().filter(|(_, print)| odd(print)).map(|(it, _)| *it).collect();
    let other = sides.keys().find(|print| *print != usual)?;
    let kind = if other.0 != usual.0 {
        Kind::CollectiveMismatch
    } else if other.1 != usual.1 {
        Kind::SizeMismatch
    } else {
        Kind::DtypeMismatch
    };
    let said = sides.iter().take(SHOWN);
    let said =
        said.map(|((op, shape, dtype), who)| format!("{} {op} of {shape} {dtype}", cap_ranks(who)));
    let said: Vec<String> = said.collect();
    let message =
        format!("At #{seq} the ranks' calls differ, as the log says: {}.", said.join("; "));
    let fix = "Make every rank of the group call the same collective with the same shape and dtype there.";
    let mut found = finding(kind, &about, message, fix)?;
    found.seq = Some(seq);
    if tie {
        found.alternatives = Alternatives::AsLikely;
    }
    Some(found)
}

/// Ranks that make the same call under different numbers: those behind left a call out before, or the others
/// made one more.
fn apart(numbers: &BTreeMap<u64, BTreeMap<GlobalRank, (&Statement, Print<'_>)>>) -> Option<Claim> {
    const FIX: &str = "Find the branch that only some ranks take before that call, and make every rank of the \
                       group make the same calls. The Flight Recorder's dumps of all ranks show which call it is.";
    let most = numbers.values().map(BTreeMap::len).max()?;
    let mut leaders = numbers.iter().filter(|(_, ranks)| ranks.len() == most);
    let (usual, others) = leaders.next()?;
    let tie = leaders.next().is_some();
    let odd: Vec<(&u64, &BTreeMap<_, _>)> =
        numbers.iter().filter(|(seq, _)| tie || *seq != usual).collect();
    let about: Vec<&Statement> =
        odd.iter().flat_map(|(_, ranks)| ranks.values().map(|(it, _)| *it)).collect();
    let who = |ranks: &BTreeMap<GlobalRank, (&Statement, Print<'_>)>| -> Vec<GlobalRank> {
        ranks.keys().copied().collect()
    };
    let said: Vec<String> = numbers
        .iter()
        .take(SHOWN)
        .filter_map(|(seq, ranks)| {
            let (_, (op, _, _)) = ranks.values().next()?;
            Some(format!("{} in {op} #{seq}", crate::words::ranks(&who(ranks))))
        })
        .collect();
    let behind = odd.first().is_some_and(|(seq, _)| *seq < usual);
    let kind = if behind || tie { Kind::OpSkipped } else { Kind::OpExtra };
    let odd_ranks: Vec<GlobalRank> = odd.iter().flat_map(|(_, ranks)| who(ranks)).collect();
    let which = match (tie, behind) {
        (true, _) => {
            "One side left out a call, or the other made one more: nothing tells which.".to_owned()
        }
        (false, true) => format!(
            "{} left out a call before, or {} made one more.",
            cap_ranks(&odd_ranks),
            ranks(&who(others))
        ),
        (false, false) => format!(
            "{} made a call more before, or {} left one out.",
            cap_ranks(&odd_ranks),
            ranks(&who(others))
        ),
    };
    let message = format!(
        "The ranks are at different numbers, as the log says: {}. {which}",
        said.join("; ")
    );
    let mut found = finding(kind, &about, message, FIX)?;
    found.seq = numbers.keys().next().copied();
    found.alternatives = if tie { Alternatives::AsLikely } else { Alternatives::LessLikely };
    if !tie {
        found.also_victims = who(others);
    }
    Some(found)
}

/// Ranks of which the message cannot tell what they are in, only that it is another call.
fn elsewhere(
    statements: &[Statement],
    seq: u64,
    there: &BTreeMap<GlobalRank, (&Statement, Print<'_>)>,
) -> Option<Claim> {
    let others: Vec<&Statement> =
        statements.iter().filter(|it| it.said == Said::RunsElsewhere).collect();
    let away: BTreeSet<GlobalRank> =
        others.iter().map(|it| it.rank).filter(|rank| !there.contains_key(rank)).collect();
    let away: Vec<GlobalRank> = away.into_iter().collect();
    let here: Vec<GlobalRank> = there.keys().copied().collect();
    let (_, (op, _, _)) = there.values().next()?;
    let message = format!(
        "{} {} in {op} #{seq}, and {} {} elsewhere, as the log says. What the message prints of {} is no \
         call: which one it is in does not stand there.",
        cap_ranks(&here),
        if here.len() == 1 { "was" } else { "were" },
        ranks(&away),
        if away.len() == 1 { "was" } else { "were" },
        ranks(&away)
    );
    let fix = "Look at what that rank does: its own log, py-spy dump, or the Flight Recorder's dumps of all ranks.";
    let about: Vec<&Statement> = there.values().map(|(it, _)| *it).chain(others).collect();
    let mut found = finding(Kind::CollectiveMismatch, &about, message, fix)?;
    (found.seq, found.alternatives) = (Some(seq), Alternatives::AsLikely);
    (!away.is_empty()).then_some(found)
}
