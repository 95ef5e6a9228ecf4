//! Ranks that others start: by hand as any launcher does it, by mpirun where there is one, and by a
//! real torchrun when `LOCKSTEP_PYTHON` names a Python with PyTorch.

use crate::deaths::{long_plan, until};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Action, Deadly, Fault, Fill, Op, Plan, PlanBuilder, SignalKind};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Outcome, Trace, What};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) const RANK: &str = env!("CARGO_BIN_EXE_lockstep-rank");

/// A job's plan and its trace, in a folder that is thrown away.
pub(crate) struct Job {
    pub(crate) folder: tempfile::TempDir,
}

impl Job {
    pub(crate) fn of(plan: &Plan) -> Job {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plan"), plan.to_bytes()).unwrap();
        Job { folder }
    }

    fn arguments(&self) -> [PathBuf; 3] {
        ["--launched".into(), self.folder.path().join("plan"), self.trace_path()]
    }

    pub(crate) fn trace_path(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// For each rank, true if it has kept a dump of its own.
    fn kept(&self) -> [bool; 3] {
        [0, 1, 2].map(|rank| {
            let dump = std::fs::read(self.folder.path().join(format!("nccl_trace_rank_{rank}")));
            dump.is_ok_and(|pickle| !pickle.is_empty())
        })
    }

    pub(crate) fn trace(&self) -> Trace {
        Trace::read(&std::fs::read(self.trace_path()).unwrap()).unwrap()
    }

    /// All ranks, as torchrun starts them.
    pub(crate) fn start(&self, world_size: u32, more: &[&str]) -> Vec<Child> {
        let port = free_port();
        (0..world_size).map(|rank| self.rank(rank, world_size, port, more)).collect()
    }

    pub(crate) fn rank(&self, rank: u32, world_size: u32, port: u16, more: &[&str]) -> Child {
        self.rank_by(Command::new(RANK), rank, world_size, ("127.0.0.1", port), more)
    }

    pub(crate) fn rank_by(
        &self,
        mut command: Command,
        rank: u32,
        world_size: u32,
        (master, port): (&str, u16),
        more: &[&str],
    ) -> Child {
        command
            .args(self.arguments())
            .args(more)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world_size.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("MASTER_ADDR", master)
            .env("MASTER_PORT", port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// A port that was free a moment ago: below those that the system gives to whoever asks for any,
/// as other tests do meanwhile.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) + 61 * std::process::id();
        let port = 20_000 + (next % 9_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn reduction(world_size: u32) -> Plan {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    CollectiveLab::new(sum, world_size, 5000).plan().unwrap()
}

/// The outputs of all of them, each ended in bounded time.
fn end(ranks: Vec<Child>) -> Vec<Output> {
    end_within(Duration::from_secs(10), ranks)
}

pub(crate) fn end_within(limit: Duration, ranks: Vec<Child>) -> Vec<Output> {
    let started = Instant::now();
    let ended = |mut rank: Child| {
        while rank.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < limit, "a rank has not ended within {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        rank.wait_with_output().unwrap()
    };
    ranks.into_iter().map(ended).collect()
}

pub(crate) fn codes(outputs: &[Output]) -> Vec<Option<i32>> {
    outputs.iter().map(|output| output.status.code()).collect()
}

pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

pub(crate) fn all(outputs: &[Output]) -> Vec<String> {
    outputs.iter().map(text).collect()
}

/// The contents of the tensors at the end, by rank.
fn results(trace: &Trace) -> Vec<(u32, What)> {
    let found = trace.events.iter().filter(|event| matches!(event.what, What::Result { .. }));
    let mut results: Vec<_> = found.map(|event| (event.rank.0, event.what.clone())).collect();
    results.sort_by_key(|(rank, _)| *rank);
    results
}

pub(crate) fn assert_verified(job: &Job, plan: &Plan) {
    let trace = job.trace();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::Completed);
    assert_eq!(results(&trace), results(&crate::run(plan.clone())));
}

fn grows(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 300_000)
}

#[test]
fn ranks_find_each_other_with_the_bits_of_any_run() {
    let plan = reduction(3);
    for more in [&[][..], &["--tcp"]] {
        let job = Job::of(&plan);
        let outputs = end(job.start(3, more));
        assert_eq!(codes(&outputs), [Some(0); 3], "{:?}", all(&outputs));
        assert_verified(&job, &plan);
    }
}

#[test]
fn a_rank_that_dies_ends_the_others() {
    for more in [&[][..], &["--tcp"]] {
        let job = Job::of(&long_plan());
        let mut ranks = job.start(3, more);
        until("the trace grows", || grows(&job.trace_path()));
        ranks[2].kill().unwrap();
        let outputs = end(ranks);
        assert_eq!(codes(&outputs), [Some(1), Some(1), None], "{:?}", all(&outputs));
        let outcome = job.trace().end.unwrap().outcome;
        assert!(matches!(outcome, Outcome::RankDied { rank, .. } if rank.0 == 2));
    }
}

/// A plan can hold its faults itself, and ranks that others started do them to themselves.
#[test]
fn a_signal_of_the_plan_reaches_a_launched_rank() {
    let faults: Vec<Fault> = vec!["kill:rank=1,call=1".parse().unwrap()];
    let job = Job::of(&reduction(2).with_faults(&faults).unwrap().plan);
    let outputs = end(job.start(2, &[]));
    assert_eq!(codes(&outputs), [Some(1), None], "{:?}", all(&outputs));
    let how = "killed by signal 9 (SIGKILL), an injected fault".to_owned();
    let outcome = job.trace().end.unwrap().outcome;
    assert_eq!(outcome, Outcome::RankDied { rank: GlobalRank(1), how });

    // A process that has a handler of its own for it, too.
    for deadly in [Deadly::Segment, Deadly::Abort, Deadly::Terminate] {
        let mut plan = reduction(2);
        let signal = Action::Signal(SignalKind::End(deadly));
        let mut own = plan.program(GlobalRank(1)).unwrap().clone();
        own.ops.push(Op::new(signal, None));
        plan.program_of[1] = plan.programs.len() as u32;
        plan.programs.push(own);
        let job = Job::of(&plan);
        let outputs = end(job.start(2, &[]));
        assert_eq!(outputs[1].status.signal(), Some(deadly.number()), "{:?}", all(&outputs));
        let how = deadly.how_it_ends().to_owned();
        let outcome = job.trace().end.unwrap().outcome;
        assert_eq!(outcome, Outcome::RankDied { rank: GlobalRank(1), how });
    }
}

/// Rank 0 reports the end at once, and the rank's launcher sees the signal.
#[test]
fn a_kill_by_the_clock_reaches_a_launched_rank() {
    for more in [&[][..], &["--tcp"]] {
        let job = Job::of(&long_plan());
        let more = [more, &["--fault=kill:rank=1,after_ms=50"]].concat();
        let outputs = end(job.start(3, &more));
        assert_eq!(codes(&outputs), [Some(1), None, Some(1)], "{:?}", all(&outputs));
        assert_eq!(outputs[1].status.signal(), Some(9), "{:?}", all(&outputs));
        let how = "killed by signal 9 (SIGKILL), an injected fault".to_owned();
        let outcome = job.trace().end.unwrap().outcome;
        assert_eq!(outcome, Outcome::RankDied { rank: GlobalRank(1), how });
    }
}

#[test]
fn ranks_end_when_rank_0_is_killed_and_the_trace_stays() {
    for more in [&[][..], &["--tcp"]] {
        let job = Job::of(&long_plan());
        let mut ranks = job.start(3, more);
        until("the trace grows", || grows(&job.trace_path()));
        ranks[0].kill().unwrap();
        let outputs = end(ranks);
        assert_eq!(codes(&outputs), [None, Some(1), Some(1)], "{:?}", all(&outputs));
        for (rank, output) in [(1, &outputs[1]), (2, &outputs[2])] {
            let said = text(output);
            assert!(said.contains(&format!("rank {rank}: connection to rank 0 lost")), "{said}");
        }
        // Rank 0 cannot gather what they have called: each keeps its own.
        assert_eq!(job.kept(), [false, true, true]);
        let trace = job.trace();
        assert!(trace.end.is_none() && !trace.events.is_empty());
    }
}

/// A stopped process keeps its connections: nobody hears of it but by its silence.
#[test]
fn ranks_end_when_rank_0_is_stopped() {
    let job = Job::of(&long_plan());
    let mut ranks = job.start(3, &["--impatient"]);
    until("the trace grows", || grows(&job.trace_path()));
    let first = Pid::from_raw(ranks[0].id() as i32).unwrap();
    kill_process(first, Signal::STOP).unwrap();
    let others = end_within(Duration::from_secs(40), ranks.split_off(1));
    kill_process(first, Signal::CONT).unwrap();
    let own = end_within(Duration::from_secs(40), ranks);
    assert_eq!(codes(&others), [Some(1); 2], "{:?}", all(&others));
    assert!(all(&others).iter().all(|said| said.contains("rank 0 has ")), "{:?}", all(&others));
    assert_eq!(job.kept(), [false, true, true]);
    // It does not take those for dead that have given it up.
    let outcome = job.trace().end.unwrap().outcome;
    let why = "the process of rank 0 stood still";
    assert!(
        matches!(&outcome, Outcome::Failed { why: said } if said.starts_with(why)),
        "{outcome:?} {:?}",
        all(&own)
    );
}

/// A rank that rank 0 ends itself does not report that rank 0 is gone.
#[test]
fn a_run_that_rank_0_ends_is_told_by_rank_0() {
    let job = Job::of(&long_plan());
    let mut ranks = job.start(3, &[]);
    until("the trace grows", || grows(&job.trace_path()));
    ranks[2].kill().unwrap();
    let outputs = end(ranks);
    assert!(text(&outputs[1]).contains("rank 0 says why"), "{:?}", all(&outputs));
    assert_eq!(job.kept(), [false; 3]);
}

#[test]
fn another_plan_is_refused_in_words() {
    let (job, other) = (Job::of(&reduction(2)), Job::of(&long_plan()));
    let port = free_port();
    let wrong = end(vec![other.rank(0, 2, port, &[])]);
    assert!(text(&wrong[0]).contains("started 2 processes, and the plan has 3"), "{wrong:?}");
    let sum = Collective::AllReduce { op: ReduceOp::Product };
    let differs = Job::of(&CollectiveLab::new(sum, 2, 5000).plan().unwrap());
    let ranks = end(vec![job.rank(0, 2, port, &[]), differs.rank(1, 2, port, &[])]);
    assert_eq!(codes(&ranks), [Some(2), Some(2)], "{:?}", all(&ranks));
    // Nobody waits for who cannot come.
    assert!(text(&ranks[0]).contains("rank 1 did not join the run: its plan"), "{ranks:?}");
    assert!(text(&ranks[1]).contains("another one than rank 0's"), "{ranks:?}");
}

#[test]
fn who_comes_twice_is_told() {
    let job = Job::of(&long_plan());
    let port = free_port();
    let ranks = [0, 1, 1].map(|rank| job.rank(rank, 3, port, &[]));
    let ranks = end(ranks.into_iter().collect());
    assert!(codes(&ranks).iter().all(|code| *code > Some(0)), "{:?}", all(&ranks));
    let said = text(&ranks[0]);
    assert!(said.contains("rank 1 did not join the run: two processes say that they"), "{said}");
    // Rank 0 twice: the first goes on.
    let port = free_port();
    let mut first = job.rank(0, 3, port, &[]);
    until("rank 0 serves the store", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let second = end(vec![job.rank(0, 3, port, &[])]);
    let said = text(&second[0]);
    let who = format!("another rank 0 (process {}) meets its ranks", first.id());
    assert!(said.contains(&who), "{said}");
    assert!(first.try_wait().unwrap().is_none());
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Two network namespaces with a cable between them, gone with it.
struct Cable {
    ends: [String; 2],
}

fn ip(line: &str) -> bool {
    let ran = Command::new("ip").args(line.split_whitespace()).output();
    ran.is_ok_and(|ran| ran.status.success())
}

impl Cable {
    /// `None` where this machine lets nobody have one. Tests run at once: each has its letter.
    fn new(letter: char) -> Option<Cable> {
        let id = std::process::id() % 10_000;
        let ends = ["a", "b"].map(|end| format!("lk{letter}{id}{end}"));
        let [here, there] = &ends;
        if !ip(&format!("netns add {here}")) {
            println!("skipped: this machine does not let the test make network namespaces");
            return None;
        }
        let made = [
            format!("netns add {there}"),
            format!("link add v{here} netns {here} type veth peer name v{there} netns {there}"),
            format!("-n {here} addr add 10.77.0.1/24 dev v{here}"),
            format!("-n {there} addr add 10.77.0.2/24 dev v{there}"),
            format!("-n {here} link set v{here} up"),
            format!("-n {there} link set v{there} up"),
            format!("-n {here} link set lo up"),
            format!("-n {there} link set lo up"),
        ];
        let made = made.iter().all(|line| ip(line));
        let cable = Cable { ends };
        if !made {
            println!("skipped: this machine lets the test connect no network namespaces");
        }
        made.then_some(cable)
    }

    /// One rank at each end, over TCP.
    fn start(&self, job: &Job, more: &[&str]) -> Vec<Child> {
        let more = [&["--tcp"], more].concat();
        let inside = |(rank, namespace): (u32, &String)| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace, RANK]);
            job.rank_by(command, rank, 2, ("10.77.0.1", 29577), &more)
        };
        (0..).zip(&self.ends).map(inside).collect()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.ends.iter().for_each(|end| {
            ip(&format!("netns del {end}"));
        });
    }
}

#[test]
fn ranks_of_two_network_namespaces() {
    let Some(cable) = Cable::new('s') else { return };
    let plan = reduction(2);
    let job = Job::of(&plan);
    let outputs = end(cable.start(&job, &[]));
    assert_eq!(codes(&outputs), [Some(0); 2], "{:?}", all(&outputs));
    assert_verified(&job, &plan);
}

/// A cable that is pulled: both ends find out by their own watchdogs, and end.
#[test]
fn ranks_whose_network_is_gone_end_on_both_sides() {
    let Some(cable) = Cable::new('c') else { return };
    let mut plan = PlanBuilder::new("long", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 1000, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        for _ in 0..5000 {
            program.collective(GroupId::WORLD, sum, 1000, None, Some(tensor));
            program.compute("work", 5_000_000);
        }
    });
    let job = Job::of(&plan.unwrap());
    let ranks = cable.start(&job, &["--impatient"]);
    until("the trace grows", || grows(&job.trace_path()));
    assert!(ip(&format!("-n {0} link set v{0} down", cable.ends[0])));
    let outputs = end_within(Duration::from_secs(40), ranks);
    assert_eq!(codes(&outputs), [Some(1); 2], "{:?}", all(&outputs));
    assert!(text(&outputs[1]).contains("a call has timed out, and rank 0"), "{outputs:?}");
    assert_eq!(job.trace().end.unwrap().outcome, Outcome::TimedOut);
    assert_eq!(job.kept(), [false, true, false]);
}

/// MASTER_ADDR can be an address of either family, however messages go.
#[test]
fn ranks_find_each_other_under_ipv6() {
    let port = free_port();
    if TcpListener::bind(("::1", port)).is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    let plan = reduction(3);
    let job = Job::of(&plan);
    let rank = |rank| job.rank_by(Command::new(RANK), rank, 3, ("::1", port), &["--tcp"]);
    let outputs = end((0..3).map(rank).collect());
    assert_eq!(codes(&outputs), [Some(0); 3], "{:?}", all(&outputs));
    assert_verified(&job, &plan);
}

/// `mpirun` gives ranks in variables of its own.
#[test]
fn mpirun_starts_ranks() {
    let Ok(version) = Command::new("mpirun").arg("--version").output() else {
        println!("skipped: there is no mpirun on this machine");
        return;
    };
    let plan = reduction(2);
    let job = Job::of(&plan);
    let mut command = Command::new("mpirun");
    if text(&version).contains("Open MPI") {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    command.args(["-n", "2", RANK]).args(job.arguments());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", free_port().to_string());
    let ran = command.output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    assert_verified(&job, &plan);
}

/// A real torchrun, whose agent serves the store, and a PyTorch process that serves one.
#[test]
fn torchrun_starts_ranks() {
    let Some(python) = std::env::var_os("LOCKSTEP_PYTHON") else {
        println!("skipped: LOCKSTEP_PYTHON names no Python with PyTorch");
        return;
    };
    let torchrun = |job: &Job, options: &[&str]| {
        let mut command = Command::new(&python);
        command.args(["-m", "torch.distributed.run", "--no-python"]).args(options);
        command.arg(RANK).args(job.arguments()).output().unwrap()
    };
    let plan = reduction(4);
    let job = Job::of(&plan);
    let c10d = ["--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"];
    let ran = torchrun(&job, &c10d);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    assert_verified(&job, &plan);

    // Static rendezvous: the agent serves the store at a port that is given.
    let job = Job::of(&plan);
    let port = format!("--master-port={}", free_port());
    let ran = torchrun(&job, &["--nproc-per-node=4", "--master-addr=127.0.0.1", &port]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    assert_verified(&job, &plan);

    // A PyTorch process that serves the store where rank 0 would.
    let port = free_port();
    let script = format!(
        "
import datetime, sys, torch.distributed as d
s = d.TCPStore('127.0.0.1', {port}, None, True, datetime.timedelta(seconds=60), wait_for_workers=False)
print('up', flush=True); sys.stdin.read()
"
    );
    let mut server = Command::new(&python)
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    let job = Job::of(&plan);
    let outputs = end((0..4).map(|rank| job.rank(rank, 4, port, &[])).collect());
    drop(server.stdin.take());
    server.wait().unwrap();
    assert_eq!(codes(&outputs), [Some(0); 4], "{:?}", all(&outputs));
    assert_verified(&job, &plan);
}
