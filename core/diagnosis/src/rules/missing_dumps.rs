//! Other sources explain ranks that left no dump: a file that cannot be read, the last call in NCCL's log, an
//! end by torchrun, a timeout in the call in which the others wait.

use crate::claim::Claim;
use crate::claim::message::Message;
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::other_sources::{OtherSources, UnreadableDump};
use crate::kinds::Kind;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallLog;
use lockstep_formats::job_log::{Heard, Said, Statement, is_timeout, is_world};
use std::collections::BTreeSet;

/// Ranks whose last calls in NCCL's log are told.
const LAST_CALLS: usize = 8;

/// Adds to claims that nothing was recorded of ranks what other sources say of them.
pub(crate) fn explain(facts: &Facts<'_, '_>, claims: &mut [Claim]) {
    let sources = facts.other_sources;
    for missing in claims.iter_mut().filter(|claim| claim.kind == Kind::RankMissing) {
        unreadable(missing, &sources.unreadable);
        add_last_calls(missing, sources.nccl_calls);
        if !sources.heard.statements.is_empty() {
            let mut victims = facts.graph.waiting_for(&missing.culprits);
            victims.extend(missing.also_victims.iter().copied());
            victims.retain(|rank| !missing.culprits.contains(rank));
            take_out_explained(missing, victims.len(), sources, facts.job.log.world_size);
            still_connected(missing, &victims.into_iter().collect(), &sources.heard);
        }
    }
}

/// A rank whose dump is there but cannot be read is not known to have crashed, nor to be missed where others wait:
/// its claim says so instead.
fn unreadable(missing: &mut Claim, dumps: &[UnreadableDump]) {
    for dump in dumps.iter().filter(|dump| missing.culprits.contains(&dump.rank)) {
        let said = std::mem::take(&mut missing.message.said);
        missing.message = Message::from(format!(
            "The dump of rank {} ({}) cannot be read. {said} What is wrong with a file says nothing of its rank: \
             it may have been in that call as well.",
            dump.rank, dump.file_name
        ));
        missing.alternatives = Alternatives::AsLikely;
        "Copy the dump again from where the rank wrote it, as a whole. If there is no more of it, look at \
         the end of the rank's own log."
            .clone_into(&mut missing.fix);
        for evidence in missing.evidence.iter_mut().filter(|seen| seen.rank == dump.rank) {
            evidence.note = format!("left a dump that cannot be read: {}", dump.error);
        }
    }
}

/// Adds the last calls in NCCL's log.
fn add_last_calls(missing: &mut Claim, nccl_calls: Option<&CallLog>) {
    let Some(log) = nccl_calls else { return };
    for rank in missing.culprits.iter().take(LAST_CALLS) {
        let own = log.ranks.get(rank.index()).and_then(Option::as_ref);
        let Some(last) = own.and_then(|own| own.calls.last()) else { continue };
        let group = log.groups.get(last.call.group.index());
        let label = group.map_or("?", |group| group.label());
        let number = last.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
        let op = &last.call.op;
        let ends = format!("Rank {rank}'s NCCL log ends with {op}{number} of {label}.");
        missing.message.added.push(ends);
        for seen in missing.evidence.iter_mut().filter(|seen| seen.rank == *rank) {
            seen.note += &format!("; its NCCL log ends with {op}{number}");
        }
    }
}

/// Takes ranks out of a claim, for which so many wait, where the logs explain that nothing was recorded of them.
/// Somebody stays in it.
fn take_out_explained(missing: &mut Claim, victims: usize, sources: &OtherSources<'_>, world: u32) {
    let of_all = missing.culprits.len() + victims == world as usize;
    let ended = |rank: &GlobalRank| sources.ended_by_torchrun(*rank);
    if let Some(ended) = take_out(missing, ended) {
        missing.message.added.push(format!(
            "torchrun itself ended {}, because another rank had failed: that explains the missing dump{}.",
            words::ranks(&ended),
            if ended.len() == 1 { "" } else { "s" }
        ));
        missing.evidence.retain(|seen| !ended.contains(&seen.rank));
    }
    // A call's number says which one it is in its group only.
    let seq = missing.seq;
    let in_it = |it: &&Statement| match &it.said {
        Said::TimedOut { group, seq: own, .. } => of_all && is_world(group) && seq == Some(*own),
        _ => false,
    };
    let waited: BTreeSet<GlobalRank> =
        sources.heard.statements.iter().filter(in_it).map(|it| it.rank).collect();
    if let Some(waited) = take_out(missing, |rank| waited.contains(rank)) {
        missing.message.guess = None;
        missing.message.said += &format!(
            " Of them, {} timed out in that call like the others, as the logs say: most likely {} never came to \
             it, or ended.",
            words::ranks(&waited),
            words::ranks(&missing.culprits)
        );
    }
}

