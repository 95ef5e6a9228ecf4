//! The service over HTTP on loopback: runs, their live events, uploads, refusals, crashes.

use flate2::read::GzDecoder;
use lockstep_core::trace::{Trace, TraceReader};
use lockstep_formats::flight_recorder::Dump;
use lockstep_tests::{Patience, Service, data, lockstep};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use ureq::http::Request;

fn ended(service: &Service, id: u64) -> Value {
    Patience::until("the run to end", || {
        let run = service.get(&format!("api/runs/{id}")).json();
        (run["state"] != "running").then_some(run)
    })
}

fn started(service: &Service, body: &Value) -> u64 {
    let answer = service.post("api/runs", body);
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()["id"].as_u64().unwrap()
}

/// A run that would take a minute if nobody stopped it.
fn hanging() -> Value {
    json!({ "scenario": "skipped-all-reduce", "timeout_ms": 60_000 })
}

#[test]
fn a_run_is_started_followed_listed_and_compared() {
    let service = Service::start();
    let id = started(&service, &json!({ "collective": "all_reduce", "world_size": 3, "seed": 1 }));
    let messages = service.events(id);
    let run = ended(&service, id);
    assert_eq!(run["outcome"], "completed");
    assert_eq!(run["comparison"]["equal"], 3, "{run:#}");
    assert_eq!(run["report"]["verdict"], "healthy");
    let listed = service.get("api/runs").json();
    assert_eq!(listed[0]["id"], id);
    let trace = service.get(&format!("api/runs/{id}/trace")).body;
    assert_eq!(messages.concat(), trace, "the live stream is the trace's bytes");
    // A late watcher gets everything too.
    assert_eq!(service.events(id).concat(), trace);
    let trace = Trace::from_bytes(&trace).unwrap();
    assert_eq!(trace.header.world_size, 3);
    assert!(trace.end.is_some());
    let findings = service.get(&format!("api/runs/{id}/findings")).json();
    assert_eq!(findings["schema"], "lockstep.findings/1");
}

#[test]
fn a_plan_is_run_as_it_is() {
    let service = Service::start();
    let plan = lockstep(["plan", "broadcast", "--world-size", "2", "--root", "1"]).out;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let id = started(&service, &json!({ "plan": plan, "backend": "host" }));
    assert_eq!(ended(&service, id)["outcome"], "completed");
}

#[test]
fn a_hang_ends_by_its_watchdog_with_a_finding() {
    let service = Service::start();
    let id = started(&service, &json!({ "scenario": "skipped-all-reduce", "timeout_ms": 500 }));
    let run = ended(&service, id);
    assert_eq!(run["outcome"], "timed_out");
    assert_eq!(run["report"]["findings"][0]["culprits"][0], 2, "{run:#}");
}

#[test]
fn runs_are_limited_and_can_be_cancelled() {
    let service = Service::start();
    let (first, second) = (started(&service, &hanging()), started(&service, &hanging()));
    let refused = service.post("api/runs", &hanging());
    assert_eq!(refused.status, 429);
    assert!(refused.error().contains("2 runs"), "{}", refused.error());
    let findings = format!("api/runs/{first}/findings");
    assert_eq!(service.get(&findings).status, 200);
    // Reading them is work: not for the page of another site.
    for (name, value) in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        let request = Request::get(format!("{}{findings}", service.url())).header(name, value);
        assert_eq!(service.send(request.body(()).unwrap()).status, 403, "{name}");
    }
    for id in [first, second] {
        assert_eq!(service.post(&format!("api/runs/{id}/cancel"), &json!({})).status, 202);
        assert_eq!(ended(&service, id)["outcome"], "cancelled");
    }
    let again = service.post(&format!("api/runs/{first}/cancel"), &json!({}));
    assert_eq!(again.status, 409);
    // There is room again.
    let third = started(&service, &json!({ "collective": "barrier" }));
    assert_eq!(ended(&service, third)["outcome"], "completed");
}

