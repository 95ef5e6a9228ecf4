//! Reading takes time in proportion to the size: a file sixteen times as large takes about sixteen times as
//! long, whatever stands in it.
//!
//! `cargo test --release -p lockstep-tests --test growth -- --ignored --nocapture`

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Schedule};
use lockstep_core::trace::{CallLog, Trace};
use lockstep_diagnosis::diagnose_trace;
use lockstep_formats::chakra::ChakraWriter;
use lockstep_formats::reader::File;
use lockstep_formats::readers::READERS;
use lockstep_formats::recording::{Piece, Sources};
use lockstep_formats::{flight_recorder, goal, msccl};
use lockstep_sim::{SimConfig, simulate};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The size of the large file, as a multiple of the small one's.
const TIMES: usize = 16;

/// The largest growth of the time per byte. Caches and trees make for two or so; a square makes for sixteen.
const MOST_GROWTH: f64 = 4.0;

/// The least of three times.
fn time(read: impl Fn()) -> Duration {
    let once = || {
        let began = Instant::now();
        read();
        began.elapsed()
    };
    (0..3).map(|_| once()).min().unwrap()
}

/// Reads a file of a job and joins its contents.
fn check(name: &str, small: usize, text: impl Fn(usize) -> String) {
    let bytes = |size| text(size).into_bytes();
    check_reading(name, small, bytes, |bytes| {
        let mut sources = Sources::default();
        sources.take(Piece::read(name, bytes));
        let _ = sources.join();
    });
}

fn check_reading(name: &str, small: usize, bytes: impl Fn(usize) -> Vec<u8>, read: impl Fn(&[u8])) {
    let (less, more) = (bytes(small), bytes(small * TIMES));
    let (fast, slow) = (time(|| read(&less)), time(|| read(&more)));
    let per_byte = |time: Duration, bytes: &[u8]| time.as_secs_f64() * 1e9 / bytes.len() as f64;
    let (before, after) = (per_byte(fast, &less), per_byte(slow, &more));
    println!("| {name} | {} | {before:.1} | {} | {after:.1} |", less.len(), more.len());
    assert!(after < before * MOST_GROWTH, "{name}: {before:.1} ns a byte, then {after:.1}");
}

fn log_of_errors(size: usize) -> String {
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
}

fn py_spy(size: usize) -> String {
    let mut text = String::new();
    for at in 0..size {
        let _ = write!(
            text,
            "Process {at}: python train.py\nPython v3.11.5 (/usr/bin/python3.11)\n\nThread {at} (active): \
             \"MainThread\"\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    main (train.py:88)\n\n"
        );
    }
    text
}

fn kineto(size: usize) -> String {
    let event = |at: usize| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"record_param_comms\",\"pid\":0,\"tid\":1,\"ts\":{at},\"dur\":1,\
             \"args\":{{\"Collective name\":\"allreduce\",\"Seq\":{at},\"Group size\":2,\"In msg nelems\":{at},\"dtype\":\"Float\",\
             \"Process Group Name\":\"0\",\"External id\":{at}}}}}"
        )
    };
    let events: Vec<String> = (0..size).map(event).collect();
    format!(
        "{{\"schemaVersion\":1,\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":0,\"world_size\":2}},\"traceEvents\":[{}]}}",
        events.join(",")
    )
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
    check("job.log", 500, log_of_errors);
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
    check("stacks.txt", 300, py_spy);
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
    check("trace.json", 500, kineto);
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

/// For each row of the table of readers, a file of its format: its name, the smaller size, and the text of a size.
/// The tests above have harder files of some of them.
type Format = (&'static str, &'static str, usize, fn(usize) -> Vec<u8>);

const FORMATS: [Format; 8] = [
    ("kineto", "trace.json", 500, |size| kineto(size).into_bytes()),
    ("chakra", "job.0.et", 250, execution_trace),
    ("flight_recorder", "nccl_trace_rank_0", 250, pickle),
    ("stacks", "stacks.txt", 300, |size| py_spy(size).into_bytes()),
    ("nccl_log", "nccl.log", 1000, |size| {
        let mut text = String::new();
        init(&mut text, 0, 0, 4, 0x7f, 9);
        (0..size).for_each(|at| all_reduce(&mut text, 0, at, at, 0x7f, 4));
        text.into_bytes()
    }),
    ("torchfrtrace", "fr.txt", 500, |size| {
        let block = |at: usize| {
            format!(
                "Not all ranks joining collective: sequence number: {at}\ngroup info: {at}:dp\ncollective: nccl:all_reduce\n\
                 missing ranks: {{{}, {}}}\nworld size: 4096\n",
                at % 4096,
                (at + 1) % 4096
            )
        };
        (0..size).map(block).collect::<String>().into_bytes()
    }),
    ("ncclras", "ras.txt", 500, |size| {
        let mut text = "#0-0 (fa93daea854b060b) MISMATCH\n".to_owned();
        for at in 0..size {
            let _ = write!(
                text,
                "  Communicator ranks have different AllGather operation counts\n  6 ranks have launched up to operation {at}\n  \
                 2 ranks have launched up to operation {}\n  Rank {} -- GPU 2 managed by process 30 on node 10.0.0.4\n\n",
                at + 1,
                at % 8
            );
        }
        text.into_bytes()
    }),
    ("job_log", "job.log", 500, |size| log_of_errors(size).into_bytes()),
];

