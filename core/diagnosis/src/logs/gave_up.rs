//! Ranks that gave up: gloo raises where a call times out, and where a peer closes its connection. Who
//! raises neither, and whose log is there, is the one that they waited for.

use crate::claim::{Claim, no_call};
use crate::facts::alternatives::Alternatives;
use crate::facts::gave_up::{call_of, frame_of, only_messages, places, who};
use crate::kinds::Kind;
use crate::logs::ended_ranks;
use crate::logs::log_finding::finding;
use crate::report::Evidence;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said, Statement, is_timeout};
use std::collections::{BTreeMap, BTreeSet};

/// Lines at which ranks gave up that are told.
const SHOWN: usize = 4;

/// The finding of ranks that gave up, where some did.
pub(crate) fn found(heard: &Heard, world: u32) -> Option<Claim> {
    let gave_up = |it: &&Statement| matches!(it.said, Said::GaveUp { .. });
    let about: Vec<&Statement> = heard.statements.iter().filter(gave_up).collect();
    let victims: Vec<GlobalRank> = who(heard).into_iter().collect();
    if victims.is_empty() {
        return None;
    }
    let places = places(&about);
    let ends = ended_ranks::of_others(&heard.statements, &victims.iter().copied().collect());
    if let Some(mut found) = ended_ranks::found(&ends) {
        found.message.said = format!("{} Others gave up: {places}.", found.message.said);
        found.also_victims = victims;
        return Some(found);
    }
    // A connection that is closed says only that a process ended: it may be one that gave up before.
    let timed_out = about.iter().any(|it| match &it.said {
        Said::GaveUp { error, .. } => is_timeout(error),
        _ => false,
    });
    let silent = (0..heard.world(world)).map(GlobalRank);
    let silent: Vec<GlobalRank> = silent.filter(|rank| !victims.contains(rank)).collect();
    let there = silent.iter().all(|rank| heard.wrote.contains_key(rank));
    if silent.is_empty()
        && timed_out
        && victims.len() > 1
        && let Some(call) = only_messages(&about)
    {
        return all_wait_for_messages(call, &about, victims, &places);
    }
    if silent.is_empty()
        && timed_out
        && let Some(found) = at_another_call(&about, &victims, &places)
    {
        return Some(found);
    }
    if silent.is_empty() || silent.len() > victims.len() || (!timed_out && silent.len() > 1) {
        let message = format!(
            "Ranks gave up on a call that did not end: {places}. Their logs do not say who did not come."
        );
        let fix = "Hold the lines against each other: whoever stands at another one did something else. \
                   Set TORCH_FR_BUFFER_SIZE and diagnose the dumps.";
        let mut found = finding(Kind::CallNeverCompleted, &about, message, fix)?;
        found.culprits = Vec::new();
        (found.also_victims, found.alternatives) = (victims, Alternatives::AsLikely);
        return Some(found);
    }
    let (logs, they) = match silent.as_slice() {
        [only] => (format!("rank {only}'s log tells of nothing like it"), "it"),
        several => (format!("the logs of {} tell of nothing like it", ranks(several)), "they"),
    };
    let last = silent.iter().filter_map(|rank| {
        let last = heard.wrote.get(rank).filter(|last| !last.text.is_empty())?;
        Some(format!(" Rank {rank}'s log ends with \"{}\".", last.text))
    });
    let last: String = last.take(SHOWN).collect();
    let (kind, what) = match timed_out {
        true => (Kind::RankNeverJoined, format!("most likely {they} never came to the call")),
        false => (Kind::RankDied, format!("most likely {they} ended without a word")),
    };
    let message = match there {
        true => format!("Ranks gave up: {places}; and {logs}: {what}.{last}"),
        false => format!(
            "Ranks gave up: {places}. Nothing is said of {}: {they} did not come, or a log is not among \
             these.",
            ranks(&silent)
        ),
    };
    let fix =
        "Look at what the rank did instead: its own log, its machine, its Flight Recorder dump.";
    let mut found = finding(kind, &about, message, fix)?;
    let own = silent.iter().take(8).map(|rank| Evidence {
        place: heard.wrote.get(rank).and_then(|last| last.place.clone()),
        ..no_call(*rank, "its log tells of no call that it gave up on")
    });
    found.evidence = own.filter(|_| there).chain(found.evidence).take(16).collect();
    found.evidence.sort_by_key(|seen| seen.rank);
    found.alternatives = if there { Alternatives::LessLikely } else { Alternatives::AsLikely };
    (found.culprits, found.also_victims) = (silent, victims);
    Some(found)
}

