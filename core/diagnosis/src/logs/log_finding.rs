//! A finding made of what ranks say in a log.

use crate::claim::Claim;
use crate::claim::log_evidence::log_evidence;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::Statement;
use std::collections::BTreeSet;

pub(crate) fn finding(
    kind: Kind,
    about: &[&Statement],
    message: String,
    fix: &str,
) -> Option<Claim> {
    let culprits: BTreeSet<GlobalRank> = about.iter().map(|it| it.rank).collect();
    (!culprits.is_empty()).then(|| Claim {
        kind,
        culprits: culprits.into_iter().collect(),
        also_victims: Vec::new(),
        group: None,
        seq: None,
        op: None,
        alternatives: Alternatives::None,
        message: message.into(),
        fix: fix.to_owned(),
        evidence: about.iter().take(16).map(|it| log_evidence(it)).collect(),
    })
}