#[test]
fn a_run_is_renamed_and_deleted() {
    let service = Service::start();
    let send = |method: &str, id: u64, body: &str| {
        let url = format!("{}api/runs/{id}", service.url());
        let request = Request::builder().method(method).uri(url);
        match body {
            "" => service.send(request.body(()).unwrap()),
            body => service.send(request.body(body.to_owned()).unwrap()),
        }
    };
    let id = started(&service, &hanging());
    let renamed = send("PATCH", id, r#"{"name": " the one that hangs "}"#);
    assert_eq!((renamed.status, &renamed.json()["name"]), (200, &json!("the one that hangs")));
    for wrong in [
        "",
        "{}",
        r#"{"name": " "}"#,
        r#"{"name": "a", "state": "ended"}"#,
        "{\"name\": \"a\\nb\"}",
    ] {
        assert_eq!(send("PATCH", id, wrong).status, 400, "{wrong}");
    }
    let early = send("DELETE", id, "");
    assert_eq!(early.status, 409);
    assert!(early.error().contains("in progress"), "{}", early.error());
    assert_eq!(service.post(&format!("api/runs/{id}/cancel"), &json!({})).status, 202);
    assert_eq!(ended(&service, id)["name"], "the one that hangs");
    // The list knows its end a moment before its keeper has left.
    Patience::until("the run to be deleted", || {
        (send("DELETE", id, "").status == 204).then_some(())
    });
    for (method, body) in [("DELETE", ""), ("PATCH", r#"{"name": "a"}"#), ("GET", "")] {
        assert_eq!(send(method, id, body).status, 404, "{method}");
    }
    assert_eq!(service.get("api/runs").json(), json!([]));
}

#[test]
fn a_run_has_faults_is_paused_and_leaves_dumps() {
    let service = Service::start();
    let body = json!({
        "collective": "all_reduce", "world_size": 3, "timeout_ms": 400,
        "faults": ["drop:rank=1,call=1"],
    });
    let id = started(&service, &body);
    let run = ended(&service, id);
    assert_eq!((&run["outcome"], &run["ending"]), (&json!("timed_out"), &json!("failed")));
    assert_eq!(run["report"]["findings"][0]["culprits"], json!([1]), "{run:#}");
    // Without its fault, the plan that was asked for does what it should.
    let asked = service.get(&format!("api/runs/{id}/asked")).json();
    assert_eq!(asked["faults"], body["faults"]);
    let again = started(&service, &json!({ "plan": asked["plan"] }));
    assert_eq!(ended(&service, again)["ending"], "verified");
    assert_eq!(service.get(&format!("api/runs/{again}/asked")).json(), Value::Null);
    let ranks = service.get(&format!("api/runs/{id}/dumps")).json();
    assert!(ranks.as_array().unwrap().len() >= 2, "{ranks}");
    let rank = &ranks[0];
    let dump = service.get(&format!("api/runs/{id}/dumps/{rank}"));
    assert_eq!(dump.status, 200);
    let dump = Dump::read(&format!("nccl_trace_rank_{rank}"), &dump.body).unwrap();
    assert_eq!(dump.entries.len(), 1);
    assert_eq!(service.get(&format!("api/runs/{id}/dumps/77")).status, 404);

    let paused = started(&service, &hanging());
    for (what, stands) in [("pause", true), ("dump", true), ("resume", false)] {
        let answer = service.post(&format!("api/runs/{paused}/{what}"), &json!({}));
        assert_eq!((answer.status, &answer.json()["paused"]), (202, &json!(stands)), "{what}");
        assert_eq!(service.get(&format!("api/runs/{paused}")).json()["paused"], stands, "{what}");
        assert_eq!(service.get("api/runs").json()[0]["paused"], stands, "{what}");
    }
    Patience::until("the dumps of all ranks", || {
        let ranks = service.get(&format!("api/runs/{paused}/dumps")).json();
        (ranks == json!([0, 1, 2, 3])).then_some(())
    });
    assert_eq!(service.post(&format!("api/runs/{paused}/cancel"), &json!({})).status, 202);
    assert_eq!(ended(&service, paused)["ending"], "cancelled");
    assert_eq!(service.post(&format!("api/runs/{paused}/pause"), &json!({})).status, 409);

    let verified = started(&service, &json!({ "collective": "all_reduce", "seed": 1 }));
    assert_eq!(ended(&service, verified)["ending"], "verified");
}

/// A stand-in for a Python with torch: it says a version, and as the recorder it says something and stays. What it has
/// started in a session of its own holds the pipes for longer.
const PYTHON: &str = "#!/bin/sh
if [ \"$1\" = -c ]; then echo 9.9.9; exit; fi
echo \"here in $(basename \"$PWD\"): $(cat train.py)\"
setsid sleep 20 &
echo $$ > \"$LOCKSTEP_TEST_PID\"
exec sleep 60
";

#[test]
fn a_script_is_recorded_by_this_machines_python_until_it_is_cancelled() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (python, pid) = (folder.path().join("python"), folder.path().join("pid"));
    fs::write(&python, PYTHON).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let variables = [
        ("LOCKSTEP_PYTHON", python.to_str().unwrap()),
        ("LOCKSTEP_TEST_PID", pid.to_str().unwrap()),
    ];
    let service = Service::start_marked(std::path::Path::new(""), &variables);
    assert_eq!(service.get("api/records/python").json(), json!({ "torch": "9.9.9" }));
    let asked = |name: &str, world_size: u32| {
        let files = json!([{ "name": name, "text": "main()" }]);
        service.post("api/records", &json!({ "files": files, "world_size": world_size }))
    };
    assert_eq!(asked("../train.py", 2).status, 400);
    let twice = json!([{ "name": "a.py", "text": "" }, { "name": "a.py", "text": "" }]);
    let twice = service.post("api/records", &json!({ "files": twice, "world_size": 2 }));
    assert_eq!(twice.status, 400, "{}", String::from_utf8_lossy(&twice.body));
    assert_eq!(asked("train.py", 0).status, 400);
    let begun = asked("train.py", 2);
    assert_eq!(begun.status, 201, "{}", String::from_utf8_lossy(&begun.body));
    let id = begun.json()["id"].as_u64().unwrap();
    let record = || service.get(&format!("api/records/{id}")).json();
    Patience::until("its output", || {
        let said = record()["output"].as_str()?.contains("here in script: main()");
        said.then_some(())
    });
    assert_eq!(asked("train.py", 2).status, 409, "one at a time");
    let started: u32 =
        Patience::until("its process", || fs::read_to_string(&pid).ok()?.trim().parse().ok());
    assert_eq!(service.post(&format!("api/records/{id}/cancel"), &json!({})).status, 202);
    let told = Patience::until("its end", || Some(record()).filter(|told| told["ended"] == true));
    assert_eq!((&told["has_plan"], &told["cut"]), (&json!(false), &json!("it was stopped")));
    assert_eq!(service.get("api/records").json()[0]["id"], id);
    assert_eq!(service.get(&format!("api/records/{id}/plan")).status, 404);
    Patience::until("nothing to be left", || {
        (!std::path::Path::new(&format!("/proc/{started}")).exists()).then_some(())
    });
}

#[test]
fn what_is_wrong_is_refused_in_a_sentence() {
    let service = Service::start();
    let run = |body: Value| service.post("api/runs", &body);
    let plan = lockstep(["plan", "broadcast", "--world-size", "2"]).out;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let text = |body: &[u8]| service.post_bytes("api/runs", "application/json", body.to_vec());
    let answers = [
        (run(json!({ "collective": "all_reduce", "world_size": 0 })), 400, "world_size is 0"),
        (run(json!({ "collective": "broadcast", "root": 4 })), 400, "root 4"),
        (run(json!({ "collective": "all_reduce", "world_size": 65 })), 400, "at most 64"),
        (run(json!({ "collective": "nothing" })), 400, "nothing"),
        (run(json!({ "collective": "all_reduce", "timeout_ms": 0 })), 400, "timeout_ms is 0"),
        (run(json!({})), 400, "plan, scenario and collective"),
        (run(json!([])), 400, "object"),
        (run(json!({ "collective": "all_reduce", "wrold_size": 8 })), 400, "mean world_size?"),
        (run(json!({ "collective": "barrier", "schedule": "x" })), 400, "it may have plan,"),
        (run(json!({ "plan": plan, "world_size": 8 })), 400, "--world-size 8 is for names"),
        (run(json!({ "plan": plan, "repaired": true })), 400, "--repaired is for names"),
        (run(json!({ "plan": plan, "root": 3 })), 400, "root is for collectives"),
        (run(json!({ "collective": "barrier", "faults": ["melt:rank=1,call=1"] })), 400, "no such"),
        (run(json!({ "collective": "barrier", "faults": ["kill:rank=9,call=1"] })), 400, "0 to 3"),
        (run(json!({ "plan": { "schema": "lockstep.plan/9" } })), 400, "lockstep.plan/9"),
        (run(json!({ "collective": "barrier", "backend": "nccl" })), 409, "nccl"),
        (run(json!({ "collective": "barrier", "backend": "x" })), 400, "x"),
        (
            run(json!({ "collective": "barrier", "world_size": 4.0 })),
            400,
            "world_size cannot be 4.0",
        ),
        (
            run(json!({ "collective": "barrier", "record_messages": 1 })),
            400,
            "record_messages cannot",
        ),
        (run(json!({ "plan": { "schema": "lockstep.plan/2", "name": 7 } })), 400, "plan: "),
        (service.post_bytes("api/runs", "text/plain", b"{}".to_vec()), 415, "application/json"),
        (service.get("api/runs/1/dumps/x"), 400, "x"),
        (service.get("api/runs/1/events"), 400, "pgrade"),
        (text(b"{\"collective"), 400, "JSON"),
        (text(&[b'['; 100_000]), 400, "JSON"),
        (service.get("api/runs/1"), 404, "no run 1"),
        (service.get("api/runs/x"), 404, "no run x"),
        (service.get("api/runs/-1/trace"), 404, "no run"),
        (service.get("api/traces/99999999999999999999"), 404, "no trace"),
        (service.get("api/nothing"), 404, "api/nothing"),
        (service.get("../etc/passwd"), 404, ""),
        (service.post("api/version", &json!({})), 405, "POST"),
        (service.post_bytes("api/traces", "application/octet-stream", vec![]), 422, "empty"),
        (service.post_bytes("api/traces", "text/plain", b"LKSTRCE\x09".to_vec()), 422, "version"),
        (service.post_bytes("api/traces", "multipart/form-data", vec![1]), 400, "boundary"),
    ];
    for (answer, status, about) in answers {
        assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&answer.body));
        assert!(answer.error().contains(about), "{about:?} is not in {:?}", answer.error());
    }
    assert_eq!(service.get("api/runs").json(), json!([]), "nothing refused is listed");
}

