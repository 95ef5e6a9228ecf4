//! Ranks that ended, as a log says: by an exception that Python printed, or by a signal, which torchrun
//! tells of.

use crate::claim::{Claim, no_call};
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::logs::log_finding::finding;
use crate::report::Evidence;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{By, Heard, Said, Statement, Unmatched, Unnamed};
use lockstep_formats::place::Place;
use std::collections::BTreeSet;

/// More are counted.
const SHOWN: usize = 4;

/// True for messages that say that a rank ended.
fn is_end(said: &Said) -> bool {
    matches!(said, Said::Raised { .. } | Said::Killed { .. } | Said::Exited { .. })
}

/// True if a message says that one of these ranks ended, or that somebody did whose rank is not known.
pub(crate) fn says_of(heard: &Heard, ranks: &[GlobalRank]) -> bool {
    let ended = |it: &Statement| is_end(&it.said) && ranks.contains(&it.rank);
    ranks.is_empty() || heard.statements.iter().any(ended)
}

/// The statements on the ends of ranks, but for those that timed out: these ended by that.
pub(crate) fn of_others(
    statements: &[Statement],
    timed_out: &BTreeSet<GlobalRank>,
) -> Vec<Statement> {
    let ended = |it: &&Statement| is_end(&it.said) && !timed_out.contains(&it.rank);
    statements.iter().filter(ended).cloned().collect()
}

/// `ValueError: bad batch at train.py:88 ("loss.backward()").`
fn raised(error: &str, frame: Option<&str>, source: Option<&str>) -> String {
    let at = frame.map(|frame| format!(" at {frame}")).unwrap_or_default();
    let line = source.map(|line| format!(" (\"{line}\")")).unwrap_or_default();
    let end = if at.is_empty() && error.ends_with(['.', '!', '?']) { "" } else { "." };
    match at.is_empty() {
        true => format!("{error}{end}"),
        false => format!("{}{at}{line}{end}", error.trim_end_matches('.')),
    }
}

/// The finding of processes whose rank nothing tells: of exceptions of their own, or else of calls on which
/// they gave up.
pub(crate) fn unnamed(unnamed: &[Unnamed]) -> Option<Claim> {
    const FIX: &str = "Mend what raised there: the traceback stands above that line. Ranks that wait for one \
                       that ended wait until the watchdog fires. A log for each rank (torchrun --log-dir DIR \
                       -r 3) tells whose it is.";
    const FIX_WAITED: &str = "Who gives up has waited for somebody else. A log for each rank (torchrun --log-dir \
                              DIR -r 3) tells who: whoever stands at another line, or is silent. Set \
                              TORCH_FR_BUFFER_SIZE and diagnose the dumps.";
    const FIX_STORE: &str = "Look whether every node started, with the same --nnodes, --rdzv-endpoint (or MASTER_ADDR \
                             and MASTER_PORT) and --rdzv-id, and can reach that address: a firewall, another network \
                             interface, or a process of rank 0 that has ended.";
    let of_processes = unnamed.iter().filter(|it| !matches!(it.said, Said::NetworkFailed { .. }));
    let (store, others): (Vec<&Unnamed>, Vec<&Unnamed>) =
        of_processes.partition(|it| in_store(&it.said));
    let (waited, raised): (Vec<&Unnamed>, Vec<&Unnamed>) =
        others.into_iter().partition(|it| matches!(it.said, Said::GaveUp { .. }));
    let (kind, told, fix) = match (raised.is_empty(), store.is_empty()) {
        (false, _) => (Kind::RankDied, raised, FIX),
        (true, false) => (Kind::StoreWait, store, FIX_STORE),
        (true, true) => (Kind::CallNeverCompleted, waited, FIX_WAITED),
    };
    let said: Vec<String> = told.into_iter().take(SHOWN).map(note).collect();
    (!said.is_empty()).then(|| Claim {
        kind,
        culprits: Vec::new(),
        also_victims: Vec::new(),
        group: None,
        seq: None,
        op: None,
        alternatives: Alternatives::AsLikely,
        message: said.join(" ").into(),
        fix: fix.to_owned(),
        evidence: Vec::new(),
    })
}

/// True if a process ended by itself: by an exception of its own, a signal, or a status that its launcher tells.
pub(crate) fn any_by_itself(heard: &Heard) -> bool {
    let by_itself = |said: &Said| {
        matches!(said, Said::Raised { .. } | Said::Exited { .. } | Said::Killed { .. })
    };
    heard.statements.iter().any(|it| by_itself(&it.said))
        || heard.unnamed.iter().any(|it| by_itself(&it.said))
}

