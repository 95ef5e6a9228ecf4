//! The border between a format and the rest. A [`Reader`] reads one file and returns [`Contribution`]s;
//! a [`CallSource`] joins the calls of all files of its format.
//!
//! `recording` joins the contributions of a job's files by their kind, and hands them to the diagnosis as
//! they are.

use crate::job_calls::{JobCalls, Shows};
use crate::job_log::JobLog;
use crate::problem::{FileProblem, MixedFiles};
use crate::stacks::ProcessStacks;
use lockstep_core::rank::GlobalRank;
use std::any::Any;
use std::fmt::Debug;

/// A file to be read.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Its name, with the folders that distinguish it from other files of the job.
    pub name: &'a str,
    /// Its bytes. A text is in UTF-8, or nearly.
    pub bytes: &'a [u8],
}

/// A reader of one format. It never panics, and its time and memory are bounded by the file's size.
pub trait Reader: Sync {
    /// The name of its folder.
    fn name(&self) -> &'static str;

    /// True if the file looks like this format, by its name and its first bytes.
    fn recognises(&self, file: File<'_>) -> bool;

    /// Reads a file that it recognises. Nothing found is an empty list.
    ///
    /// # Errors
    /// When the file is damaged, too large or of no use.
    fn read(&self, file: File<'_>) -> Result<Vec<Contribution>, FileProblem>;

    /// True if finding something does not end the search: later readers get the text too.
    fn reads_lines(&self) -> bool {
        false
    }

    /// The source that joins the calls that it contributes; `None` if it contributes none.
    fn calls(&self) -> Option<&'static dyn CallSource> {
        None
    }
}

/// A format whose files hold calls.
pub trait CallSource: Debug + Sync {
    /// The name of its folder.
    fn name(&self) -> &'static str;

    /// The completeness of its calls.
    fn shows(&self) -> Shows;

    /// Joins the calls of a job's files, in any order; `None` if they hold none. Files that it leaves out are
    /// added to `problems`, where the files that could not be read are already.
    ///
    /// # Errors
    /// It is unclear which files belong together.
    fn join(
        &self,
        files: Vec<FileCalls>,
        problems: &mut Vec<FileProblem>,
    ) -> Result<Option<JobCalls>, MixedFiles>;

    /// Takes out of the files of another source (`others`) those of ranks that have no file in `own`, as files of this
    /// source: they are joined together, so that their groups and numbers are the same.
    fn adopt(&self, own: &[FileCalls], others: &mut Vec<FileCalls>) -> Vec<FileCalls> {
        let _ = (own, others);
        Vec::new()
    }

    /// True if a rank that left nothing in a fuller source may be taken from this one, where the job did not hang.
    fn has_whole_ranks(&self) -> bool {
        false
    }

    /// True if [`CallSource::join`] separates the files of one job and moment from others; the folders of its
    /// files then show which other files are of the job.
    fn picks_the_job(&self) -> bool {
        false
    }

    /// A sentence about the additions of these calls to those of a fuller source.
    fn filled_in(&self, filled: &Filled) -> String;

    /// Moves the bulk of a file's calls into memory that the calling thread allocates. An allocator may give each thread
    /// memory of its own, as glibc's does: that of a thread that reads file after file is of no use to others later.
    fn move_here(&self, calls: &mut FileCalls) {
        let _ = calls;
    }

    /// A file's calls as bytes, to be sent to another worker; `None` if it has no such form.
    fn pack(&self, calls: &FileCalls) -> Option<Vec<u8>> {
        let _ = calls;
        None
    }

    /// The inverse; `None` if the bytes are none of this source's.
    fn unpack(&self, bytes: &[u8]) -> Option<FileCalls> {
        let _ = bytes;
        None
    }
}

/// One kind of data that a file holds.
#[derive(Debug)]
pub enum Contribution {
    /// Calls, in the form of the format that they were recorded in.
    Calls(FileCalls),
    /// The messages of a log. A log without any is a contribution too: its rank reported nothing.
    Log(Box<JobLog>),
    /// The stacks of processes. Exit codes and signals are statements of a log.
    Stacks(Vec<ProcessStacks>),
}

/// The calls of one file. Only the source that read them knows their form.
#[derive(Debug)]
pub struct FileCalls {
    /// The source, which also joins the calls of a job's files.
    pub source: &'static dyn CallSource,
    /// The file's name.
    pub file_name: String,
    content: Box<dyn Any + Send>,
}

impl FileCalls {
    /// The calls of a file as `source` reads them.
    pub(crate) fn new<T: Any + Send>(
        source: &'static dyn CallSource,
        file_name: &str,
        content: T,
    ) -> FileCalls {
        FileCalls { source, file_name: file_name.to_owned(), content: Box::new(content) }
    }

    /// The source's content of the file; `None` if another source made it.
    pub(crate) fn content<T: Any>(&self) -> Option<&T> {
        self.content.downcast_ref()
    }

    /// The same, to be changed.
    pub(crate) fn content_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.content.downcast_mut()
    }

    /// The same, taken out.
    pub(crate) fn into_content<T: Any>(self) -> Option<T> {
        self.content.downcast().ok().map(|content| *content)
    }
}

/// The additions of one source's calls to another's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Calls of the source that was read for it.
    pub of_calls: usize,
    /// Ranks that both sources recorded.
    pub ranks: usize,
    /// Calls that were found in both.
    pub calls: usize,
    /// Reductions that were not known before.
    pub reductions: usize,
    /// Roots that were not known before.
    pub roots: usize,
    /// Calls whose start was not known before.
    pub times: usize,
    /// Computations of devices, of ranks of which none were known before.
    pub computations: usize,
    /// Ranks whose calls all come from this source, since the other source has none of theirs.
    pub whole_ranks: Vec<GlobalRank>,
}