/// The most memory that a process has had, in bytes.
fn peak_memory(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Four plans of 12 MiB at once, each of which is refused: they are parsed one after the other, and never
/// held twice.
#[test]
fn large_plans_take_memory_one_at_a_time() {
    let service = Service::start();
    let plan = lockstep(["plan", "broadcast", "--world-size", "2"]).out;
    let mut plan: Value = serde_json::from_str(&plan).unwrap();
    let operation = plan["programs"][0]["ops"][0].clone();
    let copies = (12 << 20) / operation.to_string().len();
    // Every rank of a group has one program: what is wrong is found at the end.
    plan["programs"][0]["ops"] = Value::from(vec![operation; copies]);
    plan["program_of"] = json!([0, 9]);
    let body = json!({ "plan": plan }).to_string().into_bytes();
    let before = peak_memory(service.pid());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let answer = service.post_bytes("api/runs", "application/json", body.clone());
                assert_eq!(answer.status, 400, "{}", answer.error());
            });
        }
    });
    let taken = peak_memory(service.pid()) - before;
    assert!(taken < 10 * body.len(), "{taken} bytes for four bodies of {}", body.len());
}

#[test]
fn nothing_of_the_api_is_told_without_the_token() {
    let service = Service::start();
    let id = started(&service, &json!({ "collective": "barrier" }));
    ended(&service, id);
    let paths =
        ["version", "scenarios", "runs", "runs/1", "runs/1/trace", "runs/9", "traces", "nothing"];
    for path in paths {
        let url = format!("{}api/{path}", service.url());
        for token in [None, Some(""), Some("Bearer "), Some("Bearer 00"), Some(service.token())] {
            let mut request = Request::get(&url);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let answer = service.send_as_it_is(request.body(()).unwrap());
            assert_eq!(answer.status, 401, "{path} {token:?}");
            assert!(answer.error().contains("lockstep data token"), "{}", answer.error());
        }
    }
    let cancel = Request::post(format!("{}api/runs/{id}/cancel", service.url()));
    assert_eq!(service.send_as_it_is(cancel.body("{}").unwrap()).status, 401);
    // The page itself is no secret.
    let page = Request::get(service.url()).body(()).unwrap();
    assert_eq!(service.send_as_it_is(page).status, 200);
    // A WebSocket hears nothing before it has said it.
    for word in ["wrong", ""] {
        let url = format!("ws://{}/api/runs/{id}/events", service.address());
        let stream = std::net::TcpStream::connect(service.address()).unwrap();
        let (mut socket, _) = tungstenite::client(url, stream).unwrap();
        socket.send(tungstenite::Message::text(word)).unwrap();
        let tungstenite::Message::Close(Some(close)) = socket.read().unwrap() else { panic!() };
        assert_eq!(u16::from(close.code), 1008);
    }
    let folder = service.folder().unwrap().to_str().unwrap();
    assert_eq!(lockstep(["data", "token", "--data-dir", folder]).out.trim(), service.token());
    let open = lockstep(["serve", "--port", "0", "--host", "0.0.0.0", "--no-token"]);
    assert!(open.code == 2 && open.err.contains("loopback alone"), "{open:?}");
}

