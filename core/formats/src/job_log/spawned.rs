//! The words of `torch.multiprocessing.spawn` about the process that ended first (`spawn.py`): by
//! the number that it started it with, which the job's function gets as its first argument and most
//! jobs take for the rank.

use super::line_words::{after, number};
use super::statement::{By, Said};

const RAISED: &str = "-- Process ";
const RAISED_END: &str = " terminated with the following error:";
const EXITED: &str = "ProcessExitedException: process ";

/// Signals by the names that Python has for them; the same on all of Linux's machines.
const SIGNALS: [(&str, u64); 6] =
    [("SIGILL", 4), ("SIGABRT", 6), ("SIGBUS", 7), ("SIGFPE", 8), ("SIGKILL", 9), ("SIGSEGV", 11)];

/// The position of a log in the error that `spawn` raises.
#[derive(Debug, Default)]
pub(super) struct Spawned {
    about: Option<u64>,
    told: bool,
}

impl Spawned {
    /// The process whose traceback is being read, where `spawn` hands it on.
    pub(super) fn about(&self) -> Option<u64> {
        self.about
    }

    /// True if it reported a process.
    pub(super) fn told(&self) -> bool {
        self.told
    }

    /// The traceback that it handed on has ended, and the next one is another process's.
    pub(super) fn end(&mut self) {
        self.about = None;
    }

    /// Takes a line; says whose traceback it hands on behind it.
    pub(super) fn take(&mut self, line: &str, say: &mut dyn FnMut(u64, Said)) -> Option<u64> {
        if let Some(rest) = line.strip_prefix(RAISED)
            && rest.trim_end().ends_with(RAISED_END)
            && let Some(process) = number(rest)
        {
            (self.about, self.told) = (Some(process), true);
            return self.about;
        }
        if let Some(rest) = after(line, EXITED)
            && let Some(process) = number(rest)
        {
            let signal = after(rest, " terminated with signal ").map(|name| {
                let known = SIGNALS.iter().find(|(known, _)| name.trim_end() == *known);
                known.map(|(_, signal)| *signal)
            });
            let status = after(rest, " terminated with exit code ").and_then(number);
            match (signal, status) {
                (Some(Some(signal)), _) => say(process, Said::Killed { signal, by: By::Spawn }),
                // The others may have ended before it was looked at.
                (None, Some(status @ 1..)) => {
                    say(process, Said::Exited { status, alone: false, by: By::Spawn })
                }
                _ => return None,
            }
            self.told = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::super::tests::{TRACEBACK, bad_batch, said};
    use super::*;

    /// As 2.7.1 ends where `spawn` started the ranks, and process 1 raised.
    const RAISED_IN_1: &str = r#"W1123 18:09:47.993000 77 torch/multiprocessing/spawn.py:169] Terminating process 80 via signal SIGTERM
Traceback (most recent call last):
  File "/srv/train/job.py", line 18, in <module>
    mp.spawn(worker, args=(3, sys.argv[1], port), nprocs=3)
  File "/opt/torch/multiprocessing/spawn.py", line 340, in spawn
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/torch/multiprocessing/spawn.py", line 215, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/opt/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "/srv/train/job.py", line 8, in worker
    if how == "raise": raise ValueError("bad batch")
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: bad batch

"#;

    #[test]
    fn spawn_names_processes_by_their_number() {
        let raised = Said::Raised {
            error: "ValueError: bad batch".into(),
            frame: Some("job.py:8".into()),
            source: Some("if how == \"raise\": raise ValueError(\"bad batch\")".into()),
        };
        let log = read("job.log", RAISED_IN_1.as_bytes());
        assert_eq!(said(RAISED_IN_1), [(1, raised.clone())]);
        assert!(log.spawned && log.unnamed.is_empty(), "{log:?}");
        // The next attempt's is not process 1's.
        let next = RAISED_IN_1.to_owned() + "epoch 0\n" + TRACEBACK;
        let log = read("job.log", next.as_bytes());
        assert_eq!(log.statements.len(), 1, "{log:?}");
        assert_eq!(log.unnamed, [(bad_batch(), 28)]);
        // But where `spawn` says so again.
        let again = RAISED_IN_1.replace("bad batch", "second thing");
        let told = said(&(RAISED_IN_1.to_owned() + "attempt 2\n" + &again));
        let second = |error: &str| error == "ValueError: second thing";
        assert!(
            matches!(&told[..], [(1, Said::Raised { error, .. })] if second(error)),
            "{told:?}"
        );
        // An exception that it raised while it handled that is its own.
        let then = RAISED_IN_1.trim_end().to_owned()
            + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
            + TRACEBACK;
        assert_eq!(said(&then), [(1, bad_batch())]);
        // It waited for another one.
        let late = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out \
                    waiting 6000ms for recv operation to complete";
        let late = RAISED_IN_1.replace("ValueError: bad batch\n\n", &format!("{late}\n\n"));
        assert!(matches!(said(&late)[..], [(1, Said::GaveUp { .. })]), "{late}");
        let ends = |how: &str| {
            let (before, _) = RAISED_IN_1.split_once("ProcessRaisedException: ").unwrap();
            said(&format!("{before}ProcessExitedException: process 2 terminated with {how}\n"))
        };
        assert_eq!(ends("signal SIGKILL"), [(2, Said::Killed { signal: 9, by: By::Spawn })]);
        assert_eq!(ends("signal SIGTERM"), []);
        let exited = Said::Exited { status: 3, alone: false, by: By::Spawn };
        assert_eq!(ends("exit code 3"), [(2, exited)]);
    }
}
