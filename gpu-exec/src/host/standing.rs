//! The state of a rank that does not go on, and the end of one, in words.

use super::process::{Body, RankProcess};
use crate::MemoryGroup;
use lockstep_core::plan::{Deadly, Plan, STOPPED, exit_status};
use std::fs;
use std::os::unix::process::ExitStatusExt;

/// SIGKILL.
const KILL: i32 = 9;

/// The words for a rank on another machine that a fault of the run has stopped for ever.
pub(super) const HELD: &str = "its program is held where a fault would stop it (SIGSTOP)";

impl RankProcess {
    /// The words for its state if it is stopped, in words: by a fault of the run, or by anybody
    /// where it can be seen.
    pub(super) fn how_it_stands(&self) -> Option<&'static str> {
        match self.pid_here() {
            _ if self.ended.is_some() => None,
            Some(pid) => is_stopped(pid).then_some(STOPPED),
            None => self.held.then_some(HELD),
        }
    }

    /// True if a fault holds the rank on another machine, where it hears of the run's end and ends itself.
    pub(super) fn is_held_far(&self) -> bool {
        self.held && self.pid_here().is_none()
    }

    /// The state of a rank that should have ended by now; on another machine it is only known that it has
    /// not.
    pub(super) fn how_it_is_found(&self) -> Option<&'static str> {
        let far = matches!(self.body, Body::Elsewhere { same_machine: false, .. });
        self.how_it_stands().or(far.then_some("its process did not answer when the run was ended"))
    }

    fn described_address(&self) -> String {
        match &self.body {
            Body::Elsewhere { address, .. } if !address.is_loopback() => format!(" at {address}"),
            _ => String::new(),
        }
    }

    /// True if the rank ended because of its plan or a fault of the run, and not because another rank did.
    pub(super) fn was_meant_to_die(&self, plan: &Plan) -> bool {
        let ends = plan.program(self.rank).into_iter().flat_map(|program| &program.ops);
        let mut ends = ends.filter_map(|op| op.action.ends_by());
        self.killed_by.is_some()
            || self.failure.as_deref().is_some_and(|how| ends.any(|known| known == how))
    }

    /// True if a signal from outside Lockstep ended the rank. A rank that Lockstep orders to end exits
    /// normally.
    pub(super) fn was_killed_by_others(&self) -> bool {
        let by_signal = self.ended.is_some_and(|status| status.signal().is_some());
        by_signal && !self.killed && !self.is_elsewhere()
    }

    /// True if only the loss of its connection is known of the rank's end, as for ranks on another machine.
    pub(super) fn is_lost(&self) -> bool {
        self.is_elsewhere()
            && self.ended.is_some()
            && self.failure.is_none()
            && self.killed_by.is_none()
    }

    /// The words for its end.
    pub(super) fn how_it_ended(&self) -> String {
        let status = self.ended.unwrap_or_default();
        let injected = self.killed_by.filter(|_| self.is_elsewhere());
        let mut how = match (status.signal(), status.code()) {
            // Its line shows no more than that it has ended.
            _ if injected.is_some() => {
                injected.map(Deadly::how_it_ends).unwrap_or_default().to_owned()
            }
            _ if let Some(failure) = &self.failure
                && self.is_elsewhere() =>
            {
                format!("exited with status {}", exit_status(failure))
            }
            _ if self.is_elsewhere() && self.done => format!(
                "its connection ended before the run did, though its program was at its end (process {}{}): \
                 it was killed, or has given rank 0 up",
                self.pid(),
                self.described_address()
            ),
            _ if self.is_elsewhere() => format!(
                "its connection ended before its program did (process {}{}): it was killed or \
                 crashed, or its machine is gone",
                self.pid(),
                self.described_address()
            ),
            (Some(signal), _) => killed_by(signal, self.killed_by),
            (None, Some(0)) => "exited before its program ended".to_owned(),
            (None, code) => format!("exited with status {}", code.unwrap_or(-1)),
        };
        if status.signal() == Some(KILL)
            && self.killed_by.is_none()
            && !self.is_elsewhere()
            && let Some(why) = MemoryGroup::now().killed_since(self.oom_kills)
        {
            how.push_str(": ");
            how.push_str(&why);
        }
        if let Some(failure) = &self.failure {
            how.push_str(": ");
            how.push_str(failure);
        }
        how
    }
}

/// The words for the end of a process that a signal killed: the one that a fault was to end it by,
/// if there was one, or another.
fn killed_by(signal: i32, fault: Option<Deadly>) -> String {
    let known = Deadly::ALL.iter().find(|deadly| deadly.number() == signal);
    let killed = match known {
        Some(deadly) if fault == Some(*deadly) => return deadly.how_it_ends().to_owned(),
        Some(deadly) => format!("killed by signal {signal} ({})", deadly.name()),
        None => format!("killed by signal {signal}"),
    };
    match fault {
        Some(fault) => {
            format!("{killed}, since {}, an injected fault, did not end it", fault.name())
        }
        None => killed,
    }
}

/// True if a process of this machine is stopped by a signal (proc(5), the field after its name). A process
/// that is being traced does not count: people look at a hang with py-spy and gdb, and let the process go on.
fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words name the signal that ended it, which need not be the one that was sent.
    #[test]
    fn a_death_by_another_signal_than_the_faults_is_told_as_that() {
        let told = |signal, fault| killed_by(signal, fault);
        assert_eq!(told(9, None), "killed by signal 9 (SIGKILL)");
        assert_eq!(told(9, Some(Deadly::Kill)), "killed by signal 9 (SIGKILL), an injected fault");
        assert_eq!(
            told(9, Some(Deadly::User1)),
            "killed by signal 9 (SIGKILL), since SIGUSR1, an injected fault, did not end it"
        );
        assert_eq!(told(64, None), "killed by signal 64");
    }
}
