use super::*;
use crate::recording::{Piece, Sources};
use std::path::Path;

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/stacks");
    std::fs::read(folder.join(name)).unwrap()
}

fn stacks(name: &str) -> Vec<ProcessStacks> {
    read(name, &file(name)).unwrap()
}

fn of_text(text: &str) -> Vec<ProcessStacks> {
    read("job.log", text.as_bytes()).unwrap()
}

/// `load_batch (hang.py:10)` of the process's main thread.
fn place(process: &ProcessStacks) -> String {
    let frame = process.main_thread().unwrap().user_frame().unwrap();
    format!("{} ({})", frame.function, crate::frames::short_frame(frame))
}

fn frames(thread: &ThreadStack) -> Vec<(&str, u32)> {
    thread.frames.iter().map(|frame| (frame.function.as_str(), frame.line)).collect()
}

fn notes<'a>(files: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Vec<String> {
    let mut sources = Sources::default();
    files.into_iter().for_each(|(name, bytes)| sources.take(Piece::read(name, &bytes)));
    sources.join().unwrap().notes
}

#[test]
fn py_spy_in_text_and_json_is_the_same() {
    let [text] = stacks("pyspy_rank_2.txt").try_into().unwrap();
    assert_eq!((text.pid, text.line, &text.cause), (Some(2313), 4, &Cause::Outside));
    let main = text.main_thread().unwrap();
    assert_eq!((main.id, main.name.as_deref()), (Some(2313), Some("MainThread")));
    assert_eq!((main.idle, main.holds_gil), (Some(true), Some(false)));
    let own = [("load_batch", 10), ("train_step", 15), ("main", 33), ("<module>", 37)];
    assert_eq!(frames(main), own);
    let [json] = stacks("pyspy_rank_2.json").try_into().unwrap();
    assert_eq!(frames(json.main_thread().unwrap()), own);
    assert_eq!(json.main_thread().unwrap().frames[0].file, "/job/hang.py");
    assert_eq!((json.pid, json.line, json.threads.len()), (text.pid, 1, text.threads.len()));
    // The place in which a rank waits for the others.
    let [waits] = stacks("pyspy_rank_0.txt").try_into().unwrap();
    assert_eq!(place(&waits), "train_step (hang.py:16)");
    assert_eq!(waits.main_thread().unwrap().distributed_call(), Some("all_reduce"));
    // Several, one after the other.
    let both = [file("pyspy_rank_2.json"), file("pyspy_rank_2.json")].concat();
    let lines: Vec<u64> = read("a.json", &both).unwrap().iter().map(|it| it.line).collect();
    let length = file("pyspy_rank_2.json").split(|byte| *byte == b'\n').count() as u64;
    assert_eq!(lines, [1, length]);
    let both = [file("pyspy_rank_0.txt"), file("pyspy_rank_2.txt")].concat();
    let pids: Vec<Option<u64>> = read("a.txt", &both).unwrap().iter().map(|it| it.pid).collect();
    assert_eq!(pids, [Some(2311), Some(2313)]);
}

#[test]
fn frames_of_c_and_variables_are_told_from_python() {
    let [native] = stacks("native_rank_1.txt").try_into().unwrap();
    let main = native.main_thread().unwrap();
    assert_eq!(main.frames[1].function, "pthread_cond_wait");
    assert_eq!((main.frames[1].file.as_str(), main.frames[1].line), ("libc.so.6", 0));
    assert_eq!(place(&native), "train_step (hang.py:16)");
    let [locals] = stacks("locals.txt").try_into().unwrap();
    assert_eq!(frames(locals.main_thread().unwrap()).len(), 4);
    let said = "Thread 7 (active+gil): \"MainThread\"\n    main (a.py:3)\n        Locals:\n            rank: 5\n";
    let [said] = of_text(said).try_into().unwrap();
    assert_eq!(said.rank, Some(GlobalRank(5)));
    assert_eq!(said.threads[0].holds_gil, Some(true));
}

#[test]
fn children_are_no_ranks() {
    let [parent, child] = stacks("children.txt").try_into().unwrap();
    assert_eq!((parent.rank, parent.parent), (Some(GlobalRank(3)), None));
    assert_eq!((child.parent, child.threads.len()), (parent.pid, 1));
    assert_eq!(place(&parent), "<module> (sub.py:5)");
    assert_eq!(
        notes([("a.txt", file("children.txt"))]),
        ["By the stacks, the main thread of rank 3 was in <module> (sub.py:5)."]
    );
}

