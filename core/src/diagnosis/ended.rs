//! Ranks that ended, as a log says: by an exception that Python printed, or by a signal, which torchrun
//! tells of.

use super::logged::finding;
use super::report::{Certainty, Finding, Kind};
use crate::job_log::{Said, Statement};

/// More are counted.
const SHOWN: usize = 4;

/// Whether a message says that a rank ended.
pub(super) fn is_end(said: &Said) -> bool {
    matches!(said, Said::Raised { .. } | Said::Killed { .. })
}

/// The finding of the ranks that ended.
pub(super) fn found(statements: &[Statement]) -> Option<Finding> {
    let ended: Vec<&Statement> = statements.iter().filter(|it| is_end(&it.said)).collect();
    let said = ended.iter().take(SHOWN).filter_map(|it| match &it.said {
        Said::Raised { error } => {
            let end = if error.ends_with('.') { "" } else { "." };
            Some(format!("Rank {} raised {error}{end}", it.rank))
        }
        Said::Killed { signal, local } => {
            let which = match local {
                true => " (by its number on its machine)",
                false => "",
            };
            Some(format!(
                "Rank {}{which} was ended by signal {signal}{}, as torchrun says.",
                it.rank,
                name(*signal)
            ))
        }
        _ => None,
    });
    let mut said: Vec<String> = said.collect();
    if ended.len() > SHOWN {
        said.push(format!("So were {} more.", ended.len() - SHOWN));
    }
    let killed = ended.iter().all(|it| matches!(it.said, Said::Killed { .. }));
    let fix = match killed {
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
    found.certainty = Certainty::Likely;
    Some(found)
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
    use super::super::logged::tests::{found, report};
    use super::*;

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
