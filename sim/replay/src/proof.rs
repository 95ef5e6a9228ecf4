//! A repair that completes proves a finding only if the job ends in that finding without the repair.

use crate::rank_programs::{calls_key, named};
use crate::recover::{Recovered, is_stay};
use crate::replayed_report::{is_same_finding, replayed_report};
use lockstep_core::plan::{Op, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome};
use lockstep_core::watch::Watch;
use lockstep_core::words::rank_list;
use lockstep_diagnosis::{Certainty, Finding, Kind, TriedRepair};
use lockstep_sim::{SimConfig, simulate_calls};
use std::sync::Arc;

/// A change that would mend a finding, and what came of trying it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// The change and its verdict.
    pub tried: TriedRepair,
    /// The changed plan.
    pub plan: Plan,
    /// True if the changed job completes. That alone proves no repair: see [`TriedRepair::why`].
    pub completes: bool,
}

/// Its watch ended the simulation.
#[derive(Debug)]
pub(crate) struct Stopped;

/// A recorded job that was replayed without any change.
#[derive(Debug)]
pub(crate) struct Unrepaired {
    findings: Vec<Finding>,
    completes: bool,
}

impl Unrepaired {
    /// The replay of a recording.
    ///
    /// # Errors
    /// The watch ended it.
    pub(crate) fn of(
        recovered: &Recovered,
        log: &CallLog,
        watch: &mut dyn Watch,
    ) -> Result<Unrepaired, Stopped> {
        let plan = Arc::new(recovered.plan.clone());
        let simulated = SimConfig::default()
            .for_calls_of(&plan)
            .and_then(|config| simulate_calls(plan, &config, watch));
        let Ok(simulated) = simulated else {
            return Ok(Unrepaired { findings: Vec::new(), completes: false });
        };
        if simulated.calls.outcome == Outcome::Cancelled {
            return Err(Stopped);
        }
        let completes = simulated.calls.outcome == Outcome::Completed;
        let findings = replayed_report(&recovered.calls, log.clone(), &simulated.calls).findings;
        Ok(Unrepaired { findings, completes })
    }

    /// True if the replay ends first in a finding.
    pub(crate) fn ends_in(&self, finding: &Finding) -> bool {
        self.findings.first().is_some_and(|first| is_same_finding(first, finding))
    }

    /// True if a finding is among those of the replay.
    fn shows(&self, finding: &Finding) -> bool {
        self.findings.iter().any(|one| is_same_finding(one, finding))
    }

    /// `completes as well`, or the finding that it ends in, as the end of a sentence.
    fn end(&self) -> String {
        match self.findings.first() {
            _ if self.completes => "completes as well".to_owned(),
            Some(first) => {
                format!("ends in another finding ({}: {})", first.kind.title(), first.message)
            }
            None => "ends in no finding".to_owned(),
        }
    }
}

/// Takes the proof from a repair whose changed job completes for another reason than the change.
pub(crate) fn prove(
    repair: &mut Repair,
    recovered: &Recovered,
    (finding, unrepaired): (&Finding, &Unrepaired),
) {
    if !repair.completes {
        return;
    }
    // The other ranks go on without the blamed ones: that accuses nobody.
    let accuses = repair.tried.change.given_up.is_empty();
    let doubt = if accuses && finding.certainty == Certainty::Undecidable {
        Some(
            "That proves nothing: the recording does not tell who is at fault, and a change of the other ranks' calls \
             may do the same."
                .to_owned(),
        )
    } else if !unrepaired.shows(finding) {
        Some(format!(
            "That proves nothing: the replay without the change {}, since the recording does not hold all that the \
             finding rests on.",
            unrepaired.end()
        ))
    } else {
        goes_back(repair, recovered, finding)
    };
    if let Some(doubt) = doubt {
        repair.tried.verified = false;
        repair.tried.why = format!("{} {doubt}", repair.tried.why);
    }
}

/// A sentence about ranks that were assumed to take up a loop again that they are only seen to leave; `None` of none.
fn goes_back(repair: &Repair, recovered: &Recovered, finding: &Finding) -> Option<String> {
    // If loops are of different lengths, the length decides which ranks are at fault.
    if finding.kind != Kind::DdpUnevenInputs {
        return None;
    }
    let calls = |plan: &Plan, rank: GlobalRank| -> Vec<Op> {
        let ops = plan.program(rank).map_or(&[][..], |program| &program.ops);
        let own = ops.iter().take_while(|op| !is_stay(op));
        own.filter(|op| !op.action.calls().is_empty()).cloned().collect()
    };
    let unblamed = (0..recovered.plan.world_size)
        .map(GlobalRank)
        .filter(|rank| !finding.culprits.contains(rank));
    let back = unblamed.filter(|rank| {
        let (before, after) = (calls(&recovered.plan, *rank), calls(&repair.plan, *rank));
        let Some((last, earlier)) = before.split_last() else { return false };
        let same = |one: &Op, other: &Op| {
            one.at == other.at && calls_key(&recovered.plan, one) == calls_key(&repair.plan, other)
        };
        after.get(before.len()).is_some_and(|next| {
            earlier.iter().any(|op| same(op, next)) && !earlier.iter().any(|op| same(op, last))
        })
    });
    let back: Vec<GlobalRank> = back.collect();
    let (first, noun) = (back.first()?, if back.len() == 1 { "rank" } else { "ranks" });
    let last = calls(&recovered.plan, *first).last().map(|op| named(&recovered.plan, op))?;
    Some(format!(
        "That proves nothing: {noun} {} would have to go on with the loop behind {last}, and no rank is seen to do so.",
        rank_list(&back)
    ))
}
