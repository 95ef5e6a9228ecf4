//! The `lockstep` binary, and the data that tests give it.

use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The result of a finished command.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// The text on standard output.
    pub out: String,
    /// The text on standard error.
    pub err: String,
}

/// The time that a test waits for work of milliseconds, on a machine that is busy building.
pub struct Patience;

impl Patience {
    /// Until a test gives up.
    pub const LIMIT: Duration = Duration::from_secs(60);

    /// Calls `look` until it finds something.
    ///
    /// # Panics
    /// When it has not found anything within [`Patience::LIMIT`].
    pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if start.elapsed() > Patience::LIMIT {
                panic!("waited {:?} for {what}", Patience::LIMIT);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs `lockstep` to its end. Its runs and uploads, if any, go to a folder that is thrown away.
///
/// # Panics
/// When it cannot be run, or says something that is no text.
pub fn lockstep<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    let mut command = command();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("lockstep starts");
    let pid = Pid::from_raw(child.id() as i32).expect("a process id");
    // Whatever a test finds, it ends: a command that hangs is killed, and its exit code is -1.
    let (done, ended) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if ended.recv_timeout(Patience::LIMIT) == Err(RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let output = child.wait_with_output().expect("lockstep ends");
    drop(done);
    guard.join().expect("the guard ends");
    Output {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("output is text"),
        err: String::from_utf8(output.stderr).expect("errors are text"),
    }
}

/// `lockstep`, as built for the tests.
///
/// # Panics
/// When it has not been built.
pub(crate) fn command() -> Command {
    let mut command = Command::new(binary());
    // A panic's message would be hard to tell from an error's without its trace.
    command.env("RUST_BACKTRACE", "0");
    command
}

/// The path of the binary.
///
/// # Panics
/// When it has not been built.
pub fn binary() -> PathBuf {
    if let Some(binary) = std::env::var_os("LOCKSTEP_BIN") {
        return binary.into();
    }
    // target/debug/deps/cli-1234 lies below target/debug/lockstep.
    let beside =
        std::env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.join("lockstep")));
    match beside {
        Some(binary) if binary.is_file() => binary,
        _ => missing(),
    }
}

fn missing() -> ! {
    panic!(
        "the lockstep binary is not built: run `cargo xtask test`, or \
         `cargo build --profile test -p lockstep-server` first"
    )
}

/// A path below `tests/data`.
pub fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(path)
}

/// A process that is killed when the test ends, however it ends.
#[derive(Debug)]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
