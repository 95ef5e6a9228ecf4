//! `new_group` called by some ranks only, or for other ranks: every rank of the job is to call it, in
//! the same order, whether it is a member or not.
//!
//! PyTorch 2.7.1 does not look whether they do (`_new_group_with_tag` ends in a barrier of all ranks
//! only with `TORCH_DIST_INIT_BARRIER=1`). But a group's name is how many groups its process has made,
//! and under that name its members look for each other in the store: two groups of one name take
//! each other's addresses.

use crate::claim::Claim;
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::report::Evidence;
use crate::rules::work_dropped::of_rank;
use crate::words::{at_line, cap_ranks, capital, ranks};
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{Plan, SourceLine};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// At most so many sides are told, and ranks are shown.
const SHOWN: usize = 4;

/// A rank's call of `new_group`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    name: String,
    ranks: Vec<GlobalRank>,
    at: Option<SourceLine>,
}

/// The calls of a rank, and whether it ends early: then it makes fewer.
fn calls(plan: &Plan, rank: GlobalRank) -> (Vec<Made>, bool) {
    let remarks = of_rank(plan, rank).into_iter();
    let made = remarks.filter_map(|(remark, at)| match remark {
        Remark::NewGroup { name, ranks } => Some(Made { name, ranks, at }),
        _ => None,
    });
    let last = plan.program(rank).and_then(|program| program.ops.last());
    (made.collect(), last.is_some_and(|op| op.action.ends_by().is_some()))
}

/// The ranks' `new_group` calls of one number: the list of each, or nothing.
type Sides = BTreeMap<Option<Vec<GlobalRank>>, Vec<GlobalRank>>;

/// The finding of the first call that not all ranks make alike. `explained` says that something else
/// is found already: then only groups that share a name are told.
pub(crate) fn claim(facts: &Facts<'_, '_>, explained: bool) -> Option<Claim> {
    let plan = facts.job.log.plan.as_deref()?;
    let all: Vec<(Vec<Made>, bool)> =
        (0..plan.world_size).map(|rank| calls(plan, GlobalRank(rank))).collect();
    let most = all.iter().map(|(made, _)| made.len()).max().unwrap_or(0);
    let sides = |nth: usize| -> Sides {
        let mut sides = Sides::new();
        for (rank, (made, ends)) in (0..).map(GlobalRank).zip(&all) {
            let own = made.get(nth);
            if own.is_some() || !ends {
                sides.entry(own.map(|own| own.ranks.clone())).or_default().push(rank);
            }
        }
        sides
    };
    let (nth, sides) = (0..most).map(|nth| (nth, sides(nth))).find(|(_, sides)| sides.len() > 1)?;
    let clash = clash(&all);
    if explained && clash.is_none() {
        return None;
    }
    let place = |rank: GlobalRank| {
        let (made, _) = all.get(rank.index())?;
        made.get(nth).and_then(|made| made.at).map(|at| plan.describe_line(at))
    };
    let largest = sides.values().map(Vec::len).max().unwrap_or(0);
    let tie = sides.values().filter(|ranks| ranks.len() == largest).count() > 1;
    let called: Vec<(&Vec<GlobalRank>, &Vec<GlobalRank>)> =
        sides.iter().filter_map(|(list, ranks)| Some((list.as_ref()?, ranks))).collect();
    // Ranks that leave out a call that all must make are wrong, even if they are the majority.
    let silent = sides.get(&None);
    let culprits = match (silent, called.len()) {
        (Some(silent), 1) => silent.clone(),
        _ => {
            let odd = sides.values().filter(|ranks| tie || ranks.len() < largest);
            let mut odd: Vec<GlobalRank> = odd.flatten().copied().collect();
            odd.sort_unstable();
            odd
        }
    };
    let mut told: Vec<String> = called
        .iter()
        .take(SHOWN)
        .map(|(list, who)| {
            let line = who.first().and_then(|rank| place(*rank));
            format!("{} called {}{}", ranks(who), written(list), at_line(line))
        })
        .collect();
    if called.len() > SHOWN {
        told.push(format!("others called {} more", called.len() - SHOWN));
    }
    let message = match (silent, &called[..]) {
        (Some(silent), [(list, who)]) => format!(
            "{} never called {}, which {} called{}.",
            cap_ranks(silent),
            written(list),
            ranks(who),
            at_line(who.first().and_then(|rank| place(*rank)))
        ),
        (silent, _) => {
            let none = silent.map(|silent| format!(", and {} called none", ranks(silent)));
            format!(
                "The ranks did not call new_group alike: in call {}, {}{}.",
                nth + 1,
                told.join(", "),
                none.unwrap_or_default()
            )
        }
    };
    let rule = "Every rank of the job is to call it, in the same order, members or not.";
    let shown = all.iter().zip((0..).map(GlobalRank)).filter(|(_, rank)| {
        let place = |side: &Vec<GlobalRank>| side.iter().position(|other| other == rank);
        sides.values().any(|side| place(side).is_some_and(|at| at < SHOWN))
    });
    let shown = shown.map(|((made, _), rank)| Evidence {
        rank,
        entry: None,
        place: None,
        frame: place(rank),
        note: match made.get(nth) {
            Some(made) => format!("called {}, as its group {}", written(&made.ranks), made.name),
            None => format!("called new_group {} times", made.len()),
        },
    });
    Some(Claim {
        kind: Kind::GroupMismatch,
        culprits,
        also_victims: Vec::new(),
        group: None,
        seq: None,
        op: Some("new_group".to_owned()),
        alternatives: Alternatives::None,
        message: format!("{message} {rule} {}", outcome(clash.as_ref())).into(),
        fix: "Call new_group for every group on every rank, in the same order, and keep the one that \
              the rank is in; or pass use_local_synchronization=True where only members call it, and have made \
              equally many groups before."
            .to_owned(),
        evidence: shown.collect(),
    })
}