/// The finding of a job all of whose ranks gave up in collectives, where a few stood in another one than most:
/// nobody was left to come to theirs.
fn at_another_call(about: &[&Statement], all: &[GlobalRank], places: &str) -> Option<Claim> {
    let mut calls: BTreeMap<&str, BTreeSet<GlobalRank>> = BTreeMap::new();
    for it in about {
        let call = call_of(it).filter(|call| !matches!(*call, "recv" | "send"))?;
        calls.entry(call).or_default().insert(it.rank);
    }
    let (few, most) = calls.iter().min_by_key(|(_, at)| at.len()).zip(
        // Of as many on either side this is the same one twice.
        calls.iter().max_by_key(|(_, at)| at.len()),
    )?;
    let told = calls.len() == 2 && few.1.len() * 2 < most.1.len() && few.1.is_disjoint(most.1);
    if !told {
        return None;
    }
    let culprits: Vec<GlobalRank> = few.1.iter().copied().collect();
    let message = format!(
        "All ranks gave up: {places}. {} called {} where the others called {}: it is another call, one too \
         many, or another group's.",
        cap_ranks(&culprits),
        few.0,
        most.0
    );
    let fix = "Make the same calls on every rank, in the same order: look for a branch around the line, such as \
               `if rank == 0:` around logging or a checkpoint. The Flight Recorder's dumps would tell the rest.";
    let mut found = finding(Kind::CollectiveMismatch, about, message, fix)?;
    found.also_victims = all.iter().copied().filter(|rank| !culprits.contains(rank)).collect();
    (found.op, found.alternatives) = (Some((*most.0).to_owned()), Alternatives::LessLikely);
    found.culprits = culprits;
    Some(found)
}

