//! Reading takes time in proportion to the size: a file sixteen times as large takes about sixteen times as
//! long, whatever stands in it.
//!
//! `cargo test --release -p lockstep-tests --test growth -- --ignored --nocapture`

use lockstep_formats::recording::{Piece, Sources};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How much larger the large file is.
const TIMES: usize = 16;

/// The largest growth of the time per byte. Caches and trees make for two or so; a square makes for sixteen.
const MOST_GROWTH: f64 = 4.0;

/// Reads a file and joins what it holds; the least of three times.
fn time(name: &str, text: &str) -> Duration {
    let once = || {
        let began = Instant::now();
        let mut sources = Sources::default();
        sources.take(Piece::read(name, text.as_bytes()));
        let _ = sources.join();
        began.elapsed()
    };
    (0..3).map(|_| once()).min().unwrap()
}

fn check(name: &str, small: usize, text: impl Fn(usize) -> String) {
    let (less, more) = (text(small), text(small * TIMES));
    let (fast, slow) = (time(name, &less), time(name, &more));
    let per_byte = |time: Duration, text: &str| time.as_secs_f64() * 1e9 / text.len() as f64;
    let (before, after) = (per_byte(fast, &less), per_byte(slow, &more));
    println!("{name}: {before:.1} ns a byte of {}, {after:.1} of {}", less.len(), more.len());
    assert!(after < before * MOST_GROWTH, "{name}: {before:.1} ns a byte, then {after:.1}");
}

fn all_reduce(
    text: &mut String,
    host: usize,
    count: usize,
    op_count: usize,
    comm: usize,
    nranks: usize,
) {
    let _ = writeln!(
        text,
        "host{host}:10:11 [0] NCCL INFO AllReduce: opCount {op_count:x} sendbuff 0x7f recvbuff 0x7f count {count} \
         datatype 7 op 0 root 0 comm 0x{comm:x} [nranks={nranks}] stream 0x5"
    );
}

