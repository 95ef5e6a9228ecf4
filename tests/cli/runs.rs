//! Runs with faults, orders to a run, and measurements of the machine.

use super::{assert_refused, json};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::Trace;
use lockstep_tests::{Patience, lockstep};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

#[test]
fn a_faulty_run_leaves_dumps_that_diagnose_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (dumps, trace) = (folder.path().join("dumps"), folder.path().join("run.lks"));
    let ran = lockstep([
        "run".as_ref(),
        "all_reduce".as_ref(),
        "--world-size=4".as_ref(),
        "--timeout-ms=400".as_ref(),
        "--fault=stop:rank=2,call=1".as_ref(),
        "--dump-dir".as_ref(),
        dumps.as_os_str(),
        "-o".as_ref(),
        trace.as_os_str(),
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("timed out") && ran.out.contains("rank 2"), "{ran:?}");
    // A stopped process answers nobody: rank 2 leaves no dump, and is found by that.
    let found = lockstep(["diagnose".as_ref(), "--json".as_ref(), dumps.as_os_str()]);
    assert_eq!(found.code, 1, "{found:?}");
    assert_eq!(json(&found)["findings"][0]["culprits"], serde_json::json!([2]), "{found:?}");
    let read = Trace::read(&fs::read(&trace).unwrap()).unwrap();
    assert_eq!(read.end.unwrap().outcome, lockstep_core::trace::Outcome::TimedOut);

    // A rank that has called nothing says so, and is not taken for one that crashed.
    let emptied = folder.path().join("emptied");
    let ran = lockstep([
        "run".as_ref(),
        "all_reduce".as_ref(),
        "--world-size=4".as_ref(),
        "--timeout-ms=400".as_ref(),
        "--fault=drop:rank=2,call=1".as_ref(),
        "--dump-dir".as_ref(),
        emptied.as_os_str(),
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(fs::read_dir(&emptied).unwrap().count(), 4);
    let found = lockstep(["diagnose".as_ref(), "--json".as_ref(), emptied.as_os_str()]);
    let first = &json(&found)["findings"][0];
    assert_eq!(
        (&first["kind"], &first["culprits"], &first["seq"]),
        (&"rank_never_joined".into(), &serde_json::json!([2]), &1.into()),
        "{found:?}"
    );

    // A folder holds one run: whose ranks leave fewer dumps is not mixed with the one before.
    fs::write(emptied.join("notes.txt"), "mine").unwrap();
    let ran = lockstep([
        "run".as_ref(),
        "all_reduce".as_ref(),
        "--world-size=3".as_ref(),
        "--fault=kill:rank=1,call=1".as_ref(),
        "--dump-dir".as_ref(),
        emptied.as_os_str(),
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let mut left: Vec<_> =
        fs::read_dir(&emptied).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["nccl_trace_rank_0", "nccl_trace_rank_2", "notes.txt"]);
    // Small tensors: what is missing is the end of the ranks, and not room for values.
    assert!(ran.out.contains("values: no rank of both the run and the simulation"), "{ran:?}");

    let simulated = lockstep(["sim", "all_reduce", "--fault=kill:rank=1,call=1"]);
    assert_eq!(simulated.code, 1, "{simulated:?}");
    assert!(simulated.out.contains("rank 1"), "{simulated:?}");
    let refused = lockstep(["sim", "all_reduce", "--fault=kill:rank=1,after_ms=3"]);
    assert_refused(&refused, "no wall time");
}

/// SIGUSR1 asks for dumps while the run goes on, SIGUSR2 holds it and lets it go on.
#[test]
fn a_run_is_told_by_signals_to_dump_and_to_pause() {
    let mut plan = PlanBuilder::new("long", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        for _ in 0..60_000 {
            program.collective(GroupId::WORLD, sum, 8, None, Some(tensor));
            program.sleep("pause", 1_000_000);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("plan.json"), plan.unwrap().to_json()).unwrap();
    let mut run = std::process::Command::new(lockstep_tests::binary())
        .arg("run")
        .arg(path("plan.json"))
        .arg("--dump-dir")
        .arg(path("dumps"))
        .arg("-o")
        .arg(path("run.lks"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_raw(run.id() as i32).unwrap();
    let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
    let length = || fs::metadata(path("run.lks")).map_or(0, |file| file.len());
    // Whoever listens for signals has begun the trace after.
    Patience::until("the trace to begin", || (length() > 0).then_some(()));
    signal(rustix::process::Signal::USR1);
    let dumps = ["nccl_trace_rank_0", "nccl_trace_rank_1"].map(|name| path("dumps").join(name));
    Patience::until("the dumps", || dumps.iter().all(|dump| dump.is_file()).then_some(()));
    assert!(run.try_wait().unwrap().is_none(), "a dump does not end the run");
    let mut err = std::io::BufReader::new(run.stderr.take().unwrap());
    let mut says = |words: &str| {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut err, &mut line).unwrap();
        assert!(line.contains(words), "{line:?}");
    };
    says(&format!("ranks dump into {}", path("dumps").display()));
    signal(rustix::process::Signal::USR2);
    says("paused");
    signal(rustix::process::Signal::USR2);
    says("goes on");
    let before = length();
    Patience::until("the run to go on", || (length() > before).then_some(()));
    signal(rustix::process::Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(130));
    // The plan is far from its end: what was recorded so far is read.
    let dump = lockstep(["diagnose".as_ref(), "--json".as_ref(), path("dumps").as_os_str()]);
    assert!(json(&dump)["findings"].is_array(), "{dump:?}");
}

/// A folder that no dump can be written into is refused before the run; one that cannot be written later
/// takes nobody's findings with it.
#[test]
fn what_cannot_be_written_costs_no_findings() {
    let run = |dumps: &Path| {
        lockstep([
            "run".as_ref(),
            "skipped-all-reduce".as_ref(),
            "--timeout-ms=300".as_ref(),
            "--dump-dir".as_ref(),
            dumps.as_os_str(),
        ])
    };
    assert_refused(&run(Path::new("/proc/self/dumps")), "cannot write /proc/self/dumps");
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("nccl_trace_rank_1")).unwrap();
    let ran = run(folder.path());
    assert!(ran.code == 2 && ran.out.contains("Rank 2 never called"), "{ran:?}");
    assert!(ran.err.contains("cannot write") && ran.err.contains("nccl_trace_rank_1"), "{ran:?}");
    assert!(folder.path().join("nccl_trace_rank_2").is_file());
}

/// A terminal that closes cancels a run, and its recording is kept; `nohup` keeps it going.
#[test]
fn a_run_ends_with_its_terminal_unless_that_is_ignored() {
    let mut plan = PlanBuilder::new("long", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        for _ in 0..3_000 {
            program.collective(GroupId::WORLD, sum, 8, None, Some(tensor));
            program.sleep("pause", 1_000_000);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("plan.json"), plan.unwrap().to_json()).unwrap();
    let ended = |ignoring: &str| {
        let trace = path(&format!("{}.lks", ignoring.len()));
        let mut run = std::process::Command::new("sh")
            .args(["-c", &format!("{ignoring} exec \"$@\""), "sh"])
            .args([lockstep_tests::binary(), "run".into(), path("plan.json"), "-o".into()])
            .arg(&trace)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_raw(run.id() as i32).unwrap();
        let begun = || fs::metadata(&trace).is_ok_and(|file| file.len() > 0);
        Patience::until("the trace to begin", || begun().then_some(()));
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut run.stdout.take().unwrap(), &mut said).unwrap();
        let read = lockstep(["diagnose".as_ref(), trace.as_os_str()]);
        assert!(matches!(read.code, 0 | 1 | 3), "{read:?}");
        (run.wait().unwrap().code(), said)
    };
    let (code, said) = ended("");
    assert!(code == Some(130) && said.contains("ancelled"), "{code:?} {said}");
    let (code, said) = ended("trap '' HUP;");
    assert!(code == Some(0) && said.contains("Healthy"), "{code:?} {said}");
}

/// While the process that a run is steered from stands still (Ctrl-Z), ranks that wait for it to take
/// what they have written down keep each other waiting: nobody has timed out for that.
#[test]
fn a_run_that_stood_still_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = "def main():\n    dist.init_process_group(\"gloo\")\n    t = torch.ones(1)\n    \
                for i in range(100000):\n        dist.all_reduce(t)\nrun(main, world_size = 2)\n";
    fs::write(path("train.py"), text).unwrap();
    let mut run = std::process::Command::new(lockstep_tests::binary())
        .args(["run".as_ref(), path("train.py").as_os_str(), "--timeout-ms=600".as_ref()])
        .args(["-o".as_ref(), path("run.lks").as_os_str()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_raw(run.id() as i32).unwrap();
    let begun = || fs::metadata(path("run.lks")).is_ok_and(|file| file.len() > 0);
    Patience::until("the trace to begin", || begun().then_some(()));
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // Three times what a call may take.
    std::thread::sleep(std::time::Duration::from_millis(1800));
    assert!(run.try_wait().unwrap().is_none());
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Two processes that a launcher would have started: rank 0 speaks for both.
#[test]
fn ranks_that_others_start_are_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("train.py");
    let text = "def main():\n    dist.init_process_group(\"gloo\")\n    dist.barrier()\n    \
                print(\"arrived\")\nrun(main, world_size = 2)\n";
    fs::write(&program, text).unwrap();
    let [first, second] = launched(&program);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!((first.status.code(), second.status.code()), (Some(0), Some(0)), "{first:?}");
    assert!(text(&first.stdout).contains("Healthy"), "{first:?}");
    let said = text(&first.stderr);
    assert!(["[rank 0, ", "[rank 1, "].iter().all(|rank| said.contains(rank)), "{said}");
    assert_eq!((text(&second.stdout), text(&second.stderr)), (String::new(), String::new()));
}

/// A signal that a program sends itself ends it, though a launched rank leaves that signal to rank 0.
#[test]
fn a_launched_rank_ends_by_the_signal_that_it_sends_itself() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("train.py");
    let text = "import os, signal\ndef main():\n    dist.init_process_group(\"gloo\")\n    \
                if dist.get_rank() == 1:\n        os.kill(os.getpid(), signal.SIGUSR2)\n    \
                dist.barrier()\nrun(main, world_size = 2)\n";
    fs::write(&program, text).unwrap();
    let [first, second] = launched(&program);
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    assert_eq!(second.status.signal(), Some(12), "{second:?}");
    let told = String::from_utf8(first.stdout).unwrap();
    assert!(told.contains("killed by signal 12 (SIGUSR2)"), "{told}");
}

/// A program on two ranks that a launcher would have started.
fn launched(program: &Path) -> [std::process::Output; 2] {
    // Below the ports that the system gives to whoever asks for any.
    let begin = std::process::id();
    let port = (begin..begin + 9_000)
        .map(|next| 20_000 + (next % 9_000) as u16)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap();
    let start = |rank: &str| {
        std::process::Command::new(lockstep_tests::binary())
            .args(["rank", "--plan"])
            .arg(program)
            .envs([("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank)])
            .envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port.to_string())])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    [start("0"), start("1")].map(|rank| rank.wait_with_output().unwrap())
}

/// The same without an address: a file that both see, as `init_method="file://..."`.
#[test]
fn ranks_meet_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let meeting = folder.path().join("meeting");
    let start = |rank: &str| {
        std::process::Command::new(lockstep_tests::binary())
            .args(["rank", "--plan", "all_reduce", "--join-timeout", "40", "--rendezvous"])
            .arg(format!("file://{}", meeting.display()))
            .envs([("RANK", rank), ("WORLD_SIZE", "2")])
            .env_remove("MASTER_ADDR")
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    // Also where the last job's file was left behind.
    for _ in 0..2 {
        let (second, first) = (start("1"), start("0"));
        let [first, second] = [first, second].map(|rank| rank.wait_with_output().unwrap());
        assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
        assert!(String::from_utf8_lossy(&first.stdout).contains("Healthy"), "{first:?}");
    }
    assert_refused(
        &lockstep(["run", "all_reduce", "--backend=mpi"]),
        "lockstep rank --backend mpi",
    );
}

/// Measured on this machine, whatever it is: the simulator takes the written file, and says so.
#[test]
fn what_was_measured_is_what_the_simulator_takes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host2.json");
    let measured = lockstep([
        "calibrate".as_ref(),
        "--rounds=1".as_ref(),
        "--max-bytes=4194304".as_ref(),
        "--check".as_ref(),
        "--json".as_ref(),
        "-o".as_ref(),
        file.as_os_str(),
    ]);
    assert_eq!(measured.code, 0, "{measured:?}");
    let said = json(&measured);
    let lines = said["lines"].as_array().unwrap();
    let fitted = lines.iter().filter(|line| line["fitted"] == true).count();
    assert_eq!((lines.len(), fitted), (39, 27), "{said}");
    let sim = |options: &[&std::ffi::OsStr]| {
        let call = ["sim", "all_reduce", "--json"].map(std::ffi::OsStr::new);
        lockstep(call.iter().chain(options).copied())
    };
    let (from, two) = ("--topology".as_ref(), "--world-size=2".as_ref());
    let simulated = sim(&[two, from, file.as_os_str()]);
    assert_eq!((simulated.code, simulated.err.as_str()), (0, ""), "{simulated:?}");
    assert_ne!(json(&simulated)["time_ps"], json(&sim(&[two]))["time_ps"]);
    let both = sim(&[two, from, file.as_os_str(), "--link-latency-ns=1".as_ref()]);
    assert_eq!(both.code, 2, "{both:?}");
    let larger = sim(&["--world-size=3".as_ref(), from, file.as_os_str()]);
    assert!(larger.err.contains("measured with 2 ranks"), "{larger:?}");
}
