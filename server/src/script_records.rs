//! Training scripts that the page hands in, recorded by the user's own PyTorch: `lockstep record` as a process of its
//! own, in a folder of its own. What remains of them is in memory.

use crate::child_group::ChildGroup;
use axum::body::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The most recordings that are kept; the oldest makes room.
const MAX_KEPT: usize = 4;

/// A recording past this is ended.
const MAX_TIME: Duration = Duration::from_secs(900);

/// The time that a recording has to end by itself when it is told to.
const GRACE: Duration = Duration::from_secs(5);

/// The time that Python has to import torch, which takes a minute from a cold disk.
const IMPORT_TIME: Duration = Duration::from_secs(120);

/// The output that is kept of a recording: its end.
const MAX_OUTPUT: usize = 64 << 10;

/// A plan past this is not handed to a page.
const MAX_PLAN_BYTES: u64 = 1 << 30;

const PAUSE: Duration = Duration::from_millis(50);

/// The most ranks that the page asks for: each is a process here.
const MAX_WORLD_SIZE: u32 = 64;

/// The most files of a script.
const MAX_FILES: usize = 200;

/// A file of a script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptFile {
    /// Its path beside the script: `train.py`, `models/net.py`.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A script to be recorded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedScript {
    /// The script first, then the files that it imports.
    pub(crate) files: Vec<ScriptFile>,
    pub(crate) world_size: u32,
    /// Each rank ends after so many optimizer steps; at its end if absent.
    #[serde(default)]
    pub(crate) steps: Option<u32>,
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
}

/// The reason that a script is not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// Whoever reaches the port would execute code here.
    #[error("scripts are recorded only where the service asks for its token: leave --no-token out")]
    NoToken,
    /// One at a time: the ranks of a recording take all processors.
    #[error("another script is being recorded; cancel it, or wait for its end")]
    Busy,
    #[error("a script has 1 to {MAX_FILES} files, not {0}")]
    Files(usize),
    #[error("the page records 1 to {MAX_WORLD_SIZE} ranks, not {0}; `lockstep record` takes more")]
    WorldSize(u32),
    #[error("{0:?} is no name of a file beside the script")]
    Name(String),
    #[error("cannot start `lockstep record`: {0}")]
    Start(#[from] std::io::Error),
}

/// A recording as the API tells it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScriptRecord {
    id: u64,
    /// The end of what the script and `lockstep record` have printed.
    output: String,
    ended: bool,
    /// True once its plan is there.
    has_plan: bool,
}

#[derive(Debug, Default)]
struct Kept {
    output: String,
    ended: bool,
    stops: bool,
    plan: Option<Bytes>,
}

#[derive(Debug, Default)]
struct Jobs {
    last: u64,
    kept: BTreeMap<u64, Kept>,
}

/// All scripts that were handed in.
#[derive(Clone, Debug)]
pub(crate) struct ScriptRecords {
    jobs: Arc<Mutex<Jobs>>,
    torch: Arc<OnceLock<Result<String, String>>>,
    /// False where anybody may ask.
    has_token: bool,
}

impl ScriptRecords {
    /// None so far.
    pub(crate) fn new(has_token: bool) -> ScriptRecords {
        ScriptRecords { jobs: Arc::default(), torch: Arc::default(), has_token }
    }

    /// The version of torch that this machine's Python has, or why it has none. Blocks while Python imports it, once.
    pub(crate) fn torch(&self) -> Result<String, String> {
        if !self.has_token {
            return Err(RecordError::NoToken.to_string());
        }
        self.torch.get_or_init(torch_version).clone()
    }

    /// Begins to record a script, and returns its number.
    ///
    /// # Errors
    /// As [`RecordError`] says.
    pub(crate) fn start(&self, asked: AskedScript) -> Result<u64, RecordError> {
        if !self.has_token {
            return Err(RecordError::NoToken);
        }
        if asked.files.is_empty() || asked.files.len() > MAX_FILES {
            return Err(RecordError::Files(asked.files.len()));
        }
        if !(1..=MAX_WORLD_SIZE).contains(&asked.world_size) {
            return Err(RecordError::WorldSize(asked.world_size));
        }
        let id = {
            let mut jobs = self.jobs();
            if jobs.kept.values().any(|job| !job.ended) {
                return Err(RecordError::Busy);
            }
            jobs.last += 1;
            let id = jobs.last;
            jobs.kept.insert(id, Kept::default());
            while jobs.kept.len() > MAX_KEPT {
                jobs.kept.pop_first();
            }
            id
        };
        match begun(&asked) {
            Ok((folder, group)) => {
                let records = self.clone();
                std::thread::spawn(move || records.keep(id, folder, group));
                Ok(id)
            }
            Err(error) => {
                self.jobs().kept.remove(&id);
                Err(error)
            }
        }
    }

    /// A recording, as far as it has come.
    pub(crate) fn get(&self, id: u64) -> Option<ScriptRecord> {
        let jobs = self.jobs();
        let job = jobs.kept.get(&id)?;
        let (output, ended, has_plan) = (job.output.clone(), job.ended, job.plan.is_some());
        Some(ScriptRecord { id, output, ended, has_plan })
    }

    /// The plan of a recording that has ended.
    pub(crate) fn plan(&self, id: u64) -> Option<Bytes> {
        self.jobs().kept.get(&id)?.plan.clone()
    }

    /// Ends a recording; false if there is none of this number.
    pub(crate) fn stop(&self, id: u64) -> bool {
        let mut jobs = self.jobs();
        let Some(job) = jobs.kept.get_mut(&id) else { return false };
        job.stops = true;
        true
    }