/// True of what a process says that waited in the rendezvous store, or could not reach it.
fn in_store(said: &Said) -> bool {
    const ERRORS: [&str; 5] = [
        "DistStoreError",
        "DistNetworkError",
        "RendezvousTimeoutError",
        "RendezvousConnectionError",
        "client socket has",
    ];
    match said {
        Said::Store { .. } => true,
        Said::GaveUp { error, .. } | Said::Raised { error, .. } => {
            ERRORS.iter().any(|what| error.contains(what))
        }
        _ => false,
    }
}

/// A sentence on a process whose rank nothing tells.
pub(crate) fn note(unnamed: &Unnamed) -> String {
    let Unnamed { place: Place { file, line }, said } = unnamed;
    match said {
        Said::Raised { error, frame, source } => format!(
            "A process, of which {file} does not say which rank it is, raised {} It is line {line} there.",
            raised(error, frame.as_deref(), source.as_deref())
        ),
        Said::GaveUp { error, frame, source, .. } if in_store(said) => format!(
            "A launcher or rank waited in the rendezvous store, in vain: {} A node did not come, or it looks \
             elsewhere (another --nnodes, address or port). It is line {line} of {file}.",
            raised(error, frame.as_deref(), source.as_deref())
        ),
        Said::GaveUp { error, frame, source, .. } => format!(
            "A process, of which {file} does not say which rank it is, gave up on a call that did not end: {} \
             It is line {line} there.",
            raised(error, frame.as_deref(), source.as_deref())
        ),
        Said::Store { error } => format!(
            "The rendezvous store could not be used: {} It is line {line} of {file}.",
            raised(error, None, None)
        ),
        _ => format!("{file} tells in line {line} of a process whose rank it does not say."),
    }
}

/// The finding of the ranks that ended.
pub(crate) fn found(statements: &[Statement]) -> Option<Claim> {
    let ended: Vec<&Statement> = statements.iter().filter(|it| is_end(&it.said)).collect();
    let said = ended.iter().take(SHOWN).filter_map(|it| match &it.said {
        Said::Raised { error, frame, source } => Some(format!(
            "Rank {} raised {}",
            it.rank,
            raised(error, frame.as_deref(), source.as_deref())
        )),
        Said::Exited { status, by, .. } => Some(format!(
            "Rank {} was the first to end, with status {status}, as {} says; what it raised does not stand \
             in these logs.",
            it.rank,
            launcher(*by),
        )),
        Said::Killed { signal, by } => {
            let which = match by {
                By::TorchrunLocal => " (by its number on its machine)",
                By::Torchrun | By::Spawn => "",
            };
            Some(format!(
                "Rank {}{which} was ended by signal {signal}{}, as {} says.",
                it.rank,
                name(*signal),
                launcher(*by),
            ))
        }
        _ => None,
    });
    let mut said: Vec<String> = said.collect();
    if ended.len() > SHOWN {
        said.push(format!("So were {} more.", ended.len() - SHOWN));
    }
    let exited = ended.iter().all(|it| matches!(it.said, Said::Exited { .. }));
    let killed = ended.iter().all(|it| matches!(it.said, Said::Killed { .. }));
    let fix = match killed {
        _ if exited => {
            "Look at the end of that rank's own log (torchrun --log-dir DIR -r 3 writes one for each). A \
             rank that ends leaves the others waiting in their next call until the watchdog fires."
        }
        true => {
            "SIGKILL most often comes from a machine that ran out of memory (dmesg, the container's \
             limit) or from a scheduler, SIGSEGV and SIGABRT from native code: look there. A rank that \
             ends leaves the others waiting in their next call until the watchdog fires."
        }
        false => {
            "Mend what raised there: the traceback stands above that line. A rank that ends leaves the \
             others waiting in their next call until the watchdog fires."
        }
    };
    let mut found = finding(Kind::RankDied, &ended, said.join(" "), fix)?;
    // The first of several to end may have been the first to give up.
    if ended.iter().all(|it| matches!(it.said, Said::Exited { alone: false, .. })) {
        found.culprits = Vec::new();
    }
    found.alternatives = if exited { Alternatives::AsLikely } else { Alternatives::LessLikely };
    Some(found)
}