/// Makes it the finding of ranks that were there and never came, where the ranks that waited for them gave up by a
/// timeout, and none by a connection that closed: the system closes the connections of a process that ends.
fn still_connected(missing: &mut Claim, victims: &BTreeSet<GlobalRank>, heard: &Heard) {
    let gave_up = |it: &&Statement| matches!(it.said, Said::GaveUp { .. });
    let mut timed_out = BTreeSet::new();
    for it in heard.statements.iter().filter(gave_up) {
        match &it.said {
            Said::GaveUp { error, .. } if is_timeout(error) => drop(timed_out.insert(it.rank)),
            _ => return,
        }
    }
    let waited: Vec<GlobalRank> = timed_out.intersection(victims).copied().collect();
    let spoke = |rank: &GlobalRank| heard.statements.iter().any(|it| it.rank == *rank);
    let open = missing.open() == Alternatives::AsLikely;
    if waited.is_empty() || open || missing.culprits.iter().any(spoke) {
        return;
    }
    let who = words::ranks(&missing.culprits);
    let (was, its) = if missing.culprits.len() == 1 { ("was", "its") } else { ("were", "their") };
    missing.kind = Kind::RankNeverJoined;
    missing.message.guess = None;
    missing.message.added.push(format!(
        "By the log, {} timed out, and no connection was closed, as those of a process that ends are: most likely \
         {who} {was} still there and never came to that call, or {its} machine is gone.",
        words::ranks(&waited)
    ));
    "Look at what the rank does before that call: a data loader or a checkpoint that blocks, a branch around the \
     call, a device that does not answer. py-spy dump --pid shows the line, if the process is still there."
        .clone_into(&mut missing.fix);
}

/// Makes those of the culprits victims of which this holds, if it does of some and not of all: which these are.
fn take_out(claim: &mut Claim, holds: impl Fn(&GlobalRank) -> bool) -> Option<Vec<GlobalRank>> {
    let (out, culprits): (Vec<GlobalRank>, Vec<GlobalRank>) =
        claim.culprits.iter().partition(|rank| holds(rank));
    if out.is_empty() || culprits.is_empty() {
        return None;
    }
    claim.culprits = culprits;
    claim.also_victims.extend(&out);
    claim.also_victims.sort_unstable();
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_formats::job_log::read;

    #[test]
    fn who_left_no_dump_and_says_that_it_waited_is_no_culprit() {
        let missing = Claim {
            kind: Kind::RankMissing,
            culprits: vec![GlobalRank(0), GlobalRank(2)],
            also_victims: vec![GlobalRank(1), GlobalRank(3)],
            group: None,
            seq: Some(12),
            op: None,
            alternatives: Alternatives::LessLikely,
            message: "They crashed.".to_owned().into(),
            fix: String::new(),
            evidence: Vec::new(),
        };
        let judged = |seq: u64, ranks: &[u32]| {
            let fires = |rank: &u32| {
                format!(
                    "[rank{rank}]:[E] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught \
                     collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4, \
                     NumelOut=4, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
                )
            };
            let log = read("job.log", ranks.iter().map(fires).collect::<String>().as_bytes());
            let heard = Heard::of([("a.log", &log, None)]);
            let sources = OtherSources { heard, ..OtherSources::default() };
            let mut claim = missing.clone();
            take_out_explained(&mut claim, 2, &sources, 4);
            (claim.kind, claim.culprits.len(), claim.also_victims.len(), claim.message.text())
        };
        let (kind, culprits, victims, message) = judged(12, &[0, 1, 3]);
        assert_eq!((kind, culprits, victims), (Kind::RankMissing, 1, 3));
        assert!(message.contains("Of them, rank 0 timed out in that call"), "{message}");
        for (seq, ranks) in [(11, &[0][..]), (12, &[1, 3]), (12, &[0, 2])] {
            assert_eq!(judged(seq, ranks).1, 2, "{seq} {ranks:?}");
        }
    }

    /// gloo raises on the others at once where a process ends; where one stays away they time out.
    #[test]
    fn who_kept_its_connections_was_still_there() {
        let missing = Claim {
            kind: Kind::RankMissing,
            culprits: vec![GlobalRank(2)],
            also_victims: Vec::new(),
            group: None,
            seq: Some(12),
            op: None,
            alternatives: Alternatives::LessLikely,
            message: "Nothing was recorded of rank 2.".to_owned().into(),
            fix: String::new(),
            evidence: Vec::new(),
        };
        let raises = |rank: u32, error: &str| {
            format!(
                "[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File \"/job/a.py\", line 3, in \
                 f\n[rank{rank}]: RuntimeError: [/gloo/transport/tcp/{error}\n"
            )
        };
        let late = "unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete";
        let closed = "pair.cc:534] Connection closed by peer [127.0.0.1]:36552";
        let victims = [0, 1, 3].map(GlobalRank).into();
        let judged = |text: String, alternatives: Alternatives| {
            let log = read("job.log", text.as_bytes());
            let mut claim = Claim { alternatives, ..missing.clone() };
            still_connected(&mut claim, &victims, &Heard::of([("a.log", &log, None)]));
            (claim.kind, claim.culprits.len())
        };
        let all_late = || raises(0, late) + &raises(1, late) + &raises(3, late);
        let likely = Alternatives::LessLikely;
        assert_eq!(judged(all_late(), likely), (Kind::RankNeverJoined, 1));
        assert_eq!(judged(raises(0, late) + &raises(1, closed), likely).0, Kind::RankMissing);
        assert_eq!(judged(String::new(), likely).0, Kind::RankMissing);
        assert_eq!(judged(all_late() + &raises(2, late), likely).0, Kind::RankMissing);
        assert_eq!(judged(all_late(), Alternatives::AsLikely).0, Kind::RankMissing);
    }
}
