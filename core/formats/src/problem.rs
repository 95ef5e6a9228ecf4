//! Files that could not be used, and why.

/// A file that could not be used, or not as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file's name; of a set of files their folder, or the beginning of their names, if they have one.
    pub file_name: String,
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The reason and the remedy, in a sentence for the user.
    pub why: String,
}

/// The reason that a file could not be used, or not as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// It does not open, or no reader can read it. It may be the recording of the rank in its name.
    Unreadable,
    /// It is a text in which no reader found anything.
    Text,
    /// A reader recognised it and cannot use it: it is damaged, or holds nothing that is wanted. No later
    /// reader gets it.
    Unusable,
    /// It is of another job or of another moment.
    OtherSet,
    /// It is of an earlier attempt of the job.
    OtherAttempt,
    /// Another file of the same rank was used.
    SameRank,
    /// Another file holds the same.
    SameContent,
    /// It is used, and something is wrong with it.
    Flawed,
}

impl FileProblem {
    /// The problem of a file that is used all the same.
    pub(crate) fn flaw(file_name: &str, why: String) -> FileProblem {
        FileProblem { file_name: file_name.to_owned(), kind: ProblemKind::Flawed, why }
    }
}

/// Files of several jobs or moments, and it is unclear which belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct MixedFiles {
    /// The reason, in a sentence without a full stop.
    pub why: String,
    /// The number of ranks that the files are of.
    pub world_size: u32,
}
