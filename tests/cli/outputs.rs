//! Files that commands write: nothing is replaced that its user may still need.

use super::{assert_refused, json};
use lockstep_tests::lockstep;

fn case(name: &str) -> String {
    format!("{}/data/flight-recorder/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_file_of_another_kind_is_replaced_only_when_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plan, notes, trace) = (path("plan.json"), path("notes.json"), path("trace.lks"));
    assert_eq!(lockstep(["plan", "all_reduce", "-o", &plan]).code, 0);
    assert_eq!(lockstep(["plan", "broadcast", "-o", &plan]).code, 0);
    std::fs::write(&notes, "what I found").unwrap();
    let outputs: [&[&str]; 5] = [
        &["plan", "all_reduce"],
        &["sim", "all_reduce"],
        &["run", "all_reduce"],
        &["explore", "opposite-group-order"],
        &["export", "all_reduce", "--goal"],
    ];
    for command in outputs {
        let arguments = || command.iter().copied().chain(["-o", notes.as_str()]);
        assert_refused(&lockstep(arguments()), "--force");
        assert_eq!(std::fs::read_to_string(&notes).unwrap(), "what I found", "{command:?}");
    }
    assert_refused(&lockstep(["sim", &plan, "-o", &plan]), "is what is read");
    assert_refused(&lockstep(["sim", &plan, "-o", &plan, "--force"]), "is what is read");
    assert_eq!(lockstep(["sim", &plan, "-o", &trace]).code, 0);
    assert_eq!(lockstep(["sim", &plan, "-o", &trace]).code, 0);
    assert_eq!(lockstep(["sim", &plan, "-o", &notes, "--force"]).code, 0);
    assert!(std::fs::read_to_string(&notes).unwrap().contains("lockstep.trace/"));
    // Nothing half written is left beside them.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn dumps_of_a_real_job_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let files = std::fs::read_dir(case("t215_healthy")).unwrap().flatten();
    let dump = files.map(|it| it.path()).find(|path| path.is_file()).unwrap();
    let kept = folder.path().join("nccl_trace_rank_1");
    std::fs::copy(&dump, &kept).unwrap();
    let into = folder.path().to_str().unwrap();
    for command in [
        &["run", "all_reduce", "--world-size", "2", "--dump-dir", into][..],
        &["export", "all_reduce", "--flight-recorder", "-o", into],
    ] {
        assert_refused(&lockstep(command.iter().copied()), "has not written");
        assert_eq!(std::fs::read(&kept).unwrap(), std::fs::read(&dump).unwrap());
    }
    // What it has written itself it replaces.
    std::fs::remove_file(&kept).unwrap();
    for _ in 0..2 {
        assert_eq!(lockstep(["export", "all_reduce", "--flight-recorder", "-o", into]).code, 0);
    }
}

/// Exports for other tools replace what Lockstep has written, and nothing else.
#[test]
fn what_other_tools_wrote_stays_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let perfetto = ["export", "--perfetto", "all_reduce", "-o"];
    let with = |words: [&'static str; 4], out: &str| -> Vec<String> {
        words.into_iter().map(str::to_owned).chain([out.to_owned()]).collect()
    };
    let trace = path("job.pftrace");
    for _ in 0..2 {
        assert_eq!(lockstep(with(perfetto, &trace)).code, 0);
    }
    // The beginning of a trace of Perfetto's own tools.
    std::fs::write(&trace, b"\x0a\x24\x1a\x22").unwrap();
    assert_refused(&lockstep(with(perfetto, &trace)), "--force");
    assert_eq!(std::fs::read(&trace).unwrap(), b"\x0a\x24\x1a\x22");
    for (form, file) in [("--kineto", "rank-1.pt.trace.json"), ("--chakra", "job.1.et")] {
        let words = ["export", form, "all_reduce", "-o"];
        let out = path(form);
        for _ in 0..2 {
            assert_eq!(lockstep(with(words, &out)).code, 0);
        }
        let theirs = format!("{out}/{file}");
        std::fs::write(&theirs, "{ \"traceEvents\": [] }").unwrap();
        assert_refused(&lockstep(with(words, &out)), "--force");
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "{ \"traceEvents\": [] }");
        assert_eq!(lockstep(["export", form, "all_reduce"]).code, 2);
    }
}

#[test]
fn a_report_is_written_for_an_issue_and_as_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let dumps = case("t215_skip_allreduce_diff_size");
    let (markdown, page) = (path("report.md"), path("report.html"));
    let plain = lockstep(["diagnose", &dumps]);
    for file in [&markdown, &page] {
        let written = lockstep(["diagnose", &dumps, "--report", file]);
        assert_eq!((written.code, &written.out), (1, &plain.out));
    }
    let markdown = std::fs::read_to_string(markdown).unwrap();
    assert!(markdown.contains("| ➜ | **all_reduce \\#7 of default_pg**"), "{markdown}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<td>➜</td>") && !page.contains("<script"), "{page}");
    let refused = lockstep(["diagnose", &dumps, "--report", &path("report.txt")]);
    assert!(refused.code == 2 && refused.err.contains("ends in .md"), "{refused:?}");
    let file = json(&lockstep(["diagnose", &dumps, "--json"]));
    assert_eq!(file["findings"][0]["ladder"]["sides"][1]["culprits"], true);
}

#[test]
fn a_byte_order_mark_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let program = "def main():\n    dist.init_process_group('gloo')\n    dist.barrier()\nrun(main, world_size=2)\n";
    let plan = lockstep(["plan", "all_reduce"]).out;
    for (name, text) in [("p.py", program), ("plan.json", &plan)] {
        std::fs::write(path(name), format!("\u{feff}{text}")).unwrap();
        let simulated = lockstep(["sim", &path(name)]);
        assert_eq!(simulated.code, 0, "{name}: {simulated:?}");
    }
}

#[test]
fn nothing_in_a_file_acts_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("evil.py");
    let program = "def main():\n    raise ValueError('a\\x1b[2Jb')\nrun(main, world_size=2)\n";
    std::fs::write(&path, program).unwrap();
    let said = lockstep(["sim", path.to_str().unwrap()]);
    assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "{said:?}");
    assert!(said.out.contains("\\u001b[2J"), "{said:?}");
}
