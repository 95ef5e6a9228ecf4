//! `lockstep watch`: jobs that end, fail and hang keep their exit codes, leave nothing behind, and are diagnosed.
//!
//! A shell script stands for a job. Real gloo jobs of four ranks (`tests/data/watch/train.py`) run by
//! `LOCKSTEP_PYTHON=PYTHON cargo test --test watch -- --ignored`, where that Python has torch 2.9 or newer.

use lockstep_core::trace::Trace;
use lockstep_tests::{Patience, Service, binary, data};
use serde_json::Value;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn watch(folder: &Path, options: &[&str], job: &[&str]) -> Output {
    let mut watch = Command::new(binary());
    watch.current_dir(folder).arg("watch").args(options).arg("--").args(job).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_job_keeps_its_exit_code_and_output() {
    let folder = tempfile::tempdir().unwrap();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
        let script = format!("echo out; echo err >&2; {script}");
        let done = watch(folder.path(), &[], &["sh", "-c", &script]);
        assert_eq!(done.status.code(), Some(code), "{script}");
        assert_eq!(text(&done.stdout), "out\n");
        let said = text(&done.stderr);
        assert!(said.starts_with("err\n"), "{said}");
        assert!(said.contains("No rank came to init_process_group"), "{said}");
    }
    // What failed is kept, what ended well is not.
    let kept = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(kept, 2);
    let log = folder.path().join("watched-2/recording/job.log");
    assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 2);
}

