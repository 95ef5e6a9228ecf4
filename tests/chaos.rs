//! The service under random requests, hang-ups, half-open connections, kills, restarts and a lost list: after
//! every start, each run and upload that it has acknowledged is there and whole.
//!
//! `LOCKSTEP_CHAOS_ROUNDS` and `LOCKSTEP_CHAOS_SEED` say how often, and which.

#[path = "../gpu-exec/tests/host/left_behind.rs"]
#[allow(dead_code)]
mod left_behind;

use left_behind::{Random, from_environment};
use lockstep_core::trace::Trace;
use lockstep_tests::{Service, lockstep};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Some ten seconds of test.
const DEFAULT_ROUNDS: u64 = 60;

/// The runs and uploads that the service has acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// Runs, each with its outcome once that was told.
    runs: BTreeMap<u64, Option<Value>>,
    /// Uploads, each with its bytes as the service has them.
    uploads: BTreeMap<u64, Vec<u8>>,
}

impl Acknowledged {
    fn check(&mut self, service: &Service, round: u64) {
        for (id, known) in &mut self.runs {
            let run = service.get(&format!("api/runs/{id}"));
            assert_eq!(run.status, 200, "round {round}: run {id} is gone");
            let run = run.json();
            match known {
                Some(known) => assert_eq!(run["outcome"], *known, "round {round}: run {id}"),
                None if run["state"] == "ended" => *known = Some(run["outcome"].clone()),
                None => {}
            }
            let bytes = service.get(&format!("api/runs/{id}/trace")).body;
            let trace = Trace::from_bytes(&bytes);
            let trace = trace.unwrap_or_else(|error| panic!("round {round}: run {id}: {error}"));
            assert!(run["state"] != "ended" || trace.end.is_some(), "round {round}: run {id}");
        }
        for (id, bytes) in &self.uploads {
            let kept = service.get(&format!("api/traces/{id}/trace"));
            assert_eq!((kept.status, &kept.body), (200, bytes), "round {round}: upload {id}");
            let findings = service.get(&format!("api/traces/{id}/findings")).json();
            assert_eq!(findings["schema"], "lockstep.findings/1", "round {round}: upload {id}");
        }
    }

    fn run(&mut self, service: &Service, body: &Value) -> Option<u64> {
        let answer = service.post("api/runs", body);
        // Two are in progress.
        if answer.status == 429 {
            return None;
        }
        assert_eq!(answer.status, 201, "{}", answer.error());
        let id = answer.json()["id"].as_u64().unwrap();
        self.runs.insert(id, None);
        Some(id)
    }

    fn upload(&mut self, service: &Service, sample: &[u8], round: u64) {
        let answer = service.post_bytes("api/traces", "application/octet-stream", sample.to_vec());
        assert_eq!(answer.status, 201, "round {round}: {}", answer.error());
        let id = answer.json()["id"].as_u64().unwrap();
        let bytes = service.get(&format!("api/traces/{id}/trace")).body;
        self.uploads.insert(id, bytes);
    }
}

/// Bytes that are no request and no trace.
fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.below(5000)).map(|_| random.below(256) as u8).collect()
}

/// A connection that says some of a request and then nothing more.
fn said(service: &Service, text: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(service.address()).unwrap();
    // The service may have hung up in the middle.
    let _ = stream.write_all(text);
    stream
}

fn upload_head(service: &Service, bytes: usize) -> String {
    format!(
        "POST /api/traces HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: \
         application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n",
        service.address(),
        service.token()
    )
}

#[test]
fn what_was_acknowledged_is_kept_whatever_happens() {
    let seed = from_environment("LOCKSTEP_CHAOS_SEED", 0xC4A0_5EED).max(1);
    let rounds = from_environment("LOCKSTEP_CHAOS_ROUNDS", DEFAULT_ROUNDS);
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let sample = folder.path().join("sample.lks");
    let made = lockstep(["sim", "skipped-all-reduce", "-o", sample.to_str().unwrap()]);
    assert!(made.code <= 1, "{made:?}");
    let sample = std::fs::read(sample).unwrap();
    let long = json!({ "scenario": "skipped-all-reduce", "timeout_ms": 60_000 });
    let short = json!({ "collective": "all_reduce", "world_size": 2, "seed": 1 });
    let mut kept = Acknowledged::default();
    let mut service = Service::start_in(&data);
    let mut open: Vec<TcpStream> = Vec::new();
    let (mut kills, mut lists) = (0, 0);
    for round in 0..rounds {
        match random.below(12) {
            0 | 1 => drop(kept.run(&service, &short)),
            2 => {
                if let Some(id) = kept.run(&service, &long)
                    && random.below(2) == 0
                {
                    let cancelled = service.post(&format!("api/runs/{id}/cancel"), &json!({}));
                    assert!([202, 409].contains(&cancelled.status), "round {round}");
                }
            }
            3 | 4 => kept.upload(&service, &sample, round),
            5 => {
                // Half of an upload, and then gone, or silent.
                let half = &sample[..random.below(sample.len() as u64) as usize];
                let head = upload_head(&service, sample.len());
                let stream = said(&service, &[head.as_bytes(), half].concat());
                if random.below(2) == 0 {
                    open.push(stream);
                }
            }
            6 => {
                // The whole of one, whose answer nobody waits for.
                let head = upload_head(&service, sample.len());
                let stream = said(&service, &[head.as_bytes(), &sample].concat());
                let _ = stream.shutdown(Shutdown::Both);
            }
            7 => {
                for _ in 0..random.below(100) {
                    open.push(said(&service, b"GET /api/runs HTT"));
                }
            }
            8 => {
                let mut stream = said(&service, &noise(&mut random));
                let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
                let _ = stream.read(&mut [0; 100]);
            }
            9 => {
                let bytes = noise(&mut random);
                let answer = service.post_bytes("api/traces", "application/octet-stream", bytes);
                assert_eq!(answer.status, 422, "round {round}");
                assert_ne!(answer.error(), "", "round {round}");
            }
            10 => {
                let stopped = service.stop();
                assert_eq!(stopped, Some(0), "round {round}");
                service = restart(&data, &mut kept, round);
            }
            _ => {
                // In the middle of something, or not.
                let asked =
                    (random.below(2) == 0).then(|| service.post_unheard("api/runs", &short));
                std::thread::sleep(Duration::from_millis(random.below(40)));
                service.crash();
                drop(asked);
                kills += 1;
                if random.below(3) == 0 {
                    lists += 1;
                    for name in ["lockstep.sqlite", "lockstep.sqlite-wal", "lockstep.sqlite-shm"] {
                        let _ = std::fs::remove_file(data.join(name));
                    }
                }
                service = restart(&data, &mut kept, round);
            }
        }
        if open.len() > 200 {
            open.clear();
        }
    }
    service.crash();
    service = restart(&data, &mut kept, rounds);
    assert_eq!(service.stop(), Some(0));
    let (runs, uploads) = (kept.runs.len(), kept.uploads.len());
    println!(
        "{rounds} rounds, seed {seed:#x}: {runs} runs, {uploads} uploads, {kills} kills, {lists} lists"
    );
    assert!(runs > 0 && uploads > 0 && kills > 0, "{runs} runs, {uploads} uploads, {kills} kills");
}

fn restart(data: &Path, kept: &mut Acknowledged, round: u64) -> Service {
    let service = Service::start_in(data);
    kept.check(&service, round);
    service
}
