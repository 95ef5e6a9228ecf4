//! The contents of one file.

use crate::kineto;
use crate::problem::{FileProblem, ProblemKind};
use crate::reader::{Contribution, File};
use crate::readers::{call_source, read_file};
use crate::text::in_utf8;
use std::io::BufRead;

/// The contents of a file that is no archive: contributions, or a problem.
#[derive(Debug)]
pub struct Piece {
    pub(super) file_name: String,
    pub(super) contributions: Vec<Contribution>,
    /// The reason that the first reader that tried could not use the file.
    pub(super) problem: Option<FileProblem>,
}

impl Piece {
    /// Reads a file that is no archive.
    pub fn read(name: &str, bytes: &[u8]) -> Piece {
        let bytes = &*in_utf8(bytes);
        let (contributions, problem) = read_file(File { name, bytes });
        Piece { file_name: name.to_owned(), contributions, problem }
    }

    /// Reads a large profile as it comes, without having all of it in memory: a file of which
    /// [`kineto::Profile::is_one`] is true by its first bytes.
    pub fn read_profile(name: &str, stream: impl BufRead) -> Piece {
        let (contributions, problem) = match kineto::read_stream(name, stream) {
            Ok(calls) => (vec![calls], None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Piece { file_name: name.to_owned(), contributions, problem }
    }

    /// A file that does not open. It may be the recording of the rank in its name.
    pub fn unreadable(name: &str, why: String) -> Piece {
        Piece::without_content(name, ProblemKind::Unreadable, why)
    }

    /// A file that is no part of a recording, with the reason in a sentence.
    pub fn useless(name: &str, why: String) -> Piece {
        Piece::without_content(name, ProblemKind::Unusable, why)
    }

    fn without_content(name: &str, kind: ProblemKind, why: String) -> Piece {
        let file_name = name.to_owned();
        let problem = FileProblem { file_name: file_name.clone(), kind, why };
        Piece { file_name, contributions: Vec::new(), problem: Some(problem) }
    }

    /// Moves the calls of a file that another thread has read into memory of this one.
    pub fn move_here(&mut self) {
        for contribution in &mut self.contributions {
            if let Contribution::Calls(calls) = contribution {
                let source = calls.source;
                source.move_here(calls);
            }
        }
    }

    /// The calls of a file as bytes, to be sent to another worker. `None` if the file holds something else,
    /// or calls of a source without such a form.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        match self.contributions.as_slice() {
            [Contribution::Calls(calls)] => {
                let content = calls.source.pack(calls)?;
                postcard::to_stdvec(&(calls.source.name(), content)).ok()
            }
            _ => None,
        }
    }

    /// The inverse of [`Piece::to_bytes`]; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Piece> {
        let (source, content): (&str, Vec<u8>) = postcard::from_bytes(bytes).ok()?;
        let calls = call_source(source)?.unpack(&content)?;
        let file_name = calls.file_name.clone();
        let contributions = vec![Contribution::Calls(calls)];
        Some(Piece { file_name, contributions, problem: None })
    }
}
