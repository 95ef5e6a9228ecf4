//! A finding made of what ranks say in a log.

use crate::kinds::Kind;
use crate::report::{Certainty, Evidence, Finding};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement};
use std::collections::BTreeSet;

pub(crate) fn finding(
    kind: Kind,
    about: &[&Statement],
    message: String,
    fix: &str,
) -> Option<Finding> {
    let culprits: BTreeSet<GlobalRank> = about.iter().map(|it| it.rank).collect();
    (!culprits.is_empty()).then(|| Finding {
        kind,
        culprits: culprits.into_iter().collect(),
        victims: Vec::new(),
        group: None,
        seq: None,
        op: None,
        certainty: Certainty::Certain,
        message,
        fix: fix.to_owned(),
        evidence: about
            .iter()
            .take(16)
            .map(|it| Evidence {
                rank: it.rank,
                entry: None,
                frame: match &it.said {
                    Said::Raised { frame, .. } | Said::GaveUp { frame, .. } => frame.clone(),
                    _ => None,
                },
                note: format!("line {} of the log", it.line),
            })
            .collect(),
        ladder: None,
    })
}