#[test]
fn faulthandler_writes_moment_after_moment() {
    let [timeout, asked] = stacks("rank_2.log").try_into().unwrap();
    assert_eq!(timeout.cause, Cause::Timeout("0:00:06".to_owned()));
    assert_eq!(asked.cause, Cause::Asked);
    for process in [&timeout, &asked] {
        assert_eq!(process.threads.len(), 2);
        assert_eq!(place(process), "load_batch (hang.py:10)");
    }
    let [fatal] = stacks("segfault.log").try_into().unwrap();
    assert_eq!(fatal.cause, Cause::Fatal("Segmentation fault".to_owned()));
    assert_eq!(place(&fatal), "copy_rows (segv.py:7)");
    assert_eq!(fatal.main_thread().unwrap().id, Some(0x7fa0_d9a7_4b80));
}

/// The debug server's file names the ranks in headings.
#[test]
fn headings_name_ranks() {
    let found = stacks("stacks_20261127_024636.txt");
    let ranks: Vec<_> =
        found.iter().map(|process| (process.rank.unwrap().0, place(process))).collect();
    assert_eq!(
        ranks,
        [(0, "main (dbg.py:13)".to_owned()), (1, "load_batch (dbg.py:7)".to_owned())]
    );
    let marked = "# rank 7\nThread 1 (idle)\n    f (a.py:3)\n";
    assert_eq!(of_text(marked)[0].rank, Some(GlobalRank(7)));
    let said = "rank 7 has 3 batches\nThread 1 (idle)\n    f (a.py:3)\n";
    assert_eq!(of_text(said)[0].rank, None);
}

