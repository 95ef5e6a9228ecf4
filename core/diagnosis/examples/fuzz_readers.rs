//! Damages real files in every way and reads them: no reader may panic, hang, or take memory out of
//! proportion. Runs for a chosen time with a chosen seed, on stable Rust.
//!
//! ```text
//! cargo run --release -p lockstep-diagnosis --example fuzz_readers -- SECONDS [SEED] [READER]
//! ```
//!
//! An input that takes more than two seconds of a processor fails as well. One that fails is left in
//! the folder for temporary files; it belongs into a test beside the reader.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_types,
    reason = "a tool for testing"
)]

use lockstep_core::plan::Plan;
use lockstep_core::trace::{CallLog, Trace};
use lockstep_diagnosis::{diagnose_files, diagnose_recording};
use lockstep_formats::archive::{self, Limits};
use lockstep_formats::flight_recorder::{self, read_files};
use lockstep_formats::msccl;
use lockstep_formats::pickle::Pickle;
use lockstep_formats::reader::{File, Reader};
use lockstep_formats::readers::READERS;
use lockstep_formats::recording::{Piece, Sources};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A reader of foreign bytes, and which of the files of `tests/data` it is given.
struct Target {
    name: &'static str,
    takes: Box<Takes>,
    read: Box<Reads>,
}

/// True if a file is for a target, by its path and content.
type Takes = dyn Fn(&Path, &[u8]) -> bool;

/// Reads an input; a panic is a failure.
type Reads = dyn Fn(&[u8]);

/// Every row of [`READERS`], and what else reads foreign bytes.
fn targets() -> Vec<Target> {
    let target = |name, takes: fn(&Path) -> bool, read: fn(&[u8])| Target {
        name,
        takes: Box::new(move |path, _| takes(path)),
        read: Box::new(read),
    };
    let mut targets = vec![
        target("pickle", is_dump, |bytes| drop(Pickle::read(bytes))),
        target("dumps", |path| is_dump(path) || is_json_dump(path), dump),
        target("archive", is_dump, archive_of),
        target(
            "recording",
            |path| is_dump(path) || is_profile(path) || ends(path, "log"),
            together,
        ),
        target("trace", is_dump, trace),
        target(
            "msccl",
            |path| ends(path, "xml"),
            |bytes| drop(msccl::read(&String::from_utf8_lossy(bytes))),
        ),
        target(
            "plan",
            |path| ends(path, "json"),
            |bytes| drop(Plan::from_json(&String::from_utf8_lossy(bytes))),
        ),
    ];
    targets.extend(READERS.iter().map(|reader| Target {
        name: reader.name(),
        takes: Box::new(|path, bytes| holds_something(*reader, path, bytes)),
        read: Box::new(|bytes| as_files(*reader, bytes)),
    }));
    targets
}

/// True if a reader finds something in a file.
fn holds_something(reader: &dyn Reader, path: &Path, bytes: &[u8]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = File { name: &name, bytes };
    reader.recognises(file) && reader.read(file).is_ok_and(|read| !read.is_empty())
}

/// Reads two files by one reader alone, sends them to another worker, and diagnoses them as a job.
fn as_files(reader: &dyn Reader, bytes: &[u8]) {
    let mut sources = Sources::default();
    let half = bytes.get(bytes.len() / 2..).unwrap_or_default();
    for (name, bytes) in [("rank_0.log", bytes), ("b/rank1.json", half), ("rank_1", bytes)] {
        let _ = reader.read(File { name, bytes });
        let piece = Piece::read(name, bytes);
        match piece.to_bytes() {
            Some(bytes) => sources.take(Piece::from_bytes(&bytes).unwrap()),
            None => sources.take(piece),
        }
    }
    if let Ok(job) = diagnose_files(sources) {
        let _ = job.report.to_text();
    }
}

fn is_dump(path: &Path) -> bool {
    path.extension().is_none()
        && path.file_name().is_some_and(|it| it.to_string_lossy().starts_with("rank_"))
}

fn is_json_dump(path: &Path) -> bool {
    ends(path, "json") && path.parent().is_some_and(|folder| folder.ends_with("json"))
}

fn is_profile(path: &Path) -> bool {
    ends(path, "json") && path.parent().is_some_and(|folder| folder.ends_with("kineto"))
}

/// Whatever it is, with a good log of NCCL and a good dump beside it.
fn together(bytes: &[u8]) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    thread_local! {
        static GOOD: std::cell::OnceCell<[Vec<u8>; 2]> = const { std::cell::OnceCell::new() };
    }
    GOOD.with(|good| {
        let [log, dump] = good.get_or_init(|| {
            let read = |path: &str| std::fs::read(data.join(path)).unwrap();
            [read("nccl-log/job.log"), read("flight-recorder/t215_size_mismatch/rank_0")]
        });
        let mut sources = Sources::default();
        sources.take(Piece::read("rank_1", bytes));
        sources.take(Piece::read("job.log", log));
        sources.take(Piece::read("rank_0", dump));
        let gathered = diagnose_files(sources).unwrap();
        let _ = gathered.report.to_text();
    });
}

