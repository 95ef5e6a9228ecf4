//! Records scripts that the page sends. Each runs as `lockstep record` in a temporary folder, by the user's own PyTorch.
//! The last four are kept: their outputs in memory, their plans in their folders.

use crate::child_group::ChildGroup;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The most recordings that are kept; the oldest makes room.
const MAX_KEPT: usize = 4;

/// The longest recording; it is then interrupted.
const MAX_TIME: Duration = Duration::from_secs(900);

/// The time that a recording has to end its ranks and to write what it has, once it is told to.
const GRACE: Duration = Duration::from_secs(60);

/// The grace when the service ends.
const CLOSING_GRACE: Duration = Duration::from_secs(5);

/// The longest wait for output after the processes have ended: a process that the script detached may still hold the
/// pipe.
const READ_GRACE: Duration = Duration::from_secs(1);

/// The time that Python has to import torch, which takes a minute from a cold disk.
const IMPORT_TIME: Duration = Duration::from_secs(120);

/// The output that is kept of a recording: its end.
const MAX_OUTPUT: usize = 64 << 10;

/// The largest plan that is handed to a page.
const MAX_PLAN_BYTES: u64 = 1 << 30;

const PAUSE: Duration = Duration::from_millis(50);

/// The most ranks that the page asks for: each is a process here.
const MAX_WORLD_SIZE: u32 = 64;

/// The most files of a script.
const MAX_FILES: usize = 200;

/// The longest path of one, in bytes.
const MAX_NAME: usize = 200;

/// A file of a script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptFile {
    /// Its path beside the script: `train.py`, `models/net.py`.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
}

/// A script to be recorded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedScript {
    /// The script first, then the files that it imports.
    pub(crate) files: Vec<ScriptFile>,
    /// The number of ranks, each of which is a process.
    pub(crate) world_size: u32,
    /// Each rank ends after so many optimizer steps; at its end if absent.
    #[serde(default)]
    pub(crate) steps: Option<u32>,
    /// The script's arguments.
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
    #[error(
        "{0:?} is no name of a file beside the script: give a relative path of up to {MAX_NAME} bytes"
    )]
    Name(String),
    #[error("two files are called {0:?}, or one is a folder of the other")]
    SameName(String),
    #[error("an argument of the script holds a NUL")]
    Argument,
    #[error("the service is shutting down")]
    Closing,
    #[error("the script's files cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

/// A recording as the API tells it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScriptRecord {
    id: u64,
    /// The end of what the script and `lockstep record` have printed.
    output: String,
    ended: bool,
    /// The reason that it was cut off, or ended by an error; its plan then lacks calls.
    cut: Option<String>,
    /// True once its plan is there.
    has_plan: bool,
}

#[derive(Debug, Default)]
struct Kept {
    output: String,
    ended: bool,
    cut: Option<String>,
    stops: bool,
    has_plan: bool,
    /// Holds the script and its plan.
    folder: Option<TempDir>,
}

#[derive(Debug, Default)]
struct Jobs {
    last: u64,
    kept: BTreeMap<u64, Kept>,
    /// True once nothing is to be started any more.
    closing: bool,
}

/// All scripts that were handed in.
#[derive(Clone, Debug)]
pub(crate) struct ScriptRecords {
    jobs: Arc<Mutex<Jobs>>,
    /// The version of torch, once it is known.
    torch: Arc<Mutex<Option<String>>>,
    /// False if the service asks for no token; then no script is executed.
    has_token: bool,
}

impl ScriptRecords {
    /// None so far.
    pub(crate) fn new(has_token: bool) -> ScriptRecords {
        ScriptRecords { jobs: Arc::default(), torch: Arc::default(), has_token }
    }

    /// The version of torch that this machine's Python has, or why it has none. Blocks while Python imports it; asks
    /// again if it had none.
    pub(crate) fn torch(&self) -> Result<String, String> {
        if !self.has_token {
            return Err(RecordError::NoToken.to_string());
        }
        let mut known = self.torch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = &*known {
            return Ok(version.clone());
        }
        let version = torch_version()?;
        *known = Some(version.clone());
        Ok(version)
    }