/// Two groups of other members under one name, each of which somebody is in who has made it.
struct Clash {
    name: String,
    one: Vec<GlobalRank>,
    other: Vec<GlobalRank>,
}

/// The first two that take each other's addresses. A group of one looks for nobody, but others find
/// it.
fn clash(all: &[(Vec<Made>, bool)]) -> Option<Clash> {
    let mut named: BTreeMap<&str, &Vec<GlobalRank>> = BTreeMap::new();
    for ((made, _), rank) in all.iter().zip((0..).map(GlobalRank)) {
        for made in made.iter().filter(|made| made.ranks.binary_search(&rank).is_ok()) {
            let first = *named.entry(&made.name).or_insert(&made.ranks);
            if *first != made.ranks && first.len().max(made.ranks.len()) > 1 {
                let (one, other) = (first.clone(), made.ranks.clone());
                return Some(Clash { name: made.name.clone(), one, other });
            }
        }
    }
    None
}

/// The result in PyTorch.
fn outcome(clash: Option<&Clash>) -> String {
    match clash {
        Some(Clash { name, one, other }) => format!(
            "What comes of it in PyTorch 2.7.1 is a race: a group's name is how many groups its \
             process has made, so {} and {} are both group {name}, and their members overwrite each \
             other's addresses in the store, on NCCL the id of the communicator. Ranks of the one \
             may find ranks of the other, and others hang or lose their connection. Here each group \
             is taken as its members mean it.",
            written(one),
            written(other)
        ),
        None => capital(
            "PyTorch 2.7.1 does not check that, and lets it pass here, because no two groups have \
             one name so far; with TORCH_DIST_INIT_BARRIER=1 the ranks that called it wait for the \
             others until the timeout. A later group of ranks that have not made equally many hangs.",
        ),
    }
}

/// `new_group([0, 1])`.
fn written(list: &[GlobalRank]) -> String {
    let shown: Vec<String> = list.iter().take(16).map(GlobalRank::to_string).collect();
    let more = if list.len() > shown.len() { ", …" } else { "" };
    format!("new_group([{}{more}])", shown.join(", "))
}
