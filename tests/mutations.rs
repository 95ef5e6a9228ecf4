//! Every reader of foreign bytes on samples that were changed at random, the same ones each time: none panics,
//! and none takes more than is given.
//!
//! `LOCKSTEP_MUTATIONS` says how many of each sample, `LOCKSTEP_MUTATION_SEED` which. `fuzz/` has the same
//! readers under coverage-guided fuzzing.

#[path = "../gpu-exec/tests/host/left_behind.rs"]
#[allow(dead_code)]
mod left_behind;

use left_behind::{Random, from_environment};
use lockstep_core::plan::Plan;
use lockstep_core::trace::Trace;
use lockstep_formats::archive::{Limits, for_each_file, is_archive};
use lockstep_formats::recording::{Piece, Sources};
use lockstep_formats::{goal, msccl};
use lockstep_tests::data;
use std::path::{Path, PathBuf};

const DEFAULT_MUTATIONS: u64 = 12;

/// Larger samples take their time, and show nothing that a small one does not.
const MAX_SAMPLE_BYTES: u64 = 64 << 10;

const LIMITS: Limits = Limits { file_bytes: 1 << 20, total_bytes: 4 << 20 };

fn samples(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut entries: Vec<PathBuf> = entries.collect();
    entries.sort();
    // A few of each folder: the ranks of a job are alike.
    let (folders, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
    let small = |path: &PathBuf| path.metadata().is_ok_and(|it| it.len() <= MAX_SAMPLE_BYTES);
    found.extend(files.into_iter().filter(small).take(2));
    folders.iter().for_each(|folder| samples(folder, found));
}

fn mutated(sample: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len() as u64) as usize;
        let end = (at + 1 + random.below(40) as usize).min(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, copy);
            }
            // A length or a count that is far too large.
            _ => bytes[at..end.min(at + 8)].fill(if random.below(2) == 0 { 0xff } else { b'9' }),
        }
    }
    bytes
}

fn read(name: &str, bytes: &[u8]) {
    if is_archive(bytes) {
        let mut total = 0;
        let _ = for_each_file(name, bytes, LIMITS, &mut |_, file| total += file.len() as u64);
        assert!(total <= LIMITS.total_bytes, "{name}");
    }
    let _ = Trace::read(bytes);
    let _ = Plan::read(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = goal::read(name, text);
        let _ = msccl::read(text);
    }
    let mut sources = Sources::default();
    sources.take(Piece::read(name, bytes));
    let _ = sources.join();
}

#[test]
fn no_reader_panics_on_changed_samples() {
    let seed = from_environment("LOCKSTEP_MUTATION_SEED", 0x0BAD_5EED).max(1);
    let mutations = from_environment("LOCKSTEP_MUTATIONS", DEFAULT_MUTATIONS);
    let mut random = Random(seed);
    let mut found = Vec::new();
    samples(&data(""), &mut found);
    assert!(found.len() > 100, "{} samples", found.len());
    for path in &found {
        let sample = std::fs::read(path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        for round in 0..mutations {
            let bytes = mutated(&sample, &mut random);
            let survived = std::panic::catch_unwind(|| read(&name, &bytes)).is_ok();
            assert!(survived, "{}, round {round}, seed {seed:#x}", path.display());
        }
    }
    println!("{} samples, {mutations} of each, seed {seed:#x}", found.len());
}