fn ends(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|it| it == extension)
}

fn dump(bytes: &[u8]) {
    let files = [("rank_0", bytes), ("rank_1", bytes)];
    if let Ok(recording) = read_files(files) {
        let _ = diagnose_recording(&recording).to_text();
        assert_eq!(
            CallLog::of(&recording.merged.trace()).ranks.len(),
            recording.merged.log.ranks.len()
        );
        for dump in
            flight_recorder::dumps_of(&recording.merged.log, recording.merged.header.epoch_ns)
        {
            flight_recorder::Dump::read("rank_0", &dump.to_pickle()).unwrap();
        }
    }
}

fn archive_of(bytes: &[u8]) {
    let limits = Limits { file_bytes: 1 << 20, total_bytes: 1 << 22 };
    let mut all = 0;
    let _ = archive::for_each_file("job", bytes, limits, &mut |_, file| all += file.len());
    assert!(all <= 1 << 22);
}

fn trace(bytes: &[u8]) {
    if let Ok(trace) = Trace::read(bytes) {
        let _ = lockstep_diagnosis::diagnose_trace(&trace);
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }
}

/// Changes a few things: bytes, stretches, numbers at their limits, pieces of another file.
fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(6) {
        let (at, length) = (random.below(bytes.len() + 1), random.below(64));
        let to = (at + length).min(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..to)),
            2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8),
            3 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            4 => {
                let piece = bytes[at..to].to_vec();
                let at = random.below(bytes.len() + 1);
                bytes.splice(at..at, piece);
            }
            5 => {
                let from = random.below(other.len() + 1);
                let piece = &other[from..(from + length).min(other.len())];
                bytes.splice(at..to, piece.iter().copied());
            }
            6 => {
                let extreme = [u64::MAX, i64::MAX as u64, u64::from(u32::MAX), 1 << 31, 0];
                let extreme = extreme[random.below(5)].to_le_bytes();
                let size = [1, 2, 4, 8][random.below(4)];
                let places = bytes.iter_mut().skip(at).take(size).zip(extreme);
                places.for_each(|(place, byte)| *place = byte);
            }
            _ => {
                let digits = bytes.iter().enumerate().filter(|(_, byte)| byte.is_ascii_digit());
                let digits: Vec<usize> = digits.map(|(at, _)| at).collect();
                if let Some(at) = digits.get(random.below(digits.len())) {
                    bytes.splice(*at..*at, b"99999999999999999999".iter().copied());
                }
            }
        }
    }
}

fn corpus(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { corpus(&path, found) } else { found.push(path) }
    }
}

/// The time for which this thread has had a processor, so that a loaded machine makes no reader slow; all
/// time where the system does not tell.
fn spent(since: Instant) -> Duration {
    let told = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    told().unwrap_or_else(|| since.elapsed())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(10, |text| text.parse().unwrap());
    let seed: u64 = arguments.next().map_or(0, |text| text.parse().unwrap());
    let only = arguments.next();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let mut paths = Vec::new();
    corpus(&data, &mut paths);
    paths.sort();
    let targets = targets().into_iter();
    for reader in targets.filter(|it| only.as_deref().is_none_or(|only| only == it.name)) {
        let files: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| (path, std::fs::read(path).unwrap()))
            .filter(|(path, bytes)| (reader.takes)(path, bytes))
            .map(|(_, bytes)| seeds(reader.name, bytes))
            .collect();
        let (start, mut random, mut rounds) = (Instant::now(), Random(seed), 0u64);
        let mut slowest = Duration::ZERO;
        while start.elapsed() < Duration::from_secs(seconds) {
            let before = random.0;
            let mut bytes = files[random.below(files.len())].clone();
            let other = &files[random.below(files.len())];
            damage(&mut bytes, other, &mut random);
            let began = spent(start);
            let read = std::panic::AssertUnwindSafe(|| (reader.read)(&bytes));
            let read = std::panic::catch_unwind(read);
            let took = spent(start).saturating_sub(began);
            slowest = slowest.max(took);
            if read.is_err() || took > Duration::from_secs(2) {
                let path = std::env::temp_dir().join(format!("{}-{before:016x}", reader.name));
                std::fs::write(&path, &bytes).unwrap();
                panic!("{} fails on {} (seed {before})", reader.name, path.display());
            }
            rounds += 1;
        }
        println!("{}: {rounds} inputs, none fails; the slowest took {slowest:?}", reader.name);
    }
}

/// A file in the form that the reader takes.
fn seeds(reader: &str, bytes: Vec<u8>) -> Vec<u8> {
    match reader {
        "trace" => read_files([("rank_0", bytes.as_slice())])
            .map(|recording| recording.merged.trace().to_bytes())
            .unwrap_or(bytes),
        "archive" => {
            let mut tar = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, "job/rank_0", bytes.as_slice()).unwrap();
            let tar = tar.into_inner().unwrap();
            if bytes.len().is_multiple_of(2) {
                return tar;
            }
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut gzip, &tar).unwrap();
            gzip.finish().unwrap()
        }
        _ => bytes,
    }
}
