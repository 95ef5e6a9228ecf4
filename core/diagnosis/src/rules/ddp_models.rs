//! Models that differ between the ranks of a DDP job, as its constructor says on each of them
//! (`verify_params_across_processes` in `reducer.cpp`): of different numbers of parameters it ends
//! every rank, of different shapes those that differ from rank 0, and whoever ends first is not
//! therefore the one that is wrong.

use crate::claim::Claim;
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::model::index::Row;
use crate::words::ranks;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::RankState;
use lockstep_formats::job_log::{self, Said};
use std::collections::{BTreeMap, BTreeSet};

/// The models of the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sides {
    /// The ranks in the minority, ascending; everybody in a tie.
    pub(crate) culprits: Vec<GlobalRank>,
    /// True if no model has a majority.
    pub(crate) tie: bool,
    /// `ranks 0, 2 have 4 parameters, rank 1 has 6 parameters`.
    pub(crate) said: String,
}

impl Sides {
    /// Of ranks by what they have; `None` where all have the same.
    pub(crate) fn of(sides: impl IntoIterator<Item = (Vec<GlobalRank>, String)>) -> Option<Sides> {
        let mut sides: Vec<(Vec<GlobalRank>, String)> = sides.into_iter().collect();
        sides.retain(|(ranks, _)| !ranks.is_empty());
        if sides.len() < 2 {
            return None;
        }
        sides.sort();
        let most = sides.iter().map(|(ranks, _)| ranks.len()).max()?;
        let tie = sides.iter().filter(|(ranks, _)| ranks.len() == most).count() > 1;
        let odd = sides.iter().filter(|(ranks, _)| tie || ranks.len() < most);
        let culprits: BTreeSet<GlobalRank> =
            odd.flat_map(|(ranks, _)| ranks.iter().copied()).collect();
        let have = |(list, what): &(Vec<GlobalRank>, String)| {
            format!("{} {} {what}", ranks(list), if list.len() == 1 { "has" } else { "have" })
        };
        let said = sides.iter().map(have).collect::<Vec<_>>().join(", ");
        Some(Sides { culprits: culprits.into_iter().collect(), tie, said })
    }
}

/// The models of the ranks, by the words of DDP's constructor on all ranks; `how` is how one of them died.
pub(crate) fn sides(facts: &Facts<'_, '_>, how: &str) -> Option<Sides> {
    let log = facts.job.log;
    let mut texts: Vec<&str> = vec![how];
    texts.extend(log.logs().filter_map(|(_, own)| match &own.state {
        RankState::Died { how } => Some(how.as_str()),
        _ => None,
    }));
    // Those that were ended before they could say so would have.
    let programs = log.plan.iter().flat_map(|plan| &plan.programs);
    texts.extend(programs.flat_map(|program| &program.ops).filter_map(|op| op.action.ends_by()));
    let mut counts: BTreeMap<u64, BTreeSet<GlobalRank>> = BTreeMap::new();
    let mut shapes: BTreeMap<String, BTreeSet<GlobalRank>> = BTreeMap::new();
    let said = texts.into_iter().flat_map(|text| job_log::read("", text.as_bytes()).statements);
    for statement in said {
        match statement.said {
            Said::Parameters { count } => {
                counts.entry(count).or_default().insert(statement.rank);
            }
            Said::Shape { parameter } => {
                shapes.entry(parameter).or_default().insert(statement.rank);
            }
            _ => {}
        }
    }
    let list = |ranks: BTreeSet<GlobalRank>| ranks.into_iter().collect::<Vec<_>>();
    if !counts.is_empty() {
        let count = |(count, ranks)| (list(ranks), format!("{count} parameters"));
        return Sides::of(counts.into_iter().map(count));
    }
    // Without the plan only the first to end is known to differ from rank 0.
    log.plan.as_deref().filter(|_| !shapes.is_empty())?;
    let differ: BTreeSet<GlobalRank> = shapes.values().flatten().copied().collect();
    let like_0 = (0..log.world_size).map(GlobalRank).filter(|rank| !differ.contains(rank));
    let like_0 = (like_0.collect::<Vec<_>>(), "rank 0's model".to_owned());
    let shape = |(parameter, ranks)| (list(ranks), format!("another {parameter}"));
    Sides::of(std::iter::once(like_0).chain(shapes.into_iter().map(shape)))
}

/// The odd ranks where DDP's constructor raised on these ranks, as it does on those whose shapes are not those
/// of `first`: where that is most of the ranks, it is `first` itself. `None` where they are the odd ones, as
/// far as is known: a rank that says nothing may have been ended before it could.
pub(crate) fn raised(first: GlobalRank, differ: &[GlobalRank], world: usize) -> Option<Sides> {
    let differ: BTreeSet<GlobalRank> = differ.iter().copied().collect();
    if differ.len() * 2 < world || differ.contains(&first) {
        return None;
    }
    let tie = differ.len() * 2 == world;
    let others: Vec<GlobalRank> = differ.iter().copied().collect();
    let have = if others.len() == 1 { "has" } else { "have" };
    let said = format!("{} {have} another model than rank {first}", ranks(&others));
    let culprits = differ.into_iter().filter(|_| tie).chain([first]).collect::<BTreeSet<_>>();
    Some(Sides { culprits: culprits.into_iter().collect(), tie, said })
}

/// A finding of models that differ from the first rank's, of those that most have not.
pub(crate) fn of_raised(facts: &Facts<'_, '_>, row: &Row<'_>, claim: Claim) -> Claim {
    let members = facts.job.group(row.group).map(|group| group.ranks()).unwrap_or_default();
    let sides = members.first().and_then(|first| raised(*first, &claim.culprits, members.len()));
    let Some(sides) = sides else { return claim };
    let stands_by = |rank: &GlobalRank| !sides.culprits.contains(rank);
    let victims = claim.also_victims.iter().chain(&claim.culprits).copied().filter(stands_by);
    Claim {
        also_victims: victims.collect(),
        alternatives: if sides.tie { Alternatives::AsLikely } else { claim.alternatives },
        message: format!("{} So {}.", claim.message.said, sides.said).into(),
        culprits: sides.culprits,
        ..claim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minority_is_wrong_and_a_tie_is_one() {
        let side = |ranks: &[u32], what: &str| {
            (ranks.iter().copied().map(GlobalRank).collect::<Vec<_>>(), what.to_owned())
        };
        let odd = |sides: &[(Vec<GlobalRank>, String)]| {
            let sides = Sides::of(sides.to_vec())?;
            Some((sides.culprits.iter().map(|rank| rank.0).collect::<Vec<_>>(), sides.tie))
        };
        assert_eq!(odd(&[side(&[0, 2], "4"), side(&[1], "6")]), Some((vec![1], false)));
        assert_eq!(odd(&[side(&[1, 2], "4"), side(&[0], "6")]), Some((vec![0], false)));
        assert_eq!(odd(&[side(&[1], "4"), side(&[0], "6")]), Some((vec![0, 1], true)));
        let three = [side(&[1, 4], "4"), side(&[0, 2], "6"), side(&[3], "5")];
        assert_eq!(odd(&three), Some((vec![0, 1, 2, 3, 4], true)));
        assert_eq!(odd(&[side(&[0, 1], "4"), side(&[], "6")]), None);
        let said = Sides::of([side(&[1], "6 parameters"), side(&[0, 2], "4 parameters")]);
        assert_eq!(said.unwrap().said, "ranks 0, 2 have 4 parameters, rank 1 has 6 parameters");
    }
}