#[test]
fn other_names_and_other_sites_are_refused() {
    let service = Service::start();
    let url = format!("{}api/runs", service.url());
    let evil = Request::get(&url).header("host", "evil.example").body(()).unwrap();
    assert_eq!(service.send(evil).status, 403);
    let foreign = Request::post(&url).header("origin", "http://evil.example");
    let foreign = foreign.header("content-type", "text/plain").body("{}").unwrap();
    assert_eq!(service.send(foreign).status, 403);
    let socket = format!("ws://{}/api/runs/1/events", service.address());
    let request = tungstenite::http::Request::get(socket)
        .header("host", service.address())
        .header("origin", "http://evil.example")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", tungstenite::handshake::client::generate_key())
        .body(())
        .unwrap();
    let stream = std::net::TcpStream::connect(service.address()).unwrap();
    let refused = tungstenite::client(request, stream).unwrap_err().to_string();
    assert!(refused.contains("403"), "{refused}");
}

#[test]
fn dumps_are_uploaded_diagnosed_and_kept() {
    let service = Service::start();
    let boundary = "lockstep-boundary";
    let mut body = Vec::new();
    for rank in 0..4 {
        let dump =
            fs::read(data("flight-recorder/t215_type_mismatch").join(format!("rank_{rank}")));
        body.extend(
            format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"files\"; \
             filename=\"rank_{rank}\"\r\n\r\n"
            )
            .into_bytes(),
        );
        body.extend(dump.unwrap());
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").into_bytes());
    let kind = format!("multipart/form-data; boundary={boundary}");
    let answer = service.post_bytes("api/traces", &kind, body);
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    let id = answer.json()["id"].as_u64().unwrap();
    let findings = service.get(&format!("api/traces/{id}/findings")).json();
    assert_eq!(findings["findings"][0]["culprits"], json!([1]), "{findings:#}");
    let trace = service.get(&format!("api/traces/{id}/trace")).body;
    assert_eq!(Trace::from_bytes(&trace).unwrap().header.world_size, 4);
    assert_eq!(service.get("api/traces").json()[0]["id"], id);
    assert_eq!(service.get(&format!("api/traces/{id}")).json()["world_size"], 4);
    fs::remove_file(service.folder().unwrap().join(format!("traces/{id}.lks"))).unwrap();
    let gone = service.get(&format!("api/traces/{id}/trace"));
    assert_eq!(gone.status, 410);
    assert!(gone.error().contains("removed"), "{}", gone.error());
}

