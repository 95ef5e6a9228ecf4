//! The heartbeat monitor ended ranks whose watchdog thread stood still (`ProcessGroupNCCL::heartbeatMonitor`): a
//! call of CUDA or NCCL does not return, or another thread holds Python's lock.

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::log_finding::finding;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement};
use std::collections::{BTreeMap, BTreeSet};

const FIX: &str = "py-spy dump --native of a rank that hangs shows the call that does not return. Common ones: \
                   cudaEventDestroy or ncclCommAbort behind a hung kernel, and a lock of Python's held over a \
                   CUDA call. TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE write what each rank called.";

/// The finding of those ranks: of one that had fewer works than the others, that it is behind.
pub(crate) fn found(statements: &[Statement]) -> Option<Claim> {
    let stuck = |it: &&Statement| matches!(it.said, Said::StuckWatchdog { .. });
    let about: Vec<&Statement> = statements.iter().filter(stuck).collect();
    let who: BTreeSet<GlobalRank> = about.iter().map(|it| it.rank).collect();
    let who: Vec<GlobalRank> = who.into_iter().collect();
    let mut works: BTreeMap<u64, BTreeSet<GlobalRank>> = BTreeMap::new();
    for it in &about {
        if let Said::StuckWatchdog { works: Some(count) } = it.said {
            works.entry(count).or_default().insert(it.rank);
        }
    }
    let stood = format!(
        "NCCL's watchdog thread{} of {} stood still until the heartbeat monitor ended {}: a call of CUDA or NCCL \
         does not return, or something holds Python's lock.",
        if who.len() == 1 { "" } else { "s" },
        ranks(&who),
        if who.len() == 1 { "it" } else { "them" }
    );
    // A rank with fewer calls under way than most others has not made those calls.
    let fewest = works.first_key_value().map(|(count, ranks)| (*count, ranks.clone()));
    let most = works
        .iter()
        .max_by_key(|(_, ranks)| ranks.len())
        .map(|(count, ranks)| (*count, ranks.len()));
    if let (Some((fewest, behind)), Some((usual, many))) = (fewest, most)
        && fewest < usual
        && behind.len() < many
    {
        let behind: Vec<GlobalRank> = behind.into_iter().collect();
        let message = format!(
            "{stood} {} had {fewest} works under way where the others had {usual}: {} behind.",
            cap_ranks(&behind),
            if behind.len() == 1 { "it is" } else { "they are" }
        );
        let mut found = finding(Kind::RankNeverJoined, &about, message, FIX)?;
        found.also_victims = who.into_iter().filter(|rank| !behind.contains(rank)).collect();
        (found.culprits, found.alternatives) = (behind, Alternatives::LessLikely);
        return Some(found);
    }
    let mut found = finding(Kind::CallNeverCompleted, &about, stood, FIX)?;
    (found.culprits, found.also_victims) = (Vec::new(), who);
    found.alternatives = Alternatives::AsLikely;
    Some(found)
}
