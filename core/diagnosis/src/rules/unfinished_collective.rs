//! Calls that not all members of a group have made, in a run that came to its end all the same: what a
//! rank sends in a broadcast, a scatter or a gather on gloo goes on its way whether the others come or
//! not. PyTorch raises when that times out, or when a process is gone.

use crate::claim::deed_text::FIX_EXTRA;
use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::words;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Outcome;
use std::collections::BTreeSet;

/// The first such call of each group that no other finding tells of.
pub(crate) fn claims(facts: &Facts<'_, '_>, known: &[Claim]) -> Vec<Claim> {
    let job = facts.job;
    if job.log.plan.is_none() || job.log.outcome != Outcome::Completed {
        return Vec::new();
    }
    let mut told: BTreeSet<_> = known.iter().filter_map(|claim| claim.group).collect();
    let mut found = Vec::new();
    for row in &job.rows {
        let Some(group) = job.group(row.group).filter(|group| row.made.len() < group.ranks().len())
        else {
            continue;
        };
        let Some(made) = row.made.first().copied().filter(|_| told.insert(row.group)) else {
            continue;
        };
        let came: Vec<GlobalRank> = row.made.iter().map(|made| made.rank).collect();
        let mut others: Vec<GlobalRank> = group.ranks().to_vec();
        others.retain(|rank| !came.contains(rank));
        others.sort_unstable();
        let call = words::call(job.log, made);
        let tie = came.len() == others.len();
        let (kind, culprits) = match came.len() > others.len() {
            true => (Kind::OpSkipped, others.clone()),
            false => (Kind::OpExtra, came.clone()),
        };
        found.push(Claim {
            kind,
            culprits,
            also_victims: Vec::new(),
            group: Some(row.group),
            seq: Some(row.seq),
            op: Some(made.record.call.op.clone()),
            alternatives: if tie { Alternatives::AsLikely } else { Alternatives::LessLikely },
            message: format!(
                "{} made {call}, and {} never did. Here what is sent goes on its way and everybody comes to \
                 an end; in PyTorch the call raises when nobody takes it until its timeout, or when the \
                 others' processes are gone, and on NCCL it hangs. Either the one made it on top, or the \
                 other left it out.",
                cap_ranks(&came),
                ranks(&others)
            ).into(),
            fix: FIX_EXTRA.to_owned(),
            evidence: row.made.iter().take(8).map(|made| evidence(facts, *made, "called")).collect(),
        });
    }
    found
}