    /// Begins to record a script, and returns its number.
    ///
    /// # Errors
    /// As [`RecordError`] says.
    pub(crate) fn start(&self, asked: &AskedScript) -> Result<u64, RecordError> {
        if !self.has_token {
            return Err(RecordError::NoToken);
        }
        check(asked)?;
        let folder = tempfile::tempdir()?;
        for file in &asked.files {
            let path = folder.path().join(SCRIPT_FOLDER).join(&file.name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, &file.text)?;
        }
        let command = command(asked, folder.path())?;
        let id = {
            let mut jobs = self.jobs();
            if jobs.closing {
                return Err(RecordError::Closing);
            }
            if jobs.kept.values().any(|job| !job.ended) {
                return Err(RecordError::Busy);
            }
            jobs.last += 1;
            let id = jobs.last;
            let path = folder.path().to_owned();
            jobs.kept.insert(id, Kept { folder: Some(folder), ..Kept::default() });
            while jobs.kept.len() > MAX_KEPT {
                jobs.kept.pop_first();
            }
            (id, path)
        };
        let ends = Ends { records: self.clone(), id: id.0, cut: None };
        std::thread::spawn(move || ends.keep(command, &id.1));
        Ok(id.0)
    }

    /// The recordings that are kept, the newest first.
    pub(crate) fn list(&self) -> Vec<ScriptRecord> {
        let ids: Vec<u64> = self.jobs().kept.keys().rev().copied().collect();
        ids.into_iter().filter_map(|id| self.get(id)).collect()
    }

    /// A recording, as far as it has come.
    pub(crate) fn get(&self, id: u64) -> Option<ScriptRecord> {
        let jobs = self.jobs();
        let job = jobs.kept.get(&id)?;
        let Kept { output, ended, cut, has_plan, .. } = job;
        let (output, cut) = (output.clone(), cut.clone());
        Some(ScriptRecord { id, output, ended: *ended, cut, has_plan: *has_plan })
    }

    /// The file with the plan of a recording that has ended.
    pub(crate) fn plan(&self, id: u64) -> Option<PathBuf> {
        let jobs = self.jobs();
        let job = jobs.kept.get(&id).filter(|job| job.has_plan)?;
        Some(job.folder.as_ref()?.path().join(PLAN))
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
        self.jobs().closing = true;
        let until = Instant::now() + CLOSING_GRACE + 2 * READ_GRACE;
        while self.jobs().kept.values().any(|job| !job.ended) && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// Adds to the output of a recording; its beginning makes room.
    fn say(&self, id: u64, text: &str) {
        if let Some(job) = self.jobs().kept.get_mut(&id) {
            job.output.push_str(text);
            let over = job.output.len().saturating_sub(MAX_OUTPUT);
            let from = (over..).find(|at| job.output.is_char_boundary(*at)).unwrap_or(0);
            job.output.drain(..from);
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
                records.say(id, &String::from_utf8_lossy(&line));
                line.clear();
            }
        })
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        // A panic cannot leave an entry half written.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A recording that goes on. When it is dropped, whatever happened, the recording has ended.
struct Ends {
    records: ScriptRecords,
    id: u64,
    cut: Option<String>,
}

impl Ends {
    /// Starts `lockstep record`, and watches it until its end.
    fn keep(mut self, mut command: Command, folder: &Path) {
        // The process ends with the thread that starts it (`--with-parent`), which is this one.
        let mut group = match ChildGroup::spawn(&mut command) {
            Ok(group) => group,
            Err(error) => {
                self.cut = Some(format!("`lockstep record` cannot be started: {error}"));
                return;
            }
        };
        let readers = [
            group.child.stdout.take().map(|out| self.records.reads(self.id, out)),
            group.child.stderr.take().map(|out| self.records.reads(self.id, out)),
        ];
        let status = self.watch(&mut group);
        drop(group);
        let until = Instant::now() + READ_GRACE;
        let reads = || readers.iter().flatten().any(|reader| !reader.is_finished());
        while reads() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
        self.cut = self.cut.take().or_else(|| match status {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("`lockstep record` ended with {status}")),
            None => Some("`lockstep record` did not end and was killed".to_owned()),
        });
        let bytes = std::fs::metadata(folder.join(PLAN)).ok().map(|file| file.len());
        if let Some(bytes) = bytes.filter(|bytes| *bytes > MAX_PLAN_BYTES) {
            let words = format!(
                "The plan has {bytes} bytes; the page takes {MAX_PLAN_BYTES} at most. Run `lockstep record` at a terminal.\n"
            );
            self.records.say(self.id, &words);
        }
        if let Some(job) = self.records.jobs().kept.get_mut(&self.id) {
            job.has_plan = bytes.is_some_and(|bytes| bytes <= MAX_PLAN_BYTES);
        }
    }