#[test]
fn after_a_crash_runs_are_interrupted_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start_in(folder.path());
    let done = started(&service, &json!({ "collective": "barrier" }));
    ended(&service, done);
    let cut = started(&service, &hanging());
    Patience::until("events", || {
        let trace = service.get(&format!("api/runs/{cut}/trace")).body;
        let mut reader = TraceReader::new();
        (!reader.push(&trace).unwrap().is_empty()).then_some(())
    });
    service.crash();
    let service = Service::start_in(folder.path());
    let runs = service.get("api/runs").json();
    assert_eq!(runs[0]["state"], "interrupted");
    assert_eq!(runs[1]["state"], "ended");
    let bytes = service.get(&format!("api/runs/{cut}/trace")).body;
    assert_eq!(service.events(cut).concat(), bytes);
    let trace = Trace::from_bytes(&bytes).unwrap();
    assert!(trace.end.is_none() && !trace.events.is_empty());
}

/// The trace's file takes only so much: the run ends and says why, and the written part stays readable.
#[test]
fn a_run_on_a_full_disk_ends_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start_on_full_disk(folder.path(), 512);
    let plan = lockstep(["plan", "broadcast", "--world-size", "2"]).out;
    let mut plan: Value = serde_json::from_str(&plan).unwrap();
    let operation = plan["programs"][0]["ops"][0].clone();
    plan["programs"][0]["ops"] = Value::from(vec![operation; 10_000]);
    let id = started(&service, &json!({ "plan": plan }));
    let run = ended(&service, id);
    let why = run["outcome"]["failed"]["why"].as_str().unwrap_or_default();
    assert!(why.contains("could not be written"), "{run:#}");
    assert_eq!(run["ending"], "failed");
    let bytes = service.get(&format!("api/runs/{id}/trace")).body;
    let trace = Trace::from_bytes(&bytes).unwrap();
    assert!(!trace.events.is_empty());
    service.crash();
    // With room again it is as it was told.
    let service = Service::start_in(folder.path());
    assert_eq!(service.get(&format!("api/runs/{id}")).json()["outcome"], run["outcome"]);
}