/// The finding that ranks were in different calls, as gloo says when it ends one of them: the one that got
/// a message which is too long for its call. Which of the two is out of step does not stand there.
pub(crate) fn by_gloo(file: &str, unmatched: &Unmatched, statements: &[Statement]) -> Claim {
    let Unmatched { line, came, expected } = unmatched;
    let ended: BTreeSet<GlobalRank> = statements
        .iter()
        .filter(|it| is_end(&it.said) || matches!(it.said, Said::GaveUp { .. }))
        .map(|it| it.rank)
        .collect();
    let receiver = statements.iter().find(|it| matches!(it.said, Said::Killed { signal: 6, .. }));
    let evidence = receiver.map(|it| Evidence {
        place: Some(Place::new(file, *line)),
        ..no_call(it.rank, "got a message that is too long for its call")
    });
    let receiver =
        receiver.map(|it| format!(" Rank {} received it, and was ended by it.", it.rank));
    Claim {
        kind: Kind::CollectiveMismatch,
        culprits: Vec::new(),
        also_victims: ended.into_iter().collect(),
        group: None,
        seq: None,
        op: None,
        alternatives: Alternatives::AsLikely,
        message: format!(
            "gloo got a message of {came} bytes where the rank's call expects at most {expected} ({file}, line \
             {line}): ranks were in different collectives at once, or in one with tensors of different \
             sizes or types. One of them may as well have left a call out, or made one on top.{} Which \
             rank is out of step, a log does not tell.",
            receiver.unwrap_or_default()
        ).into(),
        fix: "Run it again with TORCH_DISTRIBUTED_DEBUG=DETAIL, which names the calls of the ranks that \
              differ, or drop the Flight Recorder's dumps of all ranks here."
            .to_owned(),
        evidence: evidence.into_iter().collect(),
    }
}

/// The source of the statement.
fn launcher(by: By) -> &'static str {
    match by {
        By::Torchrun | By::TorchrunLocal => "torchrun",
        By::Spawn => "torch.multiprocessing",
    }
}

/// ` (SIGKILL)`; the same on all of Linux's machines.
fn name(signal: u64) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::tests::{found, report};
    use crate::report::Certainty;

    /// As 2.7.1 writes it under torchrun: the receiver aborts, and is to blame for nothing.
    #[test]
    fn what_gloo_ends_a_receiver_for_is_no_death_of_its_own() {
        let text = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce \
                    fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= \
                    op.nbytes. 400 vs 8\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \
                    \"/job/t.py\", line 7, in train\n[rank0]: RuntimeError: \
                    [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer \
                    [127.0.0.1]:9\nE1123 10:00:01 12 torch/distributed/elastic/multiprocessing/api.py:869] \
                    failed (exitcode: -6) local_rank: 1 (pid: 12) of binary: /usr/bin/python\n";
        assert_eq!(found(text), [(Kind::CollectiveMismatch, vec![], Certainty::Undecidable)]);
        let told = report(text);
        let message = &told.findings[0].message;
        assert!(
            message.contains("of 400 bytes where the rank's call expects at most 8"),
            "{message}"
        );
        assert!(message.contains("(train.log, line 2)"), "{message}");
        assert!(message.contains("Rank 1 received it, and was ended by it."), "{message}");
        let other = text.replace("op.preamble.length <= op.nbytes. 400 vs 8", "fd != -1");
        assert_eq!(found(&other)[0].0, Kind::RankDied);
    }

    #[test]
    fn who_was_killed_is_named() {
        let waits = |rank: u32| {
            format!(
                "[rank{rank}]:[E1122 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught \
                 collective operation timeout: WorkNCCL(SeqNum=17, OpType=ALLREDUCE, NumelIn=8, \
                 NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
            )
        };
        let text = waits(0) + &waits(1) + &waits(3);
        let local = "E1122 10:00:01 12 torch/distributed/elastic/multiprocessing/api.py:869] failed \
                     (exitcode: -9) local_rank: 2 (pid: 12) of binary: /usr/bin/python\n";
        let killed = text.clone() + local;
        assert_eq!(found(&killed), [(Kind::RankDied, vec![2], Certainty::Likely)]);
        let message = report(&killed).findings[0].message.clone();
        assert!(message.contains("ended by signal 9 (SIGKILL)"), "{message}");
        assert!(message.contains("timed out in ALLREDUCE #17"), "{message}");
        // torchrun ends the others itself, and says the rank of the first below.
        let several = text
            + local
            + "  rank      : 6 (local_rank: 2)\n  exitcode  : -9 (pid: 12)\n\
               \x20 rank      : 5 (local_rank: 1)\n  exitcode  : -15 (pid: 11)\n";
        assert_eq!(found(&several), [(Kind::RankDied, vec![6], Certainty::Likely)]);
    }
}