    /// Waits for the end of the process. It is interrupted if it is to stop or takes too long, and then has some time
    /// to write what it has.
    fn watch(&mut self, group: &mut ChildGroup) -> Option<ExitStatus> {
        let end_at = Instant::now() + MAX_TIME;
        let mut told_at = None;
        loop {
            match group.child.try_wait() {
                Ok(None) => {}
                ended => return ended.ok().flatten(),
            }
            let (stops, closing) = {
                let jobs = self.records.jobs();
                (jobs.kept.get(&self.id).is_none_or(|job| job.stops), jobs.closing)
            };
            let grace = if closing { CLOSING_GRACE } else { GRACE };
            match told_at {
                None if stops || closing || Instant::now() >= end_at => {
                    self.cut = Some(match (stops, closing) {
                        (true, _) => "it was stopped".to_owned(),
                        (_, true) => "the service was stopped".to_owned(),
                        _ => format!("{} minutes passed", MAX_TIME.as_secs() / 60),
                    });
                    interrupt(&group.child);
                    told_at = Some(Instant::now());
                }
                Some(told_at) if told_at + grace < Instant::now() => return None,
                _ => {}
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(job) = self.records.jobs().kept.get_mut(&self.id) {
            (job.cut, job.ended) = (self.cut.take(), true);
        }
    }
}

fn interrupt(child: &Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // The process may have ended already.
        let _ = kill_process(pid, Signal::INT);
    }
}

/// The name of the plan that `lockstep record` writes.
const PLAN: &str = "recorded.plan";

/// The folder of the script, beside its plan.
const SCRIPT_FOLDER: &str = "script";

/// Refuses what cannot be recorded, before anything is written.
fn check(asked: &AskedScript) -> Result<(), RecordError> {
    if asked.files.is_empty() || asked.files.len() > MAX_FILES {
        return Err(RecordError::Files(asked.files.len()));
    }
    if !(1..=MAX_WORLD_SIZE).contains(&asked.world_size) {
        return Err(RecordError::WorldSize(asked.world_size));
    }
    if asked.arguments.iter().any(|argument| argument.contains('\0')) {
        return Err(RecordError::Argument);
    }
    let shown = |name: &str| name.chars().take(80).collect();
    let (mut names, mut folders) = (BTreeSet::new(), BTreeSet::new());
    for ScriptFile { name, .. } in &asked.files {
        if !is_beside(name) {
            return Err(RecordError::Name(shown(name)));
        }
        if !names.insert(Path::new(name)) {
            return Err(RecordError::SameName(shown(name)));
        }
        folders.extend(Path::new(name).ancestors().skip(1));
    }
    match names.intersection(&folders).next() {
        Some(name) => Err(RecordError::SameName(shown(&name.to_string_lossy()))),
        None => Ok(()),
    }
}

/// True for the path of a file beside the script: nothing leads out of its folder.
fn is_beside(name: &str) -> bool {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_short = !name.is_empty() && name.len() <= MAX_NAME;
    plain && is_short && !name.starts_with('-') && !name.contains('\0')
}

/// `lockstep record` for a script that lies in a folder.
fn command(asked: &AskedScript, folder: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["record", "--with-parent", "--world-size"]).arg(asked.world_size.to_string());
    if let Some(steps) = asked.steps {
        command.arg("--steps").arg(steps.to_string());
    }
    command.arg("--python").arg(python()?).arg("-o").arg(folder.join(PLAN));
    command.arg("--").arg(&asked.files[0].name).args(&asked.arguments);
    command.current_dir(folder.join(SCRIPT_FOLDER));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// The Python that has torch, as it is found from any folder.
fn python() -> std::io::Result<PathBuf> {
    let python = crate::commands::record::python(None);
    match python.components().count() {
        0 | 1 => Ok(python),
        _ => std::path::absolute(python),
    }
}

/// Asks Python for the version of its torch.
///
/// # Errors
/// Why there is none, and what to do.
fn torch_version() -> Result<String, String> {
    let instead = "set LOCKSTEP_PYTHON to a Python with torch, and start `lockstep serve` again";
    let python = python().map_err(|error| format!("cannot find Python: {error}"))?;
    let name = python.display().to_string();
    let mut command = Command::new(python);
    command.args(["-c", "import torch; print(torch.__version__)"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = ChildGroup::spawn(&mut command)
        .map_err(|error| format!("cannot start {name} ({error}): {instead}"))?;
    let end_at = Instant::now() + IMPORT_TIME;
    while matches!(group.child.try_wait(), Ok(None)) {
        if Instant::now() >= end_at {
            let seconds = IMPORT_TIME.as_secs();
            return Err(format!("{name} did not import torch within {seconds} s: {instead}"));
        }
        std::thread::sleep(PAUSE);
    }
    let (out, errors) = (group.child.stdout.take(), group.child.stderr.take());
    // With the whole group, so that nobody holds the pipes.
    drop(group);
    let read = |pipe: Option<Box<dyn Read>>| {
        let mut bytes = Vec::new();
        let _ = pipe.map(|pipe| pipe.take(MAX_OUTPUT as u64).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).trim().to_owned()
    };
    let version = read(out.map(|pipe| Box::new(pipe) as Box<dyn Read>));
    let said = read(errors.map(|pipe| Box::new(pipe) as Box<dyn Read>));
    match (version.lines().next_back(), said.lines().next_back()) {
        (Some(version), _) => Ok(version.to_owned()),
        (None, last) => {
            Err(format!("{name} has no torch ({}): {instead}", last.unwrap_or("it said nothing")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &[&str]) -> AskedScript {
        let file = |name: &&str| ScriptFile { name: (*name).to_owned(), text: String::new() };
        let files = names.iter().map(file).collect();
        AskedScript { files, world_size: 2, steps: None, arguments: Vec::new() }
    }

    #[test]
    fn nothing_leads_out_of_the_scripts_folder_and_no_file_is_another() {
        assert!(check(&asked(&["train.py", "models/net.py"])).is_ok());
        for name in
            ["", "/etc/passwd", "../x.py", "a/../../x.py", "-m", ".", "a\0b", &"a".repeat(300)]
        {
            assert!(matches!(check(&asked(&[name])), Err(RecordError::Name(_))), "{name}");
        }
        for names in [["a.py", "a.py"], ["a", "a/b.py"]] {
            assert!(matches!(check(&asked(&names)), Err(RecordError::SameName(_))), "{names:?}");
        }
    }

    #[test]
    fn without_a_token_nothing_is_executed() {
        let records = ScriptRecords::new(false);
        assert!(matches!(records.start(&asked(&["train.py"])), Err(RecordError::NoToken)));
        assert!(records.torch().is_err());
    }
}