#[test]
fn every_reader_has_a_file_to_be_timed_with() {
    let readers: Vec<&str> = READERS.iter().map(|reader| reader.name()).collect();
    assert_eq!(readers, FORMATS.map(|(reader, ..)| reader));
    for ((format, name, _, bytes), reader) in FORMATS.iter().zip(READERS) {
        let (bytes, last) = (bytes(20), bytes(40));
        let file = File { name, bytes: &bytes };
        assert!(reader.recognises(file), "{format}");
        let read = reader.read(file).unwrap();
        assert!(!read.is_empty(), "{format}");
        assert!(last.len() > bytes.len() * 3 / 2, "{format}");
    }
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn readers_of_the_table() {
    for (_, name, small, bytes) in FORMATS {
        check_reading(name, small, bytes, |bytes| {
            let mut sources = Sources::default();
            sources.take(Piece::read(name, bytes));
            let _ = sources.join();
        });
    }
}

/// A plan of so many all_reduces on two ranks.
fn plan(size: usize) -> Plan {
    let mut plan = PlanBuilder::new("many", 2, BackendName::Host).unwrap();
    let grad = plan.tensor("grad", Dtype::Float32, 8, Fill::Zeros);
    let source = plan.source("train.py", "");
    let written = plan.every_rank(|_, program| {
        for at in 0..size {
            let op = Collective::AllReduce { op: ReduceOp::Sum };
            program.line(source, 1 + at as u32 % 50).collective(
                GroupId(0),
                op,
                8,
                None,
                Some(grad),
            );
        }
    });
    written.unwrap()
}

fn trace(size: usize) -> Trace {
    simulate(&plan(size), &SimConfig::default()).unwrap()
}

/// The dump of rank 0 of such a run.
fn execution_trace(size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ChakraWriter::new(&trace(size)).write(GlobalRank(0), &mut bytes).unwrap();
    bytes
}

fn pickle(size: usize) -> Vec<u8> {
    let dumps = flight_recorder::dumps_of(&CallLog::of(&trace(size)), 1);
    dumps[0].to_pickle()
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn plans() {
    let read = |bytes: &[u8]| drop(Plan::read(bytes).unwrap());
    check_reading("plan.json", 500, |size| plan(size).to_json().into_bytes(), read);
    check_reading("binary plan", 2000, |size| plan(size).to_bytes(), read);
    let stream = |bytes: &[u8]| drop(Plan::from_json_stream(std::io::Cursor::new(bytes)).unwrap());
    check_reading("plan.json as a stream", 500, |size| plan(size).to_json().into_bytes(), stream);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let written = |size| goal::write(&plan(size)).unwrap().into_bytes();
    check_reading("plan.goal", 200, written, |bytes| {
        drop(goal::read("plan.goal", &text(bytes)).unwrap())
    });
    // A ring's steps grow with the square of its ranks, and so does its file.
    let ring = |size: usize| {
        let ranks = 4 * (size as f64).sqrt() as u32;
        let op = Collective::AllReduce { op: ReduceOp::Sum };
        let ring = Schedule::new(op, Algorithm::Ring, ranks).unwrap();
        msccl::write(&ring).unwrap().into_bytes()
    };
    check_reading("ring.xml", 4, ring, |bytes| drop(msccl::read(&text(bytes)).unwrap()));
}

#[test]
#[ignore = "measures time: run it by itself, on a quiet machine"]
fn traces() {
    let read = |bytes: &[u8]| drop(Trace::read(bytes).unwrap());
    check_reading("trace.lks", 500, |size| trace(size).to_bytes(), read);
    check_reading("trace.json of ours", 200, |size| trace(size).to_json().into_bytes(), read);
    let diagnose = |bytes: &[u8]| drop(diagnose_trace(&Trace::read(bytes).unwrap()));
    check_reading("trace.lks, diagnosed", 500, |size| trace(size).to_bytes(), diagnose);
}