#[test]
fn it_stops_on_a_signal_and_ends_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start_in(folder.path());
    let id = started(&service, &hanging());
    let ranks = children(service.pid());
    assert_eq!(ranks.len(), 4, "a process per rank");
    assert_eq!(service.stop(), Some(0));
    for pid in ranks {
        Patience::until("the ranks to be gone", || {
            (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
    }
    let service = Service::start_in(folder.path());
    assert_eq!(service.get(&format!("api/runs/{id}")).json()["outcome"], "cancelled");
}

/// The child processes of a process, from `/proc`.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The fields after the name, which is in brackets: state, then the parent.
        let ppid = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()?;
        (ppid == parent).then_some(pid)
    });
    processes.collect()
}

#[test]
fn a_busy_port_and_a_busy_folder_are_said_in_a_sentence() {
    let service = Service::start();
    let port = service.address().rsplit_once(':').unwrap().1;
    let busy = lockstep(["serve", "--port", port]);
    assert_eq!(busy.code, 2);
    assert!(busy.err.contains("in use") && busy.err.contains("--port"), "{busy:?}");
    assert_eq!(busy.err.lines().count(), 1);
    let folder = service.folder().unwrap().to_str().unwrap();
    let busy = lockstep(["serve", "--port", "0", "--data-dir", folder]);
    assert_eq!(busy.code, 2);
    assert!(busy.err.contains("--data-dir"), "{busy:?}");
}

