//! The program that is executed for each rank.

use std::ffi::OsString;
use std::path::PathBuf;

/// The command that is executed for each rank: a program that calls
/// [`rank_main`](crate::host::rank_main) when started so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLauncher {
    /// The program: usually `std::env::current_exe()`.
    pub program: PathBuf,
    /// Its arguments: for `lockstep`, the hidden subcommand.
    pub args: Vec<OsString>,
}
