//! Python stacks of running or dying processes: py-spy's dumps and faulthandler's tracebacks.
//!
//! They show the position of a rank that made no call. py-spy (`py-spy dump --pid N`, also `--json`) reads a
//! process from outside; `faulthandler` writes from inside, on a fatal error, a signal or a timeout, into
//! whatever its stderr is: a log. The formats are those of py-spy 0.4's `dump.rs` and of CPython 3.8 to
//! 3.15's `Python/traceback.c` and `Modules/faulthandler.c`.

mod faulthandler;
mod json;
mod py_spy;
mod reader;
mod scan;

pub(crate) use reader::StacksReader;
pub use reader::read;

use crate::frames::Libraries;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Frame;

/// The stacks of one process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStacks {
    /// The file.
    pub file_name: String,
    /// The line of the file where they begin, counted from 1.
    pub line: u64,
    /// The rank of the process, if the content of the file says it.
    pub rank: Option<GlobalRank>,
    /// The process's number.
    pub pid: Option<u64>,
    /// The number of its parent, where that is in the file too: a child of a rank is no rank.
    pub parent: Option<u64>,
    /// The reason that the stacks were written.
    pub cause: Cause,
    /// The threads, as listed.
    pub threads: Vec<ThreadStack>,
}

/// The reason that stacks were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Another process read them: the file is no log of the process.
    Outside,
    /// The process wrote them when it was asked to, by a signal or a call.
    Asked,
    /// The process wrote them when a time ran out, `0:00:30`.
    Timeout(String),
    /// The process died of a fatal error: `Segmentation fault`.
    Fatal(String),
}

/// The stack of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadStack {
    /// The thread's number, as Python or the system counts it.
    pub id: Option<u64>,
    /// Its name.
    pub name: Option<String>,
    /// True if it holds the lock of Python's interpreter; `None` if that is not said.
    pub holds_gil: Option<bool>,
    /// True if it waits in the system, false if it computes; `None` if that is not said.
    pub idle: Option<bool>,
    /// The frames, innermost first. Frames of C have a line of 0 if none is known.
    pub frames: Vec<Frame>,
    /// The lines of the file that hold the frames, in their order; empty where frames have no lines of their own.
    pub lines: Vec<u64>,
    /// True if outer frames are left out.
    pub cut: bool,
}

impl ProcessStacks {
    /// The thread that runs the program: the one of that name, or else the last that Python did not start
    /// as a thread.
    pub fn main_thread(&self) -> Option<&ThreadStack> {
        let named = self.threads.iter().find(|it| it.name.as_deref() == Some("MainThread"));
        // faulthandler writes the oldest thread last.
        named.or_else(|| self.threads.iter().rfind(|it| !it.is_started()))
    }
}

/// Files of Python's library as py-spy shortens them: a process waits in these, or is started by them.
const STANDARD: [&str; 20] = [
    "asyncio/",
    "concurrent/",
    "contextlib.py",
    "functools.py",
    "importlib/",
    "multiprocessing/",
    "pickle.py",
    "queue.py",
    "runpy.py",
    "selectors.py",
    "shutil.py",
    "socket.py",
    "socketserver.py",
    "ssl.py",
    "subprocess.py",
    "tempfile.py",
    "threading.py",
    "typing_extensions.py",
    "urllib/",
    "zipfile.py",
];

impl ThreadStack {
    /// The innermost Python frame that is neither PyTorch's nor another library's.
    pub fn user_frame(&self) -> Option<&Frame> {
        self.frames.get(self.user_frame_at()?)
    }

    /// The function of torch.distributed that the user's frame called: `all_reduce`.
    pub fn distributed_call(&self) -> Option<&str> {
        let inner = self.frames.get(..self.user_frame_at()?)?;
        let is_c10d = |it: &&Frame| it.file.ends_with("torch/distributed/distributed_c10d.py");
        inner.iter().rfind(is_c10d).map(|frame| frame.function.as_str())
    }

    /// The line of the file that holds [`ThreadStack::user_frame`].
    pub fn user_frame_line(&self) -> Option<u64> {
        self.lines.get(self.user_frame_at()?).copied()
    }

    fn user_frame_at(&self) -> Option<usize> {
        let libraries = Libraries::of(self.frames.iter().map(|frame| frame.file.as_str()));
        let is_standard = |file: &str| STANDARD.iter().any(|start| file.starts_with(start));
        self.frames.iter().position(|frame| {
            frame.line > 0 && !libraries.hold(&frame.file) && !is_standard(&frame.file)
        })
    }

    /// True if Python started it as a thread.
    fn is_started(&self) -> bool {
        let starts =
            |it: &Frame| it.function.ends_with("_bootstrap") && it.file.ends_with("threading.py");
        self.frames.iter().any(starts)
    }
}

/// The reason that a file of stacks cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StacksError {
    /// It is larger than any dump of stacks.
    #[error(
        "{file} has {bytes} bytes; py-spy's JSON is read up to {}: give the files of single processes",
        json::MAX_JSON_BYTES
    )]
    TooLarge {
        /// The file's name.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// It is cut off or damaged.
    #[error("{file} is no whole output of py-spy dump --json: {why}; copy the whole file again")]
    Damaged {
        /// The file's name.
        file: String,
        /// The problem, with line and column.
        why: String,
    },
}

/// Threads of one file past this many are left out.
const MAX_THREADS: usize = 1 << 16;

/// Outer frames of one thread past this many are left out.
const MAX_FRAMES: usize = 512;

/// Names are read up to this many characters.
const MAX_NAME_CHARS: usize = 512;

/// Lines are read up to this many bytes.
const MAX_LINE_BYTES: usize = 1 << 14;
#[cfg(test)]
mod tests;