    /// Ends what is being recorded, and waits until its processes are gone. Blocks for that long.
    pub(crate) fn shut_down(&self) {
        self.jobs().kept.values_mut().for_each(|job| job.stops = true);
        let until = Instant::now() + GRACE + GRACE;
        while self.jobs().kept.values().any(|job| !job.ended) && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// Watches a recording until its end.
    fn keep(&self, id: u64, folder: TempDir, mut group: ChildGroup) {
        let readers = [
            group.child.stdout.take().map(|out| self.reads(id, out)),
            group.child.stderr.take().map(|out| self.reads(id, out)),
        ];
        let end_at = Instant::now() + MAX_TIME;
        let mut told_at = None;
        while matches!(group.child.try_wait(), Ok(None)) {
            let stops = self.jobs().kept.get(&id).is_none_or(|job| job.stops);
            match told_at {
                None if stops || Instant::now() >= end_at => {
                    // It ends its ranks, and writes what it has.
                    interrupt(&group.child);
                    told_at = Some(Instant::now());
                }
                Some(told_at) if told_at + GRACE < Instant::now() => break,
                _ => {}
            }
            std::thread::sleep(PAUSE);
        }
        drop(group);
        for reader in readers.into_iter().flatten() {
            let _ = reader.join();
        }
        let plan = plan_in(folder.path());
        if let Some(job) = self.jobs().kept.get_mut(&id) {
            (job.plan, job.ended) = (plan, true);
        }
    }

    /// Keeps the end of an output as it comes.
    fn reads(&self, id: u64, output: impl Read + Send + 'static) -> std::thread::JoinHandle<()> {
        let records = self.clone();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output
                .by_ref()
                .take(MAX_OUTPUT as u64)
                .read_until(b'\n', &mut line)
                .is_ok_and(|n| n > 0)
            {
                if let Some(job) = records.jobs().kept.get_mut(&id) {
                    job.output.push_str(&String::from_utf8_lossy(&line));
                    let over = job.output.len().saturating_sub(MAX_OUTPUT);
                    let from = (over..).find(|at| job.output.is_char_boundary(*at)).unwrap_or(0);
                    job.output.drain(..from);
                }
                line.clear();
            }
        })
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        // Whatever panicked, an entry is there or not.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interrupt(child: &Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // One that has ended just now is what is wanted.
        let _ = kill_process(pid, Signal::INT);
    }
}

/// The name of the plan that `lockstep record` writes.
const PLAN: &str = "recorded.plan";

/// The files of a script in a folder, and `lockstep record` at work on them.
fn begun(asked: &AskedScript) -> Result<(TempDir, ChildGroup), RecordError> {
    let folder = tempfile::tempdir()?;
    let script_folder = folder.path().join("script");
    for file in &asked.files {
        let path = script_folder.join(inside(&file.name)?);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, &file.text)?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("record").arg("--world-size").arg(asked.world_size.to_string());
    if let Some(steps) = asked.steps {
        command.arg("--steps").arg(steps.to_string());
    }
    command.arg("-o").arg(folder.path().join(PLAN)).arg("--").arg(&asked.files[0].name);
    command.args(&asked.arguments).current_dir(&script_folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok((folder, ChildGroup::spawn(&mut command)?))
}

/// The path of a file beside the script; nothing leads out of its folder.
fn inside(name: &str) -> Result<PathBuf, RecordError> {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    match plain && !name.is_empty() && !name.starts_with('-') {
        true => Ok(path.to_owned()),
        false => Err(RecordError::Name(name.chars().take(80).collect())),
    }
}

/// The plan that was written, if one was and it is none too large.
fn plan_in(folder: &Path) -> Option<Bytes> {
    let path = folder.join(PLAN);
    let small = std::fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_PLAN_BYTES);
    small.then(|| std::fs::read(path).ok().map(Bytes::from)).flatten()
}

/// Asks Python for the version of its torch.
fn torch_version() -> Result<String, String> {
    let python = crate::commands::record::python(None);
    let name = python.display().to_string();
    let mut command = Command::new(python);
    command.args(["-c", "import torch; print(torch.__version__)"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut group = ChildGroup::spawn(&mut command)
        .map_err(|error| format!("cannot start {name} ({error}); LOCKSTEP_PYTHON names another"))?;
    let end_at = Instant::now() + IMPORT_TIME;
    while matches!(group.child.try_wait(), Ok(None)) && Instant::now() < end_at {
        std::thread::sleep(PAUSE);
    }
    let mut version = String::new();
    let is_over = matches!(group.child.try_wait(), Ok(Some(status)) if status.success());
    if let Some(out) = group.child.stdout.take().filter(|_| is_over) {
        let _ = out.take(100).read_to_string(&mut version);
    }
    match version.trim() {
        "" => Err(format!("{name} has no torch; LOCKSTEP_PYTHON names a Python that has")),
        version => Ok(version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_the_scripts_folder() {
        assert_eq!(inside("models/net.py").unwrap(), Path::new("models/net.py"));
        for name in ["", "/etc/passwd", "../x.py", "a/../../x.py", "-m", "."] {
            assert!(inside(name).is_err(), "{name}");
        }
    }

    #[test]
    fn without_a_token_nothing_is_executed() {
        let records = ScriptRecords::new(false);
        let file = ScriptFile { name: "train.py".into(), text: String::new() };
        let asked =
            AskedScript { files: vec![file], world_size: 2, steps: None, arguments: Vec::new() };
        assert!(matches!(records.start(asked), Err(RecordError::NoToken)));
        assert!(records.torch().is_err());
    }
}
