//! Long work: progress where standard error is a terminal and nowhere else, and Ctrl-C ends it with what was found.

use super::json;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_tests::{Output, Patience};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Rank 0 receives 70 messages from whomever: so many orders that no test looks at all of them.
const MANY_ORDERS: &str = "\
import torch
import torch.distributed as dist

def main():
    dist.init_process_group(\"gloo\")
    t = torch.zeros(1)
    if dist.get_rank() == 0:
        for _ in range(70):
            dist.recv(t)
    else:
        for _ in range(10):
            dist.send(t, 0)

run(main, world_size=8)
";

/// A command that is under way; its standard output is read at its end.
struct Running(Option<Child>);

impl Running {
    fn start(arguments: &[&str], err: Stdio) -> Running {
        let mut command = Command::new(lockstep_tests::binary());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(err);
        Running(Some(command.spawn().unwrap()))
    }

    fn pid(&self) -> Pid {
        let child = self.0.as_ref().unwrap();
        Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
    }

    /// Waits until the command listens for Ctrl-C, as its work has begun then (`SigCgt` of proc_pid_status(5)).
    fn begins(&self) {
        let status = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        Patience::until("the work to begin", || {
            let text = fs::read_to_string(&status).unwrap();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            let mask = u64::from_str_radix(caught.trim(), 16).unwrap();
            (mask & (1 << (Signal::INT.as_raw() - 1)) != 0).then_some(())
        });
    }

    fn interrupt(&self) {
        kill_process(self.pid(), Signal::INT).unwrap();
    }

    fn output(mut self) -> Output {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        Output {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It is gone already where a test ends well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn many_orders(folder: &Path) -> PathBuf {
    let path = folder.join("orders.py");
    fs::write(&path, MANY_ORDERS).unwrap();
    path
}

/// The two ends of a new terminal: ours, and the program's.
fn terminal() -> (File, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    (File::from(ours), OwnedFd::from(theirs))
}

#[test]
fn a_stopped_search_says_what_it_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = many_orders(folder.path());
    let arguments = ["explore", path.to_str().unwrap(), "--states=1000000000", "--json"];
    let search = Running::start(&arguments, Stdio::piped());
    search.begins();
    // The first stage executes the program, by a process of its own; the search comes after.
    std::thread::sleep(std::time::Duration::from_secs(2));
    search.interrupt();
    let output = search.output();
    assert_eq!(output.code, 130, "{output:?}");
    let document = json(&output);
    assert_eq!(document["stopped"], true, "{output:?}");
    assert_eq!(document["searches"][0]["verdict"], "unknown", "{output:?}");
    assert!(document["searches"][0]["states"].as_u64().unwrap() > 0, "{output:?}");
    assert_eq!(output.err, "", "no progress where nobody looks");
}

#[test]
fn progress_is_shown_on_a_terminal_and_gone_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = many_orders(folder.path());
    let (mut ours, theirs) = terminal();
    // So many that none is through all before a hundredth of them tells the time that is left.
    let arguments = ["explore", path.to_str().unwrap(), "--states=3000000"];
    let search = Running::start(&arguments, theirs.into());
    let mut shown = String::new();
    let mut look = |search: &Running, words: &str| {
        while !shown.contains(words) {
            let mut bytes = [0; 4096];
            match ours.read(&mut bytes) {
                Ok(read) => shown.push_str(&String::from_utf8_lossy(&bytes[..read])),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // EIO: nobody has the other end any more.
                Err(error) => {
                    panic!("{words:?} was not shown: {error}, {shown:?}, {}", search.pid())
                }
            }
        }
    };
    look(&search, "states entered");
    look(&search, " left");
    search.interrupt();
    let output = search.output();
    assert_eq!(output.code, 130, "{output:?}");
    assert!(output.out.contains("stopped by Ctrl-C"), "{output:?}");
    assert!(output.out.contains("not all were looked at"), "{output:?}");
    // The last that the terminal gets clears the line.
    let mut rest = [0; 65536];
    let read = ours.read(&mut rest).unwrap_or(0);
    let last = String::from_utf8_lossy(&rest[..read]).into_owned();
    assert!(last.ends_with("\r\u{1b}[2K") || last.ends_with("\u{1b}[2K\r"), "{last:?}");
}

#[test]
fn a_stopped_simulation_tells_how_far_it_came_and_keeps_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut plan = PlanBuilder::new("long", 64, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        for _ in 0..60_000 {
            program.collective(GroupId::WORLD, sum, 8, None, Some(tensor));
        }
    });
    fs::write(path("plan.json"), plan.unwrap().to_json()).unwrap();
    let (plan, trace) = (path("plan.json"), path("trace.lks"));
    let arguments = ["sim", &plan, "--max-events=2000000000", "-o", &trace, "--json"];
    let simulation = Running::start(&arguments, Stdio::piped());
    simulation.begins();
    std::thread::sleep(std::time::Duration::from_millis(200));
    simulation.interrupt();
    let output = simulation.output();
    assert_eq!(output.code, 130, "{output:?}");
    let document = json(&output);
    assert_eq!(document["outcome"], "cancelled", "{output:?}");
    assert_eq!(document["findings"]["verdict"], "inconclusive", "{output:?}");
    assert!(document["time_ps"].as_u64().unwrap() > 0, "{output:?}");
    assert_eq!(output.err, "", "no progress where nobody looks");
    let again = lockstep_tests::lockstep(["diagnose", &trace, "--json"]);
    assert_eq!(json(&again)["verdict"], "inconclusive", "{again:?}");
}
