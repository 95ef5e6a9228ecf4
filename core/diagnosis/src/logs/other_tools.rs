//! Findings of other tools: PyTorch's `torchfrtrace`, NCCL's own check of collectives, and NCCL's RAS. They have
//! seen the job, so that what they say is a finding of its own.

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::log_finding::finding;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// The findings of all of them.
pub(crate) fn found(statements: &[Statement]) -> Vec<Claim> {
    let not_joined = not_joined(statements).into_iter();
    not_joined
        .chain(differing(statements))
        .chain(mismatched_in_nccl(statements))
        .chain(launched(statements))
        .collect()
}

/// `all_reduce #31 of default_pg`.
fn call(op: &str, seq: Option<u64>, group: &str) -> String {
    let number = seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
    // `0:default_pg`: its name and its description.
    let label = group.split_once(':').map_or(group, |(_, desc)| desc);
    let of = if label.is_empty() { String::new() } else { format!(" of {label}") };
    format!("{op}{number}{of}")
}

/// The ranks of some statements.
fn ranks_of(about: &[&Statement]) -> Vec<GlobalRank> {
    about.iter().map(|it| it.rank).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Ranks that did not join a collective, as torchfrtrace says; of several the first of each group.
fn not_joined(statements: &[Statement]) -> Vec<Claim> {
    const FIX: &str = "Look at what those ranks did instead: drop the same dumps here, or look at their logs and \
                       stacks.";
    let mut calls: BTreeMap<(&str, Option<u64>, &str), Vec<&Statement>> = BTreeMap::new();
    for it in statements {
        if let Said::NotJoined { group, seq, op } = &it.said {
            calls.entry((group, *seq, op)).or_default().push(it);
        }
    }
    let mut groups = BTreeSet::new();
    calls.retain(|(group, _, _), _| groups.insert(group.to_owned()));
    let found = calls.into_iter().filter_map(|((group, seq, op), about)| {
        let who = ranks_of(&about);
        let message = format!(
            "{} did not join {}, as PyTorch's own analyser (torchfrtrace) says.",
            cap_ranks(&who),
            call(op, seq, group)
        );
        let mut found = finding(Kind::RankNeverJoined, &about, message, FIX)?;
        (found.seq, found.op) = (seq, Some(op.to_owned()));
        found.alternatives = Alternatives::LessLikely;
        Some(found)
    });
    found.collect()
}

/// Ranks whose call differs from the others', as torchfrtrace says.
fn differing(statements: &[Statement]) -> Option<Claim> {
    const FIX: &str = "Make every rank of the group call the same collective with the same shape and dtype there. \
                       torchfrtrace may name the majority: drop the same dumps here.";
    let first = statements.iter().find_map(|it| match &it.said {
        Said::Differs { seq, .. } => Some(*seq),
        _ => None,
    })?;
    let same = |it: &&Statement| matches!(&it.said, Said::Differs { seq, .. } if *seq == first);
    let about: Vec<&Statement> = statements.iter().filter(same).collect();
    let Said::Differs { group, op, what, .. } = &about.first()?.said else { return None };
    let kind = match what.as_str() {
        "COLLECTIVE_TYPE_MISMATCH" => Kind::CollectiveMismatch,
        "COLLECTIVE_DTYPE_MISMATCH" => Kind::DtypeMismatch,
        "SIZE_OR_SYNTAX_MISMATCH" => Kind::SizeMismatch,
        _ => Kind::CollectiveMismatch,
    };
    let message = format!(
        "{} differ{} from the others in {}, as PyTorch's own analyser (torchfrtrace) says: {what}.",
        cap_ranks(&ranks_of(&about)),
        crate::words::s(&ranks_of(&about)),
        call(op, Some(first), group)
    );
    let mut found = finding(kind, &about, message, FIX)?;
    (found.seq, found.op, found.alternatives) =
        (Some(first), Some(op.clone()), Alternatives::LessLikely);
    Some(found)
}

/// NCCL's own line that collectives differ.
fn mismatched_in_nccl(statements: &[Statement]) -> Option<Claim> {
    const FIX: &str = "Make every rank of the group call the same collective there. NCCL_DEBUG=INFO with \
                       NCCL_DEBUG_SUBSYS=COLL writes every call of every rank: drop those logs here, or the Flight \
                       Recorder's dumps.";
    let about: Vec<&Statement> =
        statements.iter().filter(|it| it.said == Said::MismatchedInNccl).collect();
    let who = ranks_of(&about);
    let message = format!(
        "NCCL found that ranks at and around {} called different collectives (NCCL WARN Mismatched collective). \
         Which of them is out of step the line does not say.",
        ranks(&who)
    );
    let mut found = finding(Kind::CollectiveMismatch, &about, message, FIX)?;
    found.alternatives = Alternatives::AsLikely;
    Some(found)
}

/// Ranks that have launched another number of collectives than the others, as RAS counts.
fn launched(statements: &[Statement]) -> Option<Claim> {
    const FIX: &str = "Ask ncclras again: where the counts go on the job only runs. Where they stand still, look at \
                       what the ranks with fewer calls do (py-spy dump), and at what the others call more.";
    let about: Vec<&Statement> =
        statements.iter().filter(|it| matches!(it.said, Said::Launched { .. })).collect();
    let Said::Launched { op, count, others, most } = &about.first()?.said else { return None };
    let same =
        |it: &&Statement| matches!(&it.said, Said::Launched { count: own, .. } if own == count);
    let about: Vec<&Statement> = about.iter().copied().filter(same).collect();
    let who = ranks_of(&about);
    let behind = count < others;
    let (kind, which) = match behind {
        true => (
            Kind::RankNeverJoined,
            format!("{} {} behind.", cap_ranks(&who), if who.len() == 1 { "is" } else { "are" }),
        ),
        false => (
            Kind::OpExtra,
            format!("Either the {most} others are behind, or {} made a call more.", ranks(&who)),
        ),
    };
    let op = if op == "collective" { "collectives".to_owned() } else { op.clone() };
    let message = format!(
        "NCCL's RAS counts {op}: {most} ranks have launched up to operation {others}, and {} up to operation \
         {count}. {which} RAS looks at a job that may run: one operation apart is usual then.",
        ranks(&who)
    );
    let mut found = finding(kind, &about, message, FIX)?;
    found.op = Some(op);
    found.alternatives = match behind && others.saturating_sub(*count) > 1 {
        true => Alternatives::LessLikely,
        false => Alternatives::AsLikely,
    };
    Some(found)
}
