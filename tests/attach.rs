//! `lockstep attach`: a job is asked through its store, its page or its sockets, and only where its user said.
//!
//! A stand-in answers what a real job of torch 2.15 answered (`tests/data/debug-server`). A real job of three ranks is
//! run by `LOCKSTEP_PYTHON=PYTHON cargo test --test attach -- --ignored`, where that Python has torch 2.10 or newer,
//! jinja2, tabulate and requests.

use lockstep_gpu_exec::store::StoreServer;
use lockstep_tests::binary;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const HANDLERS: &str = r#"["dump_traceback","pyspy_dump","fr_trace_json","ping"]"#;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/debug-server").join(name))
        .unwrap()
}

/// Reads one request of HTTP and answers it by its path.
fn answer(stream: impl Read + Write, by_path: &dyn Fn(&str) -> Option<Vec<u8>>) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    if reader.read_line(&mut first).is_err() {
        return;
    }
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match by_path(path) {
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", b"no such handler".to_vec()),
    };
    let mut answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend(body);
    let _ = reader.into_inner().write_all(&answer);
}

/// The answer of a rank's own server.
fn of_rank(rank: u32, path: &str) -> Option<Vec<u8>> {
    match path {
        "/" => Some(b"<h1>torch.distributed.WorkerServer</h1>".to_vec()),
        "/handler/" => Some(HANDLERS.into()),
        "/handler/fr_trace_json?backend=gloo" => Some(data(&format!("fr_{rank}.json"))),
        "/handler/fr_trace_json?backend=nccl" => Some(br#"{"version":"2.10"}"#.to_vec()),
        "/handler/dump_traceback" => Some(data(&format!("stack_{rank}.txt"))),
        _ => None,
    }
}

/// A server that lives as long as the test, and its port.
fn serve(by_path: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| answer(stream, &by_path));
    });
    port
}

fn attach(folder: &Path, options: &[&str]) -> Output {
    attach_apart("100ms", folder, options)
}

/// Asks twice, with so much time between.
fn attach_apart(apart: &str, folder: &Path, options: &[&str]) -> Output {
    let mut attach = Command::new(binary());
    attach.current_dir(folder).args(["attach", "--apart", apart]).args(options);
    attach.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The findings of rank 1, which is in no call, with the line where it is.
fn assert_names_rank_1(done: &Output) {
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["findings"][0]["culprits"], serde_json::json!([1]), "{report}");
    assert!(report["findings"][0].to_string().contains("train.py:21"), "{report}");
}

#[test]
fn a_hung_job_is_asked_through_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreServer::start().unwrap();
    for rank in 0..3 {
        let port = serve(move |path| of_rank(rank, path));
        // No name that is known anywhere: the whole job is on the host that was named.
        let at = format!("http://node-1.invalid:{port}");
        store.set(&format!("debug_server/rank{rank}"), at.as_bytes());
    }
    let address = store.address().to_string();
    let done = attach(folder.path(), &[&address, "--json"]);
    assert_names_rank_1(&done);
    // What was gathered says the same again.
    let kept = folder.path().join("attached");
    for file in [
        "report.md",
        "attached.lks",
        "recording/gloo_trace_rank_0.json",
        "recording/stacks_rank_1.txt",
    ] {
        assert!(kept.join(file).is_file(), "{file}");
    }
    let again =
        Command::new(binary()).arg("diagnose").arg("--json").arg(kept.join("recording")).output();
    assert_names_rank_1(&again.unwrap());
}

#[test]
fn ranks_on_hosts_that_nobody_named_are_not_asked() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreServer::start().unwrap();
    let elsewhere = TcpListener::bind("127.0.0.2:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    let own = serve(|path| of_rank(0, path));
    store.set("debug_server/rank0", format!("http://127.0.0.1:{own}").as_bytes());
    store.set("debug_server/rank1", format!("http://127.0.0.2:{port}").as_bytes());
    let done = attach(folder.path(), &[&store.address().to_string()]);
    let said = text(&done.stderr);
    assert!(said.contains("ranks 1 on 127.0.0.2 (--host 127.0.0.2"), "{said}");
    assert!(elsewhere.accept().is_err(), "somebody connected");
}

