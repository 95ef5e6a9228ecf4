use super::*;
use crate::frames::{short_frame, user_frame};
use lockstep_core::group::BackendName;
use lockstep_core::trace::{CallLog, CallState, Origin, RankLog};
use std::path::{Path, PathBuf};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/flight-recorder")
}

/// The files of a case: `rank_N`, or `json/rank_N.json`.
fn files(case: &str, form: Form) -> Vec<(String, Vec<u8>)> {
    let folder = match form {
        Form::Pickle => cases().join(case),
        Form::Json => cases().join(case).join("json"),
    };
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.is_file())
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn all_cases() -> Vec<String> {
    let folders = std::fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn recording(case: &str, form: Form) -> Recording {
    let files = files(case, form);
    read_files(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))).unwrap()
}

fn members(case: &str) -> Vec<(String, Vec<u32>)> {
    let trace = recording(case, Form::Pickle).merged;
    let ranks =
        |group: &lockstep_core::group::ProcessGroup| group.ranks().iter().map(|r| r.0).collect();
    trace.header.groups.iter().map(|group| (group.label().to_owned(), ranks(group))).collect()
}

#[test]
fn a_real_dump_reads() {
    let trace = recording("t215_healthy", Form::Pickle).merged;
    let header = &trace.header;
    assert_eq!(header.world_size, 4);
    let Origin::Recorded { by, files } = &header.origin else { panic!("{:?}", header.origin) };
    assert_eq!(by, "PyTorch Flight Recorder 2.10");
    assert_eq!(files.len(), 4);
    assert_eq!(header.epoch_ns, 1_795_195_647_876_811_461);
    let log = &trace.log;
    let rank_0 = log.ranks[0].as_ref().unwrap();
    assert_eq!(rank_0.calls.len(), 15);
    let first = &rank_0.calls[0];
    assert_eq!((first.call.op.as_str(), first.seq), ("all_reduce", Some(1)));
    assert_eq!(first.call.inputs[0].shape, [1024]);
    assert_eq!(short_frame(user_frame(&first.call.stack).unwrap()), "job.py:63");
    assert!(rank_0.calls.iter().all(|call| call.state == CallState::Completed));
    assert!(rank_0.calls.iter().all(|call| call.completed_ps.unwrap() >= call.scheduled_ps));
}

/// gloo does not list the members of groups: they are worked out.
#[test]
fn members_are_worked_out() {
    let world = ("default_pg".to_owned(), vec![0, 1, 2, 3]);
    let group = |name: &str, ranks: &[u32]| (name.to_owned(), ranks.to_vec());
    for case in ["t215_healthy", "t291_healthy"] {
        let wanted = [world.clone(), group("dp_even", &[0, 2]), group("dp_odd", &[1, 3])];
        assert_eq!(members(case), wanted);
    }
    // Rank 2 never called tp, rank 1 never called pp.
    let wanted = [world.clone(), group("tp", &[0, 1, 2]), group("pp", &[1, 2, 3])];
    assert_eq!(members("t215_cross_group_deadlock"), wanted);
    let wanted = [world.clone(), group("tp0", &[0, 1]), group("tp1", &[2, 3])];
    assert_eq!(members("t215_two_subgroups_one_hung"), wanted);
    // Rank 2 left no dump.
    assert_eq!(members("t215_rank_crash_no_dump"), [world]);
}

#[test]
fn json_says_the_same_without_stacks() {
    // The straggler's job ran on between its two dumps.
    for case in all_cases().into_iter().filter(|case| !case.contains("straggler")) {
        let mut pickles = recording(&case, Form::Pickle).merged.trace();
        let mut json = recording(&case, Form::Json).merged.trace();
        for trace in [&mut pickles, &mut json] {
            if let Origin::Recorded { files, .. } = &mut trace.header.origin {
                files.clear();
            }
            for event in &mut trace.events {
                if let lockstep_core::trace::What::Scheduled { call, .. } = &mut event.what {
                    std::sync::Arc::make_mut(call).stack.clear();
                }
            }
        }
        assert!(pickles == json, "{case}");
    }
}

/// A dump that is read, written and read again is the same.
#[test]
fn real_dumps_are_written_as_they_were_read() {
    for case in all_cases() {
        for (name, bytes) in files(&case, Form::Pickle) {
            let read = Dump::read(&name, &bytes).unwrap();
            let again = read.to_pickle();
            assert_eq!(
                Dump { bytes: 0, ..Dump::read(&name, &again).unwrap() },
                Dump { bytes: 0, ..read }
            );
            // About as long as PyTorch's own, which does not remember what is used once.
            assert!(again.len() < bytes.len() * 21 / 20, "{case} {name}: {}", again.len());
        }
        for (name, bytes) in files(&case, Form::Json) {
            let read = Dump::read(&name, &bytes).unwrap();
            let again = Dump::read(&name, read.to_json().as_bytes()).unwrap();
            assert_eq!(Dump { bytes: 0, ..again }, Dump { bytes: 0, ..read });
        }
    }
}