/// The bytes of a file of the page, which is the same in every coding, and may be kept for ever.
fn asset(service: &Service, path: &str) -> Vec<u8> {
    let sent = |codings: &str| {
        let request = Request::get(format!("{}{path}", service.url()));
        service.send(request.header("accept-encoding", codings).body(()).unwrap())
    };
    let plain = sent("identity");
    assert_eq!(plain.status, 200, "{path}");
    assert_eq!(plain.headers["cache-control"], "public, max-age=31536000, immutable", "{path}");
    assert_eq!(plain.headers["vary"], "accept-encoding", "{path}");
    let content_type = match path.rsplit_once('.') {
        Some((_, "wasm")) => "application/wasm",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    };
    assert_eq!(plain.content_type, content_type, "{path}");
    // ureq unpacks neither, as it is built here.
    let (gzip, brotli) = (sent("gzip"), sent("gzip, deflate, br, zstd"));
    if plain.body.len() >= 1024 {
        assert_eq!(gzip.headers["content-encoding"], "gzip", "{path}");
        assert_eq!(brotli.headers["content-encoding"], "br", "{path}");
        let mut unpacked = Vec::new();
        GzDecoder::new(gzip.body.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == plain.body, "{path}");
        let mut unpacked = Vec::new();
        brotli::Decompressor::new(brotli.body.as_slice(), 4096).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == plain.body, "{path}");
        assert!(brotli.body.len() < gzip.body.len(), "{path}");
    }
    let etag = plain.headers["etag"].to_str().unwrap();
    let again = Request::get(format!("{}{path}", service.url())).header("if-none-match", etag);
    assert_eq!(service.send(again.body(()).unwrap()).status, 304, "{path}");
    plain.body
}

#[test]
fn the_page_is_served_as_browsers_need_it() {
    let service = Service::start();
    let page = service.get("");
    assert_eq!(page.status, 200);
    assert!(page.content_type.starts_with("text/html"));
    assert_eq!(page.headers["cache-control"], "no-cache");
    // Every file that the page names, and every one that these name: three modules with their scripts.
    let mut texts = vec![(String::new(), page.body)];
    let mut seen = BTreeSet::new();
    while let Some((folder, text)) = texts.pop() {
        let text = String::from_utf8_lossy(&text).into_owned();
        let quoted = text.split(['"', '\'']).map(|quoted| quoted.trim_start_matches("./"));
        let is_asset = |name: &&str| {
            let asset = name.strip_prefix("assets/").or((!folder.is_empty()).then_some(*name));
            let ending = name.rsplit_once('.').map(|(_, ending)| ending);
            asset.is_some_and(|name| name.contains('-') && !name.contains(['/', ' ']))
                && matches!(ending, Some("js" | "css" | "svg" | "wasm"))
        };
        for name in quoted.filter(is_asset) {
            let path = format!("{folder}{name}");
            if !seen.insert(path.clone()) {
                continue;
            }
            let plain = asset(&service, &path);
            if !path.ends_with(".wasm") {
                texts.push(("assets/".to_owned(), plain));
            }
        }
    }
    let modules = seen.iter().filter(|path| path.ends_with(".wasm")).count();
    assert_eq!(modules, 3, "{seen:?}: was the binary built without the page? cargo xtask test");
    let version = service.get("api/version").json();
    assert_eq!(version["backends"][0]["name"], "host");
    assert_eq!(version["backends"][0]["available"], true);
    assert!(service.get("api/scenarios").json().as_array().unwrap().len() >= 3);
}

#[test]
fn what_is_made_in_the_data_folder_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for what in ["check", "rebuild"] {
        assert_eq!(lockstep(["data", what, "--data-dir", data.to_str().unwrap()]).code, 0);
        for entry in std::fs::read_dir(&data).unwrap().flatten() {
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{} after {what}", entry.path().display());
        }
    }
}