#[test]
fn a_rank_that_is_gone_and_one_that_says_nothing_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreServer::start().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let ports = [serve(|path| of_rank(0, path)), port(&gone), port(&silent)];
    drop(gone);
    for (rank, port) in ports.iter().enumerate() {
        store.set(
            &format!("debug_server/rank{rank}"),
            format!("http://127.0.0.1:{port}").as_bytes(),
        );
    }
    let done = attach(folder.path(), &[&store.address().to_string(), "--timeout", "300ms"]);
    let said = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{said}{}", text(&done.stderr));
    assert!(said.contains("refuses connections"), "{said}");
    assert!(said.contains("does not answer within"), "{said}");
    assert!(said.contains("its process is gone"), "{said}");
}

#[test]
fn the_page_of_rank_0_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let port = serve(|path| match path {
        "/" => Some(b"<h1>Torch Distributed Debug Server</h1>".to_vec()),
        "/fr_trace_json?backend=gloo" => Some(data("fr.html")),
        "/stacks" => Some(data("stacks.html")),
        _ => None,
    });
    let done = attach(folder.path(), &[&format!("localhost:{port}"), "--json"]);
    assert_names_rank_1(&done);
}

#[test]
fn sockets_of_workers_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let sockets: Vec<PathBuf> = (0..3)
        .map(|rank| {
            let path = folder.path().join(format!("worker_{rank}.sock"));
            let listener = UnixListener::bind(&path).unwrap();
            std::thread::spawn(move || {
                listener
                    .incoming()
                    .flatten()
                    .for_each(|stream| answer(stream, &|path| of_rank(rank, path)));
            });
            path
        })
        .collect();
    let mut options: Vec<&str> = sockets.iter().map(|path| path.to_str().unwrap()).collect();
    options.push("--json");
    assert_names_rank_1(&attach(folder.path(), &options));
}

#[test]
fn a_job_that_makes_calls_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreServer::start().unwrap();
    for rank in 0..2 {
        let looks = std::sync::Mutex::new(0);
        let port = serve(move |path| {
            if !path.contains("gloo") {
                return of_rank(rank, path);
            }
            // The same calls with other numbers, as if four more had been made.
            let mut looks = looks.lock().unwrap();
            *looks += 1;
            let mut dump: Value = serde_json::from_slice(&data("fr_0.json")).unwrap();
            for entry in dump["entries"].as_array_mut().unwrap() {
                entry["collective_seq_id"] =
                    (entry["collective_seq_id"].as_u64().unwrap() + 4 * *looks).into();
            }
            Some(dump.to_string().into_bytes())
        });
        store.set(
            &format!("debug_server/rank{rank}"),
            format!("http://127.0.0.1:{port}").as_bytes(),
        );
    }
    let done = attach(folder.path(), &[&store.address().to_string()]);
    let said = text(&done.stdout);
    assert!(said.contains("The job runs: between two looks ranks 0-1 made 4 calls"), "{said}");
    assert_ne!(done.status.code(), Some(1), "{said}");
}

/// A job that ends while it is watched ends the watch; the files gathered before are kept.
#[test]
fn a_watch_ends_with_its_job_and_keeps_what_it_saw() {
    /// A look asks for the handlers, two recorders and the stacks.
    const QUESTIONS: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let store = StoreServer::start().unwrap();
    for rank in 0..3 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        store.set(&format!("debug_server/rank{rank}"), at.as_bytes());
        std::thread::spawn(move || {
            let two_looks = listener.incoming().flatten().take(2 * QUESTIONS);
            two_looks.for_each(|stream| answer(stream, &|path| of_rank(rank, path)));
        });
    }
    let done = attach(folder.path(), &[&store.address().to_string(), "--json", "--watch", "200ms"]);
    assert_names_rank_1(&done);
    let said = text(&done.stderr);
    assert!(said.contains("no process of the job is there any more"), "{said}");
    let kept = folder.path().join("attached");
    assert!(kept.join("recording/gloo_trace_rank_0.json").is_file());
    assert!(kept.join("report.md").is_file());
}

