//! Tests that hold for every reader alike.

use crate::job_calls::Shows;
use crate::reader::File;
use crate::readers::READERS;
use crate::recording::{JoinError, Piece, Sources};
use std::collections::BTreeSet;
use std::path::Path;

fn data(path: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    std::fs::read(folder.join(path)).unwrap()
}

/// A row is named after its folder, and so is its source of calls.
#[test]
fn a_reader_is_one_folder_and_one_row() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names: BTreeSet<&str> = READERS.iter().map(|reader| reader.name()).collect();
    assert_eq!(names.len(), READERS.len());
    for reader in READERS {
        assert!(folder.join(reader.name()).is_dir(), "{}", reader.name());
        assert!(reader.calls().is_none_or(|source| source.name() == reader.name()));
    }
}

#[test]
fn every_reader_bears_empty_and_endless_files() {
    let long = |start: &[u8]| {
        let mut bytes = start.to_vec();
        bytes.resize(100 << 20, b'x');
        bytes
    };
    let starts: [&[u8]; 4] =
        [b"x", b"{\"traceEvents\"", b"[{\"frames\", \"thread_id\"", b"\x80\x02"];
    for bytes in starts.map(long) {
        for reader in READERS {
            let file = File { name: "rank_0.log", bytes: &bytes };
            if reader.recognises(file) {
                let _ = reader.read(file);
            }
        }
    }
    for bytes in [&b""[..], b"\0", b"\n", b"{", b"[", b"\x80", b"\xff\xfe"] {
        for reader in READERS {
            let file = File { name: "", bytes };
            if reader.recognises(file) {
                let _ = reader.read(file);
            }
        }
    }
}

/// Pieces that one worker reads are joined by another one.
#[test]
fn dumps_travel_between_workers() {
    let dumps = ["rank_0", "rank_1"].map(|name| {
        let path = format!("flight-recorder/t215_size_mismatch/{name}");
        Piece::read(name, &data(&path))
    });
    let joined = |pieces: [Piece; 2]| {
        let mut sources = Sources::default();
        pieces.into_iter().for_each(|piece| sources.take(piece));
        sources.join().unwrap()
    };
    let travelled = dumps.each_ref().map(|piece| Piece::from_bytes(&piece.to_bytes().unwrap()));
    let travelled = joined(travelled.map(Option::unwrap));
    assert_eq!(travelled, joined(dumps));
    assert_eq!(travelled.calls.unwrap().shows, Shows::LastCalls);
    assert!(Piece::read("a.log", b"epoch 3").to_bytes().is_none());
    for bytes in [&b""[..], b"\x03abc\x00", b"\x0fflight_recorder\x01\x00"] {
        assert!(Piece::from_bytes(bytes).is_none());
    }
}

/// A file goes to every reader of lines: PyTorch's messages, NCCL's calls and stacks of one log.
#[test]
fn a_log_has_several_contributions() {
    let log = [data("nccl-log/job.log"), data("stacks/rank_2.log")].concat();
    let mut sources = Sources::default();
    sources.take(Piece::read("job.log", &log));
    let job = sources.join().unwrap();
    assert_eq!(job.calls.unwrap().shows, Shows::CallOrder);
    assert_eq!(job.stacks.len(), 2);
    // Files that no reader takes are reported.
    let mut sources = Sources::default();
    sources.take(Piece::read("notes.txt", b"hello"));
    let job = sources.join().unwrap();
    assert!(job.heard.is_empty() && job.heard.has_text, "{:?}", job.heard);
    assert!(job.problems[0].contains("hello"), "{:?}", job.problems);
    // An empty file, or one that claims to be a dump, is not a log.
    for (name, bytes) in [("a.log", &b""[..]), ("nccl_trace_rank_2", b"cos\nsystem\n(S'true'\ntR.")]
    {
        let mut sources = Sources::default();
        sources.take(Piece::read(name, bytes));
        let error = sources.join().unwrap_err();
        assert!(matches!(error, JoinError::NothingRead(_)), "{name}: {error:?}");
    }
}