/// The finding of a job whose ranks all wait in receives, or all in sends: none of them can be answered.
fn all_wait_for_messages(
    call: &str,
    about: &[&Statement],
    ranks: Vec<GlobalRank>,
    places: &str,
) -> Option<Claim> {
    let (answer, left) = match call {
        "recv" => ("sends", "a send was left out, or went to another rank or with another tag"),
        _ => ("receives", "a receive was left out, or waits for another rank or tag"),
    };
    let message = format!(
        "All ranks gave up in {call}: {places}. While all of them wait there nobody {answer}. Either each \
         waits for the next in a circle, or {left}, before, and all wait for what comes of it."
    );
    let fix = "Let one side receive first (even ranks send, odd ranks receive, then the reverse), or post \
               both with isend/irecv or batch_isend_irecv and wait afterwards. If the line is right, look \
               for a message that one rank leaves out.";
    let mut found = finding(Kind::P2pDeadlock, about, message, fix)?;
    (found.culprits, found.also_victims) = (ranks, Vec::new());
    // From one line all of them ask for the same. From several, one may have answered another rank or tag before.
    let lines: BTreeSet<Option<&str>> = about.iter().map(|it| frame_of(it)).collect();
    let alternatives =
        if lines.len() == 1 { Alternatives::LessLikely } else { Alternatives::AsLikely };
    (found.op, found.alternatives) = (Some(call.to_owned()), alternatives);
    Some(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::logs::tests::{found, report};
    use crate::report::Certainty;

    /// As torch 2.7.1 prints it on gloo.
    pub(crate) fn raises(rank: u32, line: u32, error: &str) -> String {
        format!(
            "[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File \"/job/job.py\", line \
             {line}, in <module>\n[rank{rank}]:     dist.all_reduce(y)\n[rank{rank}]:   File \
             \"/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py\", line 2815, in \
             all_reduce\n[rank{rank}]:     work.wait()\n[rank{rank}]: RuntimeError: \
             [/pytorch/third_party/gloo/gloo/transport/tcp/{error}\n"
        )
    }

    pub(crate) const LATE: &str =
        "unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete";
    const CLOSED: &str = "pair.cc:534] Connection closed by peer [127.0.0.1]:36552";

    #[test]
    fn who_does_not_give_up_is_the_one_that_is_waited_for() {
        let text = raises(0, 20, LATE) + &raises(1, 20, CLOSED) + &raises(2, 20, LATE);
        let stuck = text.clone() + "[rank3]: loads\n";
        assert_eq!(found(&stuck), [(Kind::RankNeverJoined, vec![3], Certainty::Likely)]);
        assert_eq!(
            report(&stuck).findings[0].message,
            "Ranks gave up: ranks 0-2 in all_reduce at job.py:20 (\"dist.all_reduce(y)\"); and rank 3's log tells of \
             nothing like it: most likely it never came to the call. Rank 3's log ends with \"loads\"."
        );
        assert_eq!(report(&stuck).findings[0].victims, [0, 1, 2].map(GlobalRank));
        let unknown = text.clone() + "world_size=4\n";
        assert_eq!(found(&unknown), [(Kind::RankNeverJoined, vec![3], Certainty::Undecidable)]);
        let all = text.clone() + &raises(3, 33, LATE);
        assert_eq!(found(&all), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
        assert!(report(&all).findings[0].message.contains("rank 3 in all_reduce at job.py:33"));
        let other = raises(3, 33, LATE).replace("in all_reduce", "in gather");
        let other = text.clone() + &other.replace("dist.all_reduce(y)", "dist.gather(y)");
        assert_eq!(found(&other), [(Kind::CollectiveMismatch, vec![3], Certainty::Likely)]);
        assert_eq!(report(&other).findings[0].victims, [0, 1, 2].map(GlobalRank));
        // A rank that raised an exception of its own is to blame.
        let raised = text + "[rank3]: ValueError: bad batch\n";
        assert_eq!(found(&raised), [(Kind::RankDied, vec![3], Certainty::Likely)]);
        assert_eq!(report(&raised).findings[0].victims, [0, 1, 2].map(GlobalRank));
        let closed = raises(0, 20, CLOSED) + "[rank1]: step 3\n";
        assert_eq!(found(&closed), [(Kind::RankDied, vec![1], Certainty::Likely)]);
    }

    /// Ranks that all wait in receives wait for each other; one that waits elsewhere may be to answer.
    #[test]
    fn all_that_receive_wait_for_each_other() {
        let receives = |rank| {
            raises(rank, 12, LATE)
                .replace("dist.all_reduce(y)", "dist.recv(y, prev)")
                .replace("in all_reduce", "in recv")
        };
        let circle: String = (0..4).map(receives).collect();
        assert_eq!(found(&circle), [(Kind::P2pDeadlock, vec![0, 1, 2, 3], Certainty::Likely)]);
        let told = &report(&circle).findings[0];
        assert!(told.message.contains("ranks 0-3 in recv at job.py:12"), "{}", told.message);
        let open = (0..3).map(receives).collect::<String>() + &raises(3, 20, LATE);
        assert_eq!(found(&open), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
        // The rank without a log may be the one that sends.
        let unknown = circle + "world_size=6\n";
        assert_eq!(found(&unknown)[0].0, Kind::RankNeverJoined);
    }

    /// Healthy is no job in which somebody gave up, whoever it was.
    #[test]
    fn who_gives_up_without_a_rank_is_told() {
        let text = raises(0, 20, LATE).replace("[rank0]: ", "");
        assert_eq!(found(&text), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
        let message = &report(&text).findings[0].message;
        assert!(
            message.contains("gave up on a call") && message.contains("at job.py:20"),
            "{message}"
        );
        let raised = "Traceback (most recent call last):\n  File \"/job/job.py\", line 7, in f\nValueError: x\n";
        // An exception that was handled before is not its cause, unless Python says so.
        assert_eq!(found(&(raised.to_owned() + &text))[0].0, Kind::CallNeverCompleted);
        let of_it = "\nDuring handling of the above exception, another exception occurred:\n\n";
        assert_eq!(found(&format!("{raised}{of_it}{text}"))[0].0, Kind::RankDied);
        // mp.spawn tells of what the process raised that it started.
        let spawned = format!(
            "Traceback (most recent call last):\n  File \"/job/job.py\", line 30, in <module>\n    \
             mp.spawn(f)\ntorch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with \
             the following error:\n{text}"
        );
        assert_eq!(found(&spawned)[0].0, Kind::CallNeverCompleted);
        // Beside one whose rank is known it is no news.
        let named = raises(1, 20, LATE) + &text;
        assert_eq!(report(&named).notes, Vec::<String>::new());
    }

    /// torchrun ends the processes that are left when others failed: one that said nothing was there.
    #[test]
    fn who_torchrun_ended_was_still_there() {
        let closing = |process: u32| {
            format!(
                "W1123 04:57:02.180000 27420 torch/distributed/elastic/multiprocessing/api.py:900] Sending \
                 process {process} closing signal SIGTERM\n"
            )
        };
        let failed = "E1123 04:57:02.244000 27420 torch/distributed/elastic/multiprocessing/api.py:874] \
                      failed (exitcode: 1) local_rank: 0 (pid: 27423) of binary: /usr/bin/python3\n";
        let other = "  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 27424)\n";
        let text = raises(0, 20, LATE) + &raises(1, 20, LATE);
        let stuck = text.clone() + &closing(27425) + failed + other;
        assert_eq!(found(&stuck), [(Kind::RankNeverJoined, vec![2], Certainty::Undecidable)]);
        assert_eq!(report(&stuck).world_size, 3);
        // Those of an attempt before are not counted with them.
        let twice = closing(101) + &closing(102) + failed + &stuck;
        assert_eq!(report(&twice).world_size, 3);
        let alone = text + failed + other;
        assert_eq!(found(&alone), [(Kind::CallNeverCompleted, vec![], Certainty::Undecidable)]);
    }
}
