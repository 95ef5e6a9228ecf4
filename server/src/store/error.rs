//! The reasons that the store cannot do its work.

use super::tables::VERSION;
use std::io;
use std::path::{Path, PathBuf};

/// The reason that the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Another service has it open.
    #[error(
        "another lockstep serve uses the data folder {0}; stop it, or pass --data-dir with \
         another folder"
    )]
    InUse(PathBuf),
    /// Made by another version of Lockstep.
    #[error(
        "the data folder {folder} is of version {found}, and this lockstep reads version \
         {VERSION}; pass --data-dir with another folder"
    )]
    OtherVersion {
        /// The data folder.
        folder: PathBuf,
        /// The version that its tables say.
        found: i64,
    },
    /// The operating system refused something.
    #[error("cannot {doing} {path}: {cause}")]
    Files {
        /// The attempt, in words.
        doing: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// SQLite refused something.
    #[error("the list of runs cannot be read or written: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row that this version did not write.
    #[error("the list of runs is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
}

pub(super) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_path_buf();
    move |cause| StoreError::Files { doing, path, cause }
}
