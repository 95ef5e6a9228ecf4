//! `lockstep watch`: jobs that end, fail and hang keep their exit codes, leave nothing behind, and are diagnosed.
//!
//! A shell script stands for a job. Real gloo jobs of four ranks (`tests/data/watch/train.py`) run by
//! `LOCKSTEP_PYTHON=PYTHON cargo test --test watch -- --ignored`, where that Python has torch 2.9 or newer.

use lockstep_core::trace::Trace;
use lockstep_tests::binary;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