fn init(text: &mut String, host: usize, rank: usize, nranks: usize, comm: usize, id: usize) {
    let _ = writeln!(
        text,
        "host{host}:10:11 [0] NCCL INFO ncclCommInitRankConfig comm 0x{comm:x} rank {rank} nranks {nranks} cudaDev 0 \
         nvmlDev 0 busId 1000 commId 0x{id:x} - Init COMPLETE"
    );
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn nccl_calls_of_one_communicator() {
    check("nccl_one", 1000, |size| {
        let mut text = String::new();
        for rank in 0..4 {
            init(&mut text, rank, rank, 4, 0x7f, 9);
        }
        for at in 0..size {
            all_reduce(&mut text, at % 4, at, at / 4, 0x7f, 4);
        }
        text
    });
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn nccl_communicators_without_an_end() {
    check("nccl_inits", 500, |size| {
        let mut text = String::new();
        for at in 0..size {
            init(&mut text, 0, 0, 2, 0x7f, at);
            all_reduce(&mut text, 0, 100, 0, 0x7f, 2);
        }
        text
    });
    check("nccl_nameless", 500, |size| {
        let mut text = String::new();
        for at in 0..size {
            all_reduce(&mut text, 0, 100, 0, at, 2);
            all_reduce(&mut text, 1, 100, 0, at, 2);
        }
        text
    });
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn nccl_processes_without_an_end() {
    check("nccl_processes", 500, |size| {
        let mut text = String::new();
        for at in 0..size {
            init(&mut text, at, at, size, 0x7f, 9);
            all_reduce(&mut text, at, 100, 0, 0x7f, size);
        }
        text
    });
    // Each process is in the group of all, and in groups of its own.
    check("nccl_own_groups", 1000, |size| {
        let mut text = String::new();
        for at in 0..size {
            init(&mut text, at, at, size, 0x7f, 9);
            all_reduce(&mut text, at, 100, 0, 0x7f, size);
            for own in 0..4 {
                init(&mut text, at, 0, 1, 0x80 + own, 10 + 4 * at + own);
                all_reduce(&mut text, at, 100, 0, 0x80 + own, 1);
            }
        }
        text
    });
    check("nccl_pairs", 500, |size| {
        let mut text = String::new();
        for at in 0..size {
            init(&mut text, at, 0, 2, 0x7f, at);
            init(&mut text, at, 0, 2, 0x80, at + 1);
        }
        text
    });
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn lines_without_an_end() {
    check("long_line", 20_000, |size| "NCCL INFO : opCount ".repeat(size));
    check("no_letters", 200_000, |size| " ".repeat(size));
    check("brackets", 100_000, |size| "[rank".repeat(size));
    check("carriage_returns", 100_000, |size| "x\r".repeat(size));
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn logs_of_a_job() {
    check("job.log", 500, |size| {
        let mut text = String::new();
        for at in 0..size {
            let _ = write!(
                text,
                "[rank{}]:[E1107 12:00:00.{:06} ProcessGroupNCCL.cpp:632] [Rank {}] Watchdog caught collective operation \
                 timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 \
                 milliseconds before timing out.\nTraceback (most recent call last):\n  File \"a.py\", line {at}, in main\n    \
                 x()\nRuntimeError: boom {at}\n",
                at % 64,
                at,
                at % 64,
                at
            );
        }
        text
    });
    check("frames.log", 2000, |size| {
        let mut text = String::from("Traceback (most recent call last):\n");
        for at in 0..size {
            let _ = write!(text, "  File \"a{at}.py\", line {at}, in main\n    x()\n");
        }
        text
    });
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn stacks() {
    check("stacks.txt", 300, |size| {
        let mut text = String::new();
        for at in 0..size {
            let _ = write!(
                text,
                "Process {at}: python train.py\nPython v3.11.5 (/usr/bin/python3.11)\n\nThread {at} (active): \
                 \"MainThread\"\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    main (train.py:88)\n\n"
            );
        }
        text
    });
    check("fault.txt", 2000, |size| {
        let mut text = String::from("Current thread 0x00007f (most recent call first):\n");
        for at in 0..size {
            let _ = writeln!(text, "  File \"a.py\", line {at} in main");
        }
        text
    });
}

/// The most memory that children of a process have, in bytes, until it ends.
fn peak_of_children(mut parent: std::process::Child) -> usize {
    let (pid, mut peak) = (parent.id(), 0);
    while parent.try_wait().unwrap().is_none() {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
            let field =
                |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if field("PPid:") == Some(&pid.to_string()) {
                let kib =
                    field("VmHWM:").and_then(|text| text.trim_end_matches(" kB").parse().ok());
                peak = peak.max(kib.unwrap_or(0usize) << 10);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    peak
}

/// A list that doubles passes from half of the bound to twice of it in one step.
#[test]
fn a_program_holds_its_memory_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.py");
    let program = "def main():\n    x = [0]\n    for i in range(40):\n        x = x + x\nrun(main, world_size=2)\n";
    std::fs::write(&path, program).unwrap();
    let mut sim = std::process::Command::new(lockstep_tests::binary());
    sim.arg("sim")
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let peak = peak_of_children(sim.spawn().unwrap());
    assert!(peak > 50 << 20 && peak < (1 << 30) / 10 * 11, "{} MiB", peak >> 20);
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn json() {
    check("trace.json", 500, |size| {
        let event = |at: usize| {
            format!(
                "{{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"nccl:all_reduce\",\"pid\":0,\"tid\":1,\"ts\":{at},\"dur\":1,\
                 \"args\":{{\"Collective name\":\"allreduce\",\"Seq\":{at},\"Group size\":2,\"In msg nelems\":{at},\"dtype\":\"Float\",\
                 \"Process Group Name\":\"0\",\"External id\":{at}}}}}"
            )
        };
        let events: Vec<String> = (0..size).map(event).collect();
        format!(
            "{{\"schemaVersion\":1,\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":0,\"world_size\":2}},\"traceEvents\":[{}]}}",
            events.join(",")
        )
    });
    check("rank_0.json", 500, |size| {
        let entry = |at: usize| {
            format!(
                "{{\"record_id\":{at},\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":{},\"p2p_seq_id\":0,\
                 \"op_id\":{at},\"profiling_name\":\"nccl:all_reduce\",\"time_created_ns\":{at},\"input_sizes\":[[{at}]],\
                 \"output_sizes\":[[{at}]],\"input_dtypes\":[\"Float\"],\"output_dtypes\":[\"Float\"],\"state\":\"scheduled\",\
                 \"is_p2p\":false,\"timeout_ms\":600000,\"frames\":[{{\"name\":\"main\",\"filename\":\"a.py\",\"line\":{at}}}]}}",
                at + 1
            )
        };
        let entries: Vec<String> = (0..size).map(entry).collect();
        format!(
            "{{\"version\":\"2.10\",\"pg_config\":{{\"0\":{{\"name\":\"0\",\"desc\":\"default_pg\",\"ranks\":\"[0]\"}}}},\"entries\":[{}]}}",
            entries.join(",")
        )
    });
}
