//! Receives of NCCL's, which has no tags, that get what was sent with another tag. Only a plan tells: a dump
//! holds no tags.

use crate::claim::{Claim, no_call};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::report::Evidence;
use crate::rules::work_dropped::of_rank;
use crate::words::at_line;
use lockstep_core::plan::remark::Remark;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;

/// So many receives are shown.
const SHOWN: usize = 8;

/// One claim of all such receives.
pub(crate) fn claim(facts: &Facts<'_, '_>) -> Option<Claim> {
    let plan = facts.job.log.plan.as_deref()?;
    let mut culprits = BTreeSet::new();
    let mut evidence = Vec::new();
    let mut first = None;
    for rank in (0..plan.world_size).map(GlobalRank) {
        for (remark, at) in of_rank(plan, rank) {
            let Remark::TagIgnored { received, sent, from } = remark else { continue };
            let frame = at.map(|at| plan.describe_line(at));
            first.get_or_insert_with(|| {
                let line = at_line(frame.clone());
                format!(
                    "Rank {rank} receives tag {received}{line} and gets what rank {from} sent with tag {sent}: NCCL \
                     has no tags, and matches the sends and receives of two ranks by their order alone. Nothing \
                     hangs; the tensor holds another message than the program means."
                )
            });
            culprits.extend([rank, from]);
            let note = format!("receives tag {received}, gets tag {sent} of rank {from}");
            evidence.push(Evidence { frame, ..no_call(rank, note) });
        }
    }
    evidence.truncate(SHOWN);
    Some(Claim {
        kind: Kind::P2pTagIgnored,
        culprits: culprits.into_iter().collect(),
        also_victims: Vec::new(),
        group: None,
        seq: None,
        op: Some("recv".to_owned()),
        alternatives: Alternatives::None,
        message: first?.into(),
        fix: "Make the sends and receives of the two ranks in the same order on both sides. gloo and MPI match by \
              tag, NCCL does not."
            .to_owned(),
        evidence,
    })
}
