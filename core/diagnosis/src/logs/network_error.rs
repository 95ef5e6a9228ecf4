//! Transfers between machines that failed, by NCCL's own lines. A process that ends closes its connections, so a rank
//! that ended by itself explains them.

use crate::claim::log_evidence::deed;
use crate::claim::{Claim, no_call};
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::report::Evidence;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said};
use std::collections::{BTreeMap, BTreeSet};

/// So many pairs of machines are named.
const SHOWN: usize = 4;

const FIX: &str = "Look at the end of the log of the machine with that address first: a process that ended closes its \
                   connections too. If all were there, test the link between the two machines (ibstat, ib_write_bw, \
                   nccl-tests) and look at its error counters.";

/// The finding of failed transfers.
pub(crate) fn found(heard: &Heard) -> Option<Claim> {
    let mut pairs: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut victims: BTreeSet<GlobalRank> = BTreeSet::new();
    let mut evidence = Vec::new();
    let by_ranks = heard.statements.iter().map(|it| (&it.said, &it.place, Some(it.rank)));
    let by_nobody = heard.unnamed.iter().map(|it| (&it.said, &it.place, None));
    for (said, place, rank) in by_ranks.chain(by_nobody) {
        let Said::NetworkFailed { host, peer, why } = said else { continue };
        pairs.entry((host, peer)).or_insert(why);
        named.entry(peer).or_default().insert(host);
        victims.extend(rank);
        evidence.extend(
            rank.map(|rank| Evidence { place: Some(place.clone()), ..no_call(rank, deed(said)) }),
        );
    }
    if pairs.is_empty() {
        return None;
    }
    let told = pairs.iter().take(SHOWN);
    let told: Vec<String> = told
        .map(|((host, peer), why)| format!("{host} lost its connection to {peer}: {why}"))
        .collect();
    let more = match pairs.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; {} more", words::count(more, "pair")),
    };
    // One that several machines name, and that alone.
    let mut common = named.iter().filter(|(_, hosts)| hosts.len() > 1);
    let common = match (common.next(), common.next()) {
        (Some((peer, hosts)), None) => {
            format!(" {} name {peer}: look there first.", words::count(hosts.len(), "machine"))
        }
        _ => String::new(),
    };
    evidence.truncate(16);
    Some(Claim {
        kind: Kind::NetworkError,
        culprits: Vec::new(),
        also_victims: victims.into_iter().collect(),
        group: None,
        seq: None,
        op: None,
        alternatives: Alternatives::LessLikely,
        message: format!(
            "NCCL's network layer reports failed transfers: {}{more}.{common} Either the network between the two \
             failed, or the process at the other end had ended.",
            told.join("; ")
        )
        .into(),
        fix: FIX.to_owned(),
        evidence,
    })
}

#[cfg(test)]
mod tests {
    use crate::kinds::Kind;
    use crate::logs::tests::{found, report};
    use crate::report::Certainty::Likely;

    fn failed(host: &str, peer: &str) -> String {
        format!(
            "{host}:11:12 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer {peer}<39112> with \
             status=12 opcode=32544 len=0 vendor err 129 (Recv)\n"
        )
    }

    fn timed_out(rank: u32) -> String {
        format!(
            "[rank{rank}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for \
             600029 milliseconds before timing out.\n"
        )
    }

    #[test]
    fn a_failed_transfer_names_both_machines() {
        let text = failed("node-1", "10.0.4.12") + &failed("node-2", "10.0.4.12");
        assert_eq!(found(&text), [(Kind::NetworkError, vec![], Likely)]);
        let message = &report(&text).findings[0].message;
        assert!(message.contains("node-1 lost its connection to 10.0.4.12"), "{message}");
        assert!(message.contains("2 machines name 10.0.4.12"), "{message}");
    }

    /// It explains calls that time out; a rank that ended by itself explains it.
    #[test]
    fn the_cause_comes_before_what_follows_from_it() {
        let hangs = failed("node-1", "10.0.4.12") + &timed_out(0) + &timed_out(1);
        assert_eq!(found(&hangs), [(Kind::NetworkError, vec![], Likely)]);
        let died = failed("node-1", "10.0.4.12")
            + "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"train.py\"\n[rank3]: \
               torch.OutOfMemoryError: CUDA out of memory.\n";
        assert_eq!(found(&died)[0].0, Kind::RankDied);
        assert_eq!(found("node-1:11:12 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n"), []);
    }
}