#[test]
fn what_is_no_job_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let page =
        format!("127.0.0.1:{}", serve(|path| (path == "/").then(|| b"a home page".to_vec())));
    let worker = format!("127.0.0.1:{}", serve(|path| of_rank(0, path)));
    let store = StoreServer::start().unwrap();
    let store = store.address().to_string();
    for (target, about) in [
        (refused.as_str(), "does the job run there?"),
        (page.as_str(), "not PyTorch's debug server"),
        (worker.as_str(), "the debug server of one rank"),
        (store.as_str(), "start_debug_server"),
        ("node-1", "neither HOST:PORT"),
        ("no-such-host.invalid:1", "is not known here"),
    ] {
        let done = attach(folder.path(), &[target]);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(about), "{about:?} is not in {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was gathered");
}

/// Processes that stand for a launcher and three ranks; all of them end with the test.
struct Job(std::process::Child);

impl Job {
    /// Ranks with these variables beside their own.
    fn start(variables: &[(&str, String)]) -> Job {
        let ranks = "for r in 0 1 2; do RANK=$r LOCAL_RANK=$r sleep 600 & done; wait";
        let mut launcher = Command::new("sh");
        launcher.args(["-c", ranks]).process_group(0).envs(variables.iter().map(|(k, v)| (k, v)));
        let job = Job(launcher.spawn().unwrap());
        let until = Instant::now() + Duration::from_secs(20);
        while job.ranks().len() < 3 {
            assert!(Instant::now() < until, "the ranks do not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        job
    }

    /// The processes of ranks, in rank order.
    fn ranks(&self) -> Vec<u32> {
        let own = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
        let is_rank = |pid: &u32| {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.starts_with(b"RANK=") || text(&variables).contains("\0RANK=")
        };
        pids.filter(is_rank).collect()
    }

    fn target(&self) -> String {
        format!("pid:{}", self.0.id())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A program of this name in a folder of its own, and a PATH that begins with it.
fn program(folder: &Path, name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let programs = folder.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    let file = programs.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())
}

/// Prints what the real py-spy printed for the rank of the process that it is asked for.
fn recorded_py_spy(folder: &Path) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/debug-server");
    let rank = "rank=$(tr '\\0' '\\n' < /proc/$4/environ | sed -n 's/^RANK=//p')";
    program(folder, "py-spy", &format!("{rank}\ncat {}/pyspy_$rank.txt", data.display()))
}

fn attach_with(path: &str, folder: &Path, options: &[&str]) -> Output {
    let mut attach = Command::new(binary());
    attach.current_dir(folder).env("PATH", path);
    attach.args(["attach", "--apart", "100ms"]).args(options).output().unwrap()
}

#[test]
fn processes_below_a_launcher_are_asked_by_py_spy() {
    let folder = tempfile::tempdir().unwrap();
    let path = recorded_py_spy(folder.path());
    let job = Job::start(&[]);
    let done = attach_with(&path, folder.path(), &[&job.target(), "--json"]);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert_eq!(report["findings"][0]["culprits"], serde_json::json!([1]), "{report}");
    assert!(report["findings"][0].to_string().contains("train.py:4"), "{report}");
    assert!(report["notes"].to_string().contains("all main threads are where they were"));
    // A stopped rank is told as that, whatever its stack.
    let stopped = job.ranks()[2];
    let stopped = rustix::process::Pid::from_raw(stopped as i32).unwrap();
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    let done = attach_with(&path, folder.path(), &[&job.target(), "--json"]);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(report["notes"].to_string().contains("Rank 2: its process is stopped"), "{report}");
    // Without py-spy there is nothing to say, and how to get it is told.
    let bare = folder.path().join("nothing");
    std::fs::create_dir(&bare).unwrap();
    let done = attach_with(&bare.display().to_string(), folder.path(), &["pid:1:0"]);
    assert!(text(&done.stderr).contains("pip install py-spy"), "{}", text(&done.stderr));
}

/// NCCL's watchdog looks at a pipe of its own and writes the recorder's dump where somebody has written into it.
#[test]
fn dumps_come_through_the_pipes_of_nccls_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let dumps =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("data/flight-recorder-faults/barrier_missing");
    let mut watchdogs = Vec::new();
    for rank in 0..3 {
        let (pipe, dump) = (format!("{}{rank}.pipe", at("pipe_")), at(&format!("dump_{rank}")));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let source = dumps.join(format!("rank_{rank}"));
        // It has the pipe open before anybody writes, as the real one has.
        let looks = format!(
            "exec 3<>{pipe}; echo there; while read line <&3; do cp {} {dump}.part && mv {dump}.part {dump}; done",
            source.display()
        );
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", &looks]).process_group(0).stdout(std::process::Stdio::piped());
        let mut watchdog = Job(watchdog.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(watchdog.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        watchdogs.push(watchdog);
    }
    let job = Job::start(&[
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", at("pipe_")),
        ("TORCH_FR_DUMP_TEMP_FILE", at("dump_")),
    ]);
    let path = recorded_py_spy(folder.path());
    let done = attach_with(&path, folder.path(), &[&job.target(), "--json"]);
    let said = text(&done.stderr);
    let kept = folder.path().join("attached/recording");
    for rank in 0..3 {
        let own = std::fs::read(kept.join(format!("nccl_trace_rank_{rank}")));
        assert_eq!(
            own.unwrap(),
            std::fs::read(dumps.join(format!("rank_{rank}"))).unwrap(),
            "{said}"
        );
    }
    // A pipe that nobody reads is told, and nothing waits for it.
    drop(watchdogs);
    let began = Instant::now();
    let done = attach_with(&path, folder.path(), &[&job.target(), "--timeout", "30s"]);
    assert!(began.elapsed() < Duration::from_secs(25));
    assert!(text(&done.stdout).contains("cannot be written"), "{}", text(&done.stdout));
}

#[test]
fn processes_that_are_no_ranks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let mut other = Command::new("sleep").arg("60").env_clear().spawn().unwrap();
    let job = Job::start(&[]);
    let (gone, none) = (format!("pid:{}", gone.id()), format!("pid:{}", other.id()));
    let again = format!("pid:{}:1", other.id());
    for (targets, about) in [
        (vec![gone.as_str()], "there is no process"),
        (vec![none.as_str()], "was given a rank"),
        (vec![again.as_str(), job.target().as_str()], "are both rank 1"),
        (vec!["pid:x"], "is no process"),
        (vec![none.as_str(), "/tmp/worker_0.sock"], "name one HOST:PORT"),
    ] {
        let done = attach(folder.path(), &targets);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(about), "{about:?} is not in {said}");
    }
    other.kill().unwrap();
    other.wait().unwrap();
}

/// A real job with its debug server, asked through its store and through its page.
#[test]
#[ignore = "needs a Python with torch: LOCKSTEP_PYTHON"]
fn a_real_job_is_asked() {
    let python =
        std::env::var("LOCKSTEP_PYTHON").expect("LOCKSTEP_PYTHON names a Python with torch");
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/debug-server/train.py");
    let ports = "--master-port=29617";
    let mut job = Command::new(python)
        .args(["-m", "torch.distributed.run", "--nproc-per-node=3", ports])
        .arg(script)
        .current_dir(folder.path())
        .spawn()
        .unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
    let mut done = None;
    while std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_secs(5));
        let asked = attach_apart("3s", folder.path(), &["localhost:29617", "--json"]);
        let is_there = asked.status.code() == Some(1);
        done = Some(asked);
        if is_there {
            break;
        }
    }
    let page = attach(folder.path(), &["localhost:25999", "--json", "--timeout", "30s"]);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&job),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    job.wait().unwrap();
    assert_names_rank_1(&done.unwrap());
    assert_names_rank_1(&page);
}