#[test]
fn what_a_failed_job_printed_is_diagnosed() {
    let folder = tempfile::tempdir().unwrap();
    let raised = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"train.py\", line 7, in <module>\n\
                  [rank1]:     loss = model(batch)\n[rank1]: ValueError: a bad batch\n";
    std::fs::write(folder.path().join("said"), raised).unwrap();
    let job = ["sh", "-c", "cat said >&2; exit 1"];
    let done = watch(folder.path(), &["-o", "out"], &job);
    assert_eq!(done.status.code(), Some(1));
    let said = text(&done.stderr);
    assert!(
        said.contains("Rank 1 ended by ValueError: a bad batch") || said.contains("[rank_died]"),
        "{said}"
    );
    let report = std::fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    assert!(report.contains("a bad batch"), "{report}");
    let again = watch(folder.path(), &["-o", "out"], &job);
    assert_eq!(again.status.code(), Some(2), "a folder that is there is not written to");
    let missing = watch(folder.path(), &[], &["no-such-program"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(!folder.path().join("watched").exists());
}

#[test]
fn the_watcher_can_be_read() {
    let done = Command::new(binary()).args(["watch", "--print-watcher"]).output().unwrap();
    assert!(done.status.success());
    assert!(text(&done.stdout).contains("def hook_into(c10d, path)"));
}

/// The recorders of three generations of PyTorch, of which NCCL's holds the calls. 2.11 on an H200 is the second: the
/// generic recorder is there, and empty.
const RECORDERS: &str = r#"
import sys, types

source = open(sys.argv[1]).read()
empty, full = '{"entries":[]}', '{"entries":[1,2,3]}'


def of_one(text):
    def dump(calls=True, active=False): return text
    return dump


def pickled(text):
    def dump(calls=True, stacks=True, active=False): return text.encode()
    return dump


def by_backend(calls=True, active=False, backend="gloo"): return full if backend == "nccl" else empty
by_backend.__doc__ = "_dump_fr_trace_json(..., backend: str = 'gloo')"
def pickled_by_backend(calls=True, stacks=True, active=False, backend="gloo"): return by_backend(backend=backend).encode()
pickled_by_backend.__doc__ = by_backend.__doc__

generations = [
    {"_dump_nccl_trace_json": of_one(full), "_dump_nccl_trace": pickled(full)},
    {"_dump_fr_trace_json": of_one(empty), "_dump_fr_trace": pickled(empty),
     "_dump_nccl_trace_json": of_one(full), "_dump_nccl_trace": pickled(full)},
    {"_dump_fr_trace_json": by_backend, "_dump_fr_trace": pickled_by_backend},
    {"_dump_fr_trace_json": of_one(full), "_dump_fr_trace": pickled(full)},
    {},
]
for functions in generations:
    c10d = types.ModuleType("torch._C._distributed_c10d")
    vars(c10d).update(functions)
    for name in ("torch", "torch._C"): sys.modules[name] = types.ModuleType(name)
    sys.modules["torch._C._distributed_c10d"] = sys.modules["torch._C"]._distributed_c10d = c10d
    watcher = {"__name__": "watcher"}
    exec(source[:source.index("def stacks(")], watcher)
    recorder = watcher["Recorder"]()
    print(recorder.dump().decode(), recorder.dump_with_stacks().decode(), full in recorder.counters().decode())
"#;

#[test]
fn nccls_recorder_is_asked_beside_the_generic_one() {
    let folder = tempfile::tempdir().unwrap();
    let printed = Command::new(binary()).args(["watch", "--print-watcher"]).output().unwrap();
    let (watcher, script) = (folder.path().join("watcher.py"), folder.path().join("try.py"));
    std::fs::write(&watcher, &printed.stdout).unwrap();
    std::fs::write(&script, RECORDERS).unwrap();
    let done = Command::new("python3").arg(&script).arg(&watcher).output().unwrap();
    let full = r#"{"entries":[1,2,3]}"#;
    let right = format!("{full} {full} True\n").repeat(4) + "  False\n";
    assert_eq!(text(&done.stdout), right, "{}", text(&done.stderr));
}

/// A rank that dumps holds up its peers. Ranks whose dumps take different times still dump at the same moments of the
/// clock, and a dump takes a two hundredth of the time at most.
const PERIODS: &str = r#"
import sys

watcher = {"__name__": "watcher"}
exec(open(sys.argv[1]).read(), watcher)
periods = [watcher["period_of"](took) for took in (0.0, 0.004, 0.021, 0.024, 0.03, 0.07)]
print(periods, all(slow % fast == 0 for fast, slow in zip(periods, periods[1:])))
print(0 < watcher["until_next"](0.2) <= 0.2)
"#;

#[test]
fn ranks_dump_at_the_same_moments() {
    let folder = tempfile::tempdir().unwrap();
    let printed = Command::new(binary()).args(["watch", "--print-watcher"]).output().unwrap();
    let (watcher, script) = (folder.path().join("watcher.py"), folder.path().join("try.py"));
    std::fs::write(&watcher, &printed.stdout).unwrap();
    std::fs::write(&script, PERIODS).unwrap();
    let done = Command::new("python3").arg(&script).arg(&watcher).output().unwrap();
    let right = "[1.0, 1.0, 8.0, 8.0, 8.0, 16.0] True\nTrue\n";
    assert_eq!(text(&done.stdout), right, "{}", text(&done.stderr));
}

/// A job whose main thread is inside of the watcher, as at its end.
const OWN_FRAMES: &str = r#"
import sys, threading

watcher = {"__name__": "watcher"}
exec(compile(open(sys.argv[1]).read(), "sitecustomize.py", "exec"), watcher)
exec(compile("def called(function): function()", "sitecustomize.py", "exec"), watcher)
shown = []


def of_the_job():
    other = threading.Thread(target=lambda: shown.append(watcher["stacks"](threading.get_ident())))
    other.start()
    other.join()


watcher["called"](of_the_job)
print(shown[0].decode())
"#;

#[test]
fn the_watchers_own_frames_are_no_part_of_the_jobs_stack() {
    let folder = tempfile::tempdir().unwrap();
    let printed = Command::new(binary()).args(["watch", "--print-watcher"]).output().unwrap();
    let (watcher, script) = (folder.path().join("watcher.py"), folder.path().join("try.py"));
    std::fs::write(&watcher, &printed.stdout).unwrap();
    std::fs::write(&script, OWN_FRAMES).unwrap();
    let done = Command::new("python3").arg(&script).arg(&watcher).output().unwrap();
    let shown = text(&done.stdout);
    assert!(shown.contains("of_the_job ("), "{shown}{}", text(&done.stderr));
    assert!(!shown.contains("sitecustomize.py"), "{shown}");
}

/// The processes whose command line holds a word.
fn processes_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

#[test]
#[ignore = "needs a Python with PyTorch in LOCKSTEP_PYTHON"]
fn real_jobs_are_watched() {
    let python = std::env::var_os("LOCKSTEP_PYTHON").expect("LOCKSTEP_PYTHON names a Python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/watch/train.py");
    let folder = tempfile::tempdir().unwrap();
    // A name that no other process has.
    let own = folder.path().join("train.py");
    std::fs::copy(&script, &own).unwrap();
    let python = PathBuf::from(python);
    // torchrun's own exit code is 1 whatever its ranks' is.
    let faults: [(&str, i32, &[&str]); 5] = [
        ("none", 0, &["the job of 4 ranks ended well (exit code 0, every recorded call ended)"]),
        (
            "skip",
            1,
            &["no rank has made a call for 8 s", "[op_skipped]", "ulprits 2", "train.py:28"],
        ),
        (
            "stop",
            1,
            &[
                "no rank has made a call for 8 s",
                "ulprits 2",
                "stands stopped by a signal (SIGSTOP)",
            ],
        ),
        ("kill", 1, &["[rank_died]", "ulprits 2", "SIGKILL"]),
        ("raise", 1, &["[rank_died]", "ulprits 2", "a bad batch"]),
    ];
    for (fault, code, parts) in faults {
        let job = [
            python.to_str().unwrap(),
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "4",
            own.to_str().unwrap(),
            fault,
        ];
        let done = Command::new(binary())
            .current_dir(folder.path())
            .env("GROUP_TIMEOUT", "20")
            .args(["watch", "-o", fault, "--patience", "8", "--"])
            .args(job)
            .output()
            .unwrap();
        // Lines are wrapped anywhere.
        let said = text(&done.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(done.status.code(), Some(code), "{fault}: {said}");
        for part in parts {
            assert!(said.contains(part), "{fault} does not say {part}: {said}");
        }
        // What torchrun did to a stopped rank in the end is not what happened to it.
        let end = said.split("lockstep: the job ended").last().unwrap();
        assert_eq!(fault == "stop", end.contains("(SIGSTOP)"), "{fault}: {end}");
        assert_eq!(processes_with(own.to_str().unwrap()), 0, "{fault} leaves processes");
        if code != 0 {
            let trace = std::fs::read(folder.path().join(fault).join("watched.lks")).unwrap();
            assert_eq!(Trace::read(&trace).unwrap().header.world_size, 4, "{fault}");
        }
    }
}

/// A rank of a watched job, without Python.
struct Rank(UnixStream);

impl Rank {
    fn connect(socket: &str, rank: usize) -> Rank {
        let mut own = Rank(UnixStream::connect(socket).unwrap());
        let pid = std::process::id();
        own.tell(&format!("{{\"t\":\"hello\",\"rank\":{rank},\"pid\":{pid}}}"), b"");
        own.tell("{\"t\":\"world\",\"world_size\":4}", b"");
        own
    }

    fn tell(&mut self, text: &str, payload: &[u8]) {
        self.0.write_all(&(text.len() as u32).to_le_bytes()).unwrap();
        self.0.write_all(&(payload.len() as u64).to_le_bytes()).unwrap();
        self.0.write_all(text.as_bytes()).unwrap();
        self.0.write_all(payload).unwrap();
    }
}

/// The page has the newest calls of the job and what each rank does, and at the end the report.
#[test]
fn a_job_is_shown_on_the_page_while_it_runs() {
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    let page = format!("http://{}/#token={}", service.address(), service.token());
    let script = "echo \"$LOCKSTEP_WATCH\" > place.new && mv place.new place
                  until [ -e done ]; do sleep 0.05; done; exit 3";
    let watch = Command::new(binary())
        .current_dir(folder.path())
        .args(["watch", "-o", "out", "--page", &page, "--", "sh", "-c", script])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let place = folder.path().join("place");
    let socket = Patience::until("the hub's place", || std::fs::read_to_string(&place).ok());
    let case = data("flight-recorder/t215_skip_allreduce_diff_size");
    let ranks: Vec<Rank> = (0..4)
        .map(|rank| {
            let mut own = Rank::connect(socket.trim(), rank);
            let dump = std::fs::read(case.join(format!("rank_{rank}"))).unwrap();
            own.tell("{\"t\":\"dump\"}", &dump);
            own.tell("{\"t\":\"beat\",\"changes\":1}", b"");
            own
        })
        .collect();
    let job = || service.get("api/watched").json()[0].clone();
    let doing = |job: &Value| -> Vec<String> {
        let ranks = job["ranks"].as_array().cloned().unwrap_or_default();
        ranks.iter().map(|rank| rank["doing"].as_str().unwrap().to_owned()).collect()
    };
    let world =
        |calls: Vec<u8>| Trace::from_bytes(&calls).ok().map(|trace| trace.header.world_size);
    let trace = || world(service.get("api/watched/1/trace").body);
    assert_eq!(
        Patience::until("the calls of four ranks", || trace().filter(|world| *world == 4)),
        4
    );
    let now = Patience::until("four ranks", || Some(job()).filter(|job| doing(job) == ["runs"; 4]));
    assert_eq!((&now["world_size"], &now["ended"]), (&4.into(), &Value::Null));
    assert!(now["command"].as_str().unwrap().starts_with("sh -c echo"), "{now}");
    drop(ranks);
    Patience::until("their end", || Some(job()).filter(|job| doing(job) == ["gone"; 4]));
    std::fs::write(folder.path().join("done"), "").unwrap();
    let done = watch.wait_with_output().unwrap();
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("the job is shown at {page}&/runs/watched-1")), "{said}");
    let end = job();
    assert_eq!(end["ended"], "exit code 3");
    assert!(end["report"].as_str().unwrap().contains("[op_skipped]"), "{end}");
    // Whoever has no token neither sees nor shows a job; what is no trace is not taken.
    let refused = service.post_bytes("api/watched", "application/json", b"{}".to_vec());
    assert_eq!(refused.status, 400, "{}", refused.error());
    assert_eq!(service.get("api/watched/2").status, 404);
}

#[test]
fn a_page_that_does_not_answer_is_no_reason_not_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let done = watch(folder.path(), &["--page", "http://127.0.0.1:1/#token=x"], &["true"]);
    assert_eq!(done.status.code(), Some(0));
    let said = text(&done.stderr);
    assert!(said.contains("the page does not show the job for now"), "{said}");
    let wrong = watch(folder.path(), &["--page", "https://example.org/"], &["true"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("lockstep serve prints"), "{}", text(&wrong.stderr));
}