#[test]
fn pickles_go_before_json_and_the_rest_is_reported() {
    let mut files: Vec<_> = files("t215_healthy", Form::Json);
    files.extend(self::files("t215_healthy", Form::Pickle));
    files.push(("notes.txt".into(), b"$ torchfrtrace".to_vec()));
    files.push(("rank_9".into(), Vec::new()));
    let read = read_files(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
    let read = read.unwrap();
    assert_eq!(read.merged, recording("t215_healthy", Form::Pickle).merged);
    let problems: Vec<_> = read.problems.iter().map(|problem| problem.file_name.as_str()).collect();
    let wanted =
        ["notes.txt", "rank_0.json", "rank_1.json", "rank_2.json", "rank_3.json", "rank_9"];
    assert_eq!(problems, wanted);
    let texts: Vec<_> = read.problems.iter().map(|problem| problem.why.as_str()).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn cut_off_dumps_are_refused_at_every_byte() {
    let files = files("t291_healthy", Form::Pickle);
    let (name, bytes) = &files[0];
    for end in 0..bytes.len() {
        let error = Dump::read(name, &bytes[..end]).unwrap_err();
        assert!(error.to_string().contains("opy the"), "{end}: {error}");
    }
    let files = self::files("t291_healthy", Form::Json);
    let (name, bytes) = &files[0];
    for end in (0..bytes.len() - 1).step_by(7) {
        assert!(Dump::read(name, &bytes[..end]).is_err(), "{end}");
    }
}

#[test]
fn other_shapes_of_files() {
    // torch 2.2: a bare list; a pickled list of one dict.
    let old =
        br#"[{"pg_id": 0, "seq_id": 3, "profiling_name": "nccl:all_reduce", "time_created_us": 5,
        "input_sizes": [[4]], "output_sizes": [[4]], "state": "started", "retired": false}]"#;
    let dump = Dump::read("rank_1", old).unwrap();
    assert_eq!(dump.version, None);
    let entry = &dump.entries[0];
    assert_eq!((entry.created_ns, entry.collective_seq, entry.completed), (5000, Some(3), false));
    // NCCL lists members and says who a message is for.
    let nccl = br#"{"version": "2.9", "pg_config": {"7": {"name": "7", "desc": "pp", "ranks": "[1, 5]"}},
        "entries": [{"pg_id": 4, "process_group": ["7", "pp"], "collective_seq_id": 0, "p2p_seq_id": 2,
        "profiling_name": "nccl:send 0->1", "time_created_ns": 5, "input_sizes": [[4]],
        "input_dtypes": ["BFloat16"], "state": "scheduled", "is_p2p": true, "timeout_ms": 600000}]}"#;
    let dump = Dump::read("rank_1", nccl).unwrap();
    let trace = trace_of(vec![dump]).unwrap();
    let group = &trace.header.groups[1];
    assert_eq!((group.name(), group.desc(), group.size()), ("7", "pp", 2));
    assert_eq!(group.backend(), BackendName::Nccl);
    assert_eq!(trace.header.world_size, 6);
    let log = CallLog::of(&trace);
    let record = &log.ranks[1].as_ref().unwrap().calls[0];
    let call = &record.call;
    assert_eq!((call.op.as_str(), record.seq, call.p2p), ("send", Some(2), true));
    assert_eq!(call.peer, Some(lockstep_core::rank::GroupRank(1)));
}

#[test]
fn what_is_no_dump_says_so() {
    for (bytes, text) in [
        (&b"{\"a\": 1}"[..], "neither version nor entries"),
        (b"{\"version\": \"2.9\", \"entries\": [{}]}", "no profiling_name"),
        (b"{\"version\": ", "cut off"),
        (b"\x80\x02K\x01.", "holds an integer, not a dict of entries"),
        (b"\x80\x02}.", "neither version nor entries"),
        (b"\x80\x02cos\nsystem\n.", "GLOBAL at byte 2, which would run code"),
        (b"hello", "tells nothing of the job"),
    ] {
        let error = Dump::read("rank_0", bytes).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("rank_0"), "{error}");
    }
}

/// Entries that all point at one long list must not multiply it.
#[test]
fn repetition_is_bounded() {
    let mut bytes = b"\x80\x02}(X\x07\x00\x00\x00entries](}(X\x0b\x00\x00\x00input_sizes(".to_vec();
    bytes.extend(b"](".to_vec());
    bytes.extend(b"K\x01".repeat(10_000));
    bytes.extend(b"eq\x00l".to_vec());
    bytes.extend(b"X\x0e\x00\x00\x00profiling_nameX\x01\x00\x00\x00aq\x01uq\x02".to_vec());
    bytes.extend(b"h\x02".repeat(10_000));
    bytes.extend(b"eu.");
    let error = Dump::read("rank_0", &bytes).unwrap_err().to_string();
    assert!(error.contains("repeats itself"), "{error}");
}

proptest::proptest! {
    #[test]
    fn damaged_dumps_never_panic(at in 0usize..20_000, value: u8, more in 0usize..20_000, other: u8) {
        let files = files("t215_cross_group_deadlock", Form::Pickle);
        let mut files: Vec<_> = files.into_iter().collect();
        let bytes = &mut files[1].1;
        let length = bytes.len();
        bytes[at % length] = value;
        bytes[more % length] = other;
        let read = read_files(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
        let merged = read.unwrap().merged;
        // A recording's trace has only the calls that are kept.
        let mut log = CallLog::of(&merged.trace());
        for (own, merged) in log.ranks.iter_mut().zip(&merged.log.ranks) {
            if let (Some(own), Some(merged)) = (own, merged) {
                *own = RankLog { calls: std::mem::take(&mut own.calls), ..merged.clone() };
            }
        }
        proptest::prop_assert_eq!(log, merged.log);
    }
}