/// Ranks write into one log at once, each line behind its rank.
#[test]
fn prefixes_tell_the_ranks_apart() {
    let logs = [0, 2].map(|rank| String::from_utf8(file(&format!("rank_{rank}.log"))).unwrap());
    let lines = logs[0].lines().zip(logs[1].lines());
    for prefix in [|rank: u32| format!("[rank{rank}]: "), |rank| format!("[default{rank}]:")] {
        let mut text = "step 1\n".to_owned();
        for (zero, two) in lines.clone() {
            text += &format!("{}{zero}\n{}{two}\nepoch 3\n", prefix(0), prefix(2));
        }
        let found = of_text(&text);
        let at: Vec<_> = found.iter().map(|it| (it.rank.unwrap().0, place(it))).collect();
        let (zero, two) =
            ("train_step (hang.py:16)".to_owned(), "load_batch (hang.py:10)".to_owned());
        // faulthandler leaves a line empty between threads, at the same place of both.
        assert!(at.contains(&(0, zero)) && at.contains(&(2, two)), "{at:?}");
        // Each frame knows its line of the text, between those of the other rank.
        let written: Vec<&str> = text.lines().collect();
        for thread in found.iter().flat_map(|process| &process.threads) {
            assert_eq!(thread.lines.len(), thread.frames.len());
            for (line, frame) in thread.lines.iter().zip(&thread.frames) {
                let line = written[*line as usize - 1];
                assert!(
                    line.contains(&format!("line {} in {}", frame.line, frame.function)),
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn each_version_of_python_is_read() {
    let text = "Fatal Python error: Aborted\nPython runtime state: initialized\n\n\
        Current thread 0x00007f01 [MainThread] (most recent call first):\n  File \"a.py\", line 3 in f\n  ...\n\n\
        Current thread's C stack trace (most recent call first):\n  Binary file \"x\", at +0x1 [0x2]\n";
    let [process] = of_text(text).try_into().unwrap();
    assert_eq!(process.threads[0].name.as_deref(), Some("MainThread"));
    assert!(process.threads[0].cut && process.threads[0].frames.len() == 1);
    assert_eq!(process.cause, Cause::Fatal("Aborted".to_owned()));
    let [stack] = of_text("Stack (most recent call first):\n  File \"a.py\", line ??? in f\n")
        .try_into()
        .unwrap();
    assert_eq!((stack.threads[0].id, stack.threads[0].frames[0].line), (None, 0));
    // A traceback is none.
    let raised =
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nValueError: x\n";
    assert_eq!(of_text(raised), []);
}

#[test]
fn a_job_is_told_where_its_ranks_were() {
    let dumps = [0, 1, 2, 3].map(|rank| format!("pyspy_rank_{rank}.txt"));
    let expected = [
        "By the stacks, the main threads of ranks 0-1, 3 were in train_step (hang.py:16), in all_reduce.",
        "By the stacks, the main thread of rank 2 was in load_batch (hang.py:10).",
    ];
    assert_eq!(notes(dumps.iter().map(|name| (name.as_str(), file(name)))), expected);
    let logs = [0, 1, 2, 3].map(|rank| format!("rank_{rank}.log"));
    assert_eq!(notes(logs.iter().map(|name| (name.as_str(), file(name)))), expected);
    // A number that is the process's is no rank.
    let told = notes([("pyspy-2313.txt", file("pyspy_rank_2.txt"))]);
    assert_eq!(
        told,
        ["By the stacks, the main thread of process 2313 was in load_batch (hang.py:10)."]
    );
    let told = notes([("err.log", file("segfault.log"))]);
    assert_eq!(
        told,
        ["By the stacks, the main thread of the process at line 3 of err.log was in copy_rows \
          (segv.py:7) when Python died of \"Segmentation fault\"."]
    );
}

mod hostile {
    use super::*;

    #[test]
    fn cut_off_files_are_read_or_refused() {
        for name in ["pyspy_rank_2.txt", "rank_2.log", "segfault.log", "children.txt"] {
            let bytes = file(name);
            for end in 0..bytes.len() {
                assert!(read(name, &bytes[..end]).unwrap().len() <= 2);
            }
        }
        let json = file("pyspy_rank_2.json");
        let whole = json.trim_ascii_end().len();
        for end in 300..whole {
            let error = read("a.json", &json[..end]).unwrap_err();
            assert!(matches!(error, StacksError::Damaged { .. }), "{error}");
        }
        assert_eq!(read("a.txt", b"").unwrap(), []);
    }

    #[test]
    fn a_line_of_100_megabytes_is_cut() {
        let mut text = b"Thread 1 (idle): \"MainThread\"\n    ".to_vec();
        text.resize(100 << 20, b'x');
        text.extend_from_slice(b" (a.py:3)\n    g (b.py:4)\n");
        assert_eq!(read("a.txt", &text).unwrap(), []);
        text[0] = b'\n';
        text.extend_from_slice(b"Thread 2 (idle)\n    f (a.py:3)\n");
        assert_eq!(read("a.txt", &text).unwrap().len(), 1);
    }

    #[test]
    fn a_million_threads_are_counted_out() {
        let threads = |thread: &dyn Fn(u32) -> String| {
            let text: String = (0..1_000_000).map(thread).collect();
            let found = read("a.txt", text.as_bytes()).unwrap();
            found.iter().map(|process| process.threads.len()).sum::<usize>()
        };
        let py_spy = |at| format!("Thread {at} (idle)\n    f (a.py:1)\n");
        assert_eq!(threads(&py_spy), MAX_THREADS);
        let fault = |at| {
            format!("Thread 0x{at:x} (most recent call first):\n  File \"a\", line 1 in <module>\n")
        };
        assert_eq!(threads(&fault), MAX_THREADS);
        let traces: Vec<String> = (0..200_000)
            .map(|at| {
                format!(
                    r#"{{"pid":1,"thread_id":{at},"active":true,"owns_gil":false,"frames":[],"process_info":null}}"#
                )
            })
            .collect();
        let found = read("a.json", format!("[{}]", traces.join(",")).as_bytes()).unwrap();
        assert_eq!(found[0].threads.len(), MAX_THREADS);
    }

    #[test]
    fn deep_stacks_and_large_files_are_bounded() {
        let frames: String = (0..100_000).map(|at| format!("    f (a.py:{at})\n")).collect();
        let [process] = of_text(&format!("Thread 1 (idle)\n{frames}")).try_into().unwrap();
        assert_eq!(process.threads[0].frames.len(), MAX_FRAMES);
        assert!(process.threads[0].cut);
        let head = br#"[{"thread_id": 1, "frames": ["#;
        let mut large = head.to_vec();
        large.resize(json::MAX_JSON_BYTES + 1, b' ');
        let error = read("a.json", &large).unwrap_err();
        assert_eq!(error, StacksError::TooLarge { file: "a.json".to_owned(), bytes: large.len() });
        let nested = format!(r#"[{{"thread_id": 1, "frames": {}"#, "[".repeat(1 << 16));
        assert!(matches!(read("a.json", nested.as_bytes()), Err(StacksError::Damaged { .. })));
    }
}
