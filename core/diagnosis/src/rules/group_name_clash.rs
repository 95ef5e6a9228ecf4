//! Groups of one name that are not one group: gloo's dumps name a group by how many the rank has
//! made, so ranks that have left out a `new_group` mean another group by the next name.

use crate::claim::{Claim, evidence, no_call};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::{Job, Made, Row};
use crate::words;
use crate::words::{cap_ranks, ranks, s};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;

/// Two groups of one name, and who is in which.
pub(crate) struct Namesakes {
    /// The group that was made first.
    first: GroupId,
    /// The later one.
    later: GroupId,
    /// Ranks that made the first group.
    made: Vec<GlobalRank>,
    /// Ranks that left it out: those that mean the later one by the name, and those that have made
    /// no group so far.
    left_out: Vec<GlobalRank>,
}

impl Namesakes {
    /// Everybody concerned: what they do otherwise follows from this.
    pub(crate) fn ranks<'n>(&'n self, job: &'n Job<'_>) -> impl Iterator<Item = GlobalRank> + 'n {
        let waits = |rank: &GlobalRank| {
            let calls = job.rank(*rank).map(|log| log.calls.as_slice()).unwrap_or_default();
            calls.iter().any(|record| Made { rank: *rank, record }.pending())
        };
        // A member of the first group that waits for nobody stands in new_group.
        let stuck = self.made.iter().copied().filter(move |rank| !waits(rank));
        self.left_out.iter().copied().chain(stuck)
    }
}

/// The groups that share a name in a recording, by name.
pub(crate) fn find(job: &Job<'_>) -> Vec<Namesakes> {
    let groups = || (0..).map(GroupId).zip(&job.log.groups);
    let mut found = Vec::new();
    for (later, group) in groups().filter(|(id, _)| job.members_are_worked_out(*id)) {
        let same = groups().find(|(id, other)| *id < later && other.name() == group.name());
        let Some((first, _)) = same.filter(|(id, _)| job.members_are_worked_out(*id)) else {
            continue;
        };
        let callers = |id: GroupId| -> BTreeSet<GlobalRank> {
            job.rows_of(id).iter().flat_map(|row| &row.made).map(|made| made.rank).collect()
        };
        let made = callers(first);
        let mut left_out = callers(later);
        // A rank that has called only the default group, and waits for nobody, is still on its way there.
        let on_its_way = job.log.logs().filter(|(rank, log)| {
            let idle = |record| !Made { rank: *rank, record }.pending();
            !made.contains(rank)
                && log.calls.iter().all(|record| record.call.group == GroupId::WORLD)
                && log.calls.iter().all(idle)
        });
        left_out.extend(on_its_way.map(|(rank, _)| rank));
        let (made, left_out) = (made.into_iter().collect(), left_out.into_iter().collect());
        found.push(Namesakes { first, later, made, left_out });
    }
    found
}

/// The finding.
pub(crate) fn claim(facts: &Facts<'_, '_>, namesakes: &Namesakes) -> Option<Claim> {
    let Namesakes { first, later, made, left_out } = namesakes;
    let log = facts.job.log;
    let call = |id: GroupId| facts.job.rows_of(id).first()?.made.first().copied();
    let (earlier, other) = (call(*first)?, call(*later)?);
    let name = words::group_label(log, *later);
    let waiting = facts.job.rows_of(*later).iter().flat_map(Row::waiting);
    let waiting: BTreeSet<GlobalRank> = waiting.collect();
    let waiting: Vec<GlobalRank> = waiting.into_iter().collect();
    let shown = left_out.iter().take(16).map(|rank| {
        let row = facts.job.rows_of(*later).iter().find_map(|row| row.of(*rank));
        match row {
            Some(made) => evidence(facts, made, "waits in"),
            None => no_call(*rank, "has called no group but the default one"),
        }
    });
    let seen = facts.job.rows_of(*first).iter().take(1).flat_map(|row| &row.made).take(4);
    Some(Claim {
        kind: Kind::GroupDeadlock,
        culprits: left_out.clone(),
        also_victims: made.clone(),
        group: Some(*later),
        seq: other.record.seq,
        op: Some(other.record.call.op.clone()),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "{} most likely never called a new_group that {} called: {name} of the latter is the \
             one of {}, which ended; {} wait{} in {} of another {name}. A group's name is how many \
             groups the rank has made, and under it the ranks look for each other.",
            cap_ranks(left_out),
            ranks(made),
            words::call(log, earlier),
            ranks(&waiting),
            s(&waiting),
            words::short_call(log, other),
        )
        .into(),
        fix: "Call new_group on every rank of the job, members or not, in the same order; or pass \
              use_local_synchronization=True where only members call it, and have made \
              equally many groups before."
            .to_owned(),
        evidence: shown.chain(seen.map(|made| evidence(facts, *made, "called"))).collect(),
    })
}
