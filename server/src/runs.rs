//! Real runs in progress: each is drained by a thread of its own into its trace file, and whoever
//! wants to watch reads that file as it grows. A late watcher thus gets everything, and a slow one
//! costs no memory.

use super::commands::run::against_simulation;
use super::store::error::StoreError;
use super::store::{RunEnd, RunRecord, Store};
use super::{late_faults, terminal};
use lockstep_core::plan::{Fault, Plan};
use lockstep_core::trace::{Outcome, Trace, TraceEnd, TraceWriter};
use lockstep_diagnosis::diagnose_trace;
use lockstep_gpu_exec::{
    Backend, Command, RankLauncher, RunControl, RunError, RunEvent, RunHandle, RunOptions,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Runs at the same time: each may use every core.
pub(crate) const MAX_CONCURRENT: usize = 2;

/// Ranks of one run.
pub(crate) const MAX_WORLD_SIZE: u32 = 64;

/// A run whose trace grows past this is ended.
const MAX_TRACE_BYTES: u64 = 256 << 20;

/// A run that takes longer is ended.
const MAX_DURATION: Duration = Duration::from_secs(30 * 60);

/// Time that the service waits for its runs to end when it is stopping.
const SHUTDOWN: Duration = Duration::from_secs(20);

/// The reason that a run was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Enough are running.
    #[error(
        "{MAX_CONCURRENT} runs are in progress, and no more may run at the same time; wait for \
         one to end or cancel it"
    )]
    TooMany,
    /// More ranks than the service starts.
    #[error(
        "the plan has {0} ranks, but a run here may have at most {MAX_WORLD_SIZE}; simulate it, \
         or use `lockstep run`"
    )]
    TooManyRanks(u32),
    /// The service is on its way out.
    #[error("the service is shutting down")]
    ShuttingDown,
    /// The executor refused.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It could not be listed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its trace could not be kept.
    #[error("cannot keep the run's trace: {0}")]
    Trace(#[from] io::Error),
}

/// The reason that a run's trace does not go on.
#[derive(Debug, thiserror::Error)]
enum TraceFileError {
    #[error(
        "its trace passed the limit of {MAX_TRACE_BYTES} bytes; run it with record_messages off"
    )]
    TooLong,
    #[error("its trace could not be written: {0}")]
    Write(std::io::Error),
}

/// The progress of a run's trace file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes of whole frames in the file.
    pub(crate) bytes: u64,
    /// True once no more will come.
    pub(crate) done: bool,
}

/// The runs of the service.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<Store>,
    launcher: RankLauncher,
    places: Arc<Semaphore>,
    live: Mutex<BTreeMap<u64, Live>>,
}

#[derive(Debug)]
struct Live {
    control: RunControl,
    progress: watch::Receiver<Progress>,
    /// True if the run was paused and not resumed since.
    paused: bool,
}

impl Runs {
    /// No runs yet; ranks are started by `launcher`.
    pub(crate) fn new(store: Arc<Store>, launcher: RankLauncher) -> Runs {
        let places = Arc::new(Semaphore::new(MAX_CONCURRENT));
        Runs { shared: Arc::new(Shared { store, launcher, places, live: Mutex::default() }) }
    }

    /// The launcher that starts the ranks of runs.
    pub(crate) fn launcher(&self) -> RankLauncher {
        self.shared.launcher.clone()
    }

    /// Passes if another run could be started now.
    ///
    /// # Errors
    /// The service is shutting down, or too many runs are in progress.
    pub(crate) fn check_room(&self) -> Result<(), StartError> {
        match (self.shared.places.is_closed(), self.shared.places.available_permits()) {
            (true, _) => Err(StartError::ShuttingDown),
            (false, 0) => Err(StartError::TooMany),
            (false, _) => Ok(()),
        }
    }

    /// Starts a run and returns its place in the list once its ranks have joined. Blocks until
    /// then.
    ///
    /// # Errors
    /// When it may not or cannot be started; no process is left then. Nothing is listed either,
    /// unless its ranks had joined: a run whose trace cannot be kept is listed as failed.
    pub(crate) fn start(
        &self,
        plan: Plan,
        executor: &dyn Backend,
        options: RunOptions,
    ) -> Result<RunRecord, StartError> {
        let shared = &self.shared;
        if plan.world_size > MAX_WORLD_SIZE {
            return Err(StartError::TooManyRanks(plan.world_size));
        }
        let place = match shared.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(tokio::sync::TryAcquireError::NoPermits) => return Err(StartError::TooMany),
            Err(tokio::sync::TryAcquireError::Closed) => return Err(StartError::ShuttingDown),
        };
        let options = RunOptions { max_duration: MAX_DURATION, ..options };
        let faults = options.faults.clone();
        let asked = (!faults.is_empty()).then(|| asked_json(&plan, &faults));
        let handle = executor.start(plan, options)?;
        // With its faults.
        let Some(plan) = handle.header().plan.clone() else {
            return Err(StartError::Trace(io::Error::other("its head has no plan")));
        };
        let id = shared.store.add_run(&plan.name, executor.name().name(), plan.world_size)?;
        let header = TraceWriter::header(handle.header());
        let file = match shared.begin_files(id, &header, asked) {
            Ok(file) => file,
            Err(error) => {
                let outcome = Outcome::Failed { why: format!("its trace cannot be kept: {error}") };
                shared.store.end_run(id, &RunEnd { outcome, report: None, comparison: None })?;
                return Err(StartError::Trace(error));
            }
        };
        let (progress, watched) =
            watch::channel(Progress { bytes: header.len() as u64, done: false });
        let control = handle.control();
        shared.live().insert(id, Live { control, progress: watched, paused: false });
        if shared.places.is_closed() {
            // The service was told to stop while the ranks were joining.
            handle.cancel();
        }
        let keeper = Keeper { shared: shared.clone(), id, file, progress, plan, faults };
        std::thread::spawn(move || keeper.keep(handle, place));
        match shared.store.run(id)? {
            Some(record) => Ok(record),
            None => Err(StartError::Trace(io::ErrorKind::NotFound.into())),
        }
    }

    /// Tells a run something; false when it is not in progress.
    pub(crate) fn tell(&self, id: u64, command: Command) -> bool {
        let mut live = self.shared.live();
        let Some(run) = live.get_mut(&id) else { return false };
        match command {
            Command::Pause => run.paused = true,
            Command::Resume | Command::Cancel => run.paused = false,
            Command::Dump => {}
        }
        run.control.tell(command);
        true
    }

    /// True if a run is paused; false if it is not in progress.
    pub(crate) fn is_paused(&self, id: u64) -> bool {
        self.shared.live().get(&id).is_some_and(|run| run.paused)
    }

    /// The progress of the trace of a run in progress, now and later; `None` when it is not in
    /// progress.
    pub(crate) fn progress(&self, id: u64) -> Option<watch::Receiver<Progress>> {
        self.shared.live().get(&id).map(|run| run.progress.clone())
    }

    /// Cancels every run, refuses new ones, and waits until all have ended and are written down.
    pub(crate) async fn shut_down(&self) {
        self.shared.places.close();
        let running: Vec<_> = {
            let live = self.shared.live();
            live.values().for_each(|run| run.control.tell(Command::Cancel));
            live.values().map(|run| run.progress.clone()).collect()
        };
        let ended = async {
            for mut progress in running {
                // The thread drops its end of the channel when all is written down.
                while progress.changed().await.is_ok() {}
            }
        };
        if tokio::time::timeout(SHUTDOWN, ended).await.is_err() {
            terminal::note("lockstep: a run did not end in time and was left");
        }
        for id in self.shared.store.write_ends() {
            terminal::note(&format!(
                "lockstep: the end of run {id} could not be written into the list; its trace is kept"
            ));
        }
    }
}

/// The plan and the faults of a run, as a request for the same run has them.
fn asked_json(plan: &Plan, faults: &[Fault]) -> String {
    let faults: Vec<String> = faults.iter().map(|fault| format!("\"{fault}\"")).collect();
    format!("{{\"faults\":[{}],\"plan\":{}}}", faults.join(","), plan.to_json())
}

impl Shared {
    fn begin_files(&self, id: u64, header: &[u8], asked: Option<String>) -> io::Result<File> {
        if let Some(asked) = asked {
            std::fs::write(self.store.asked_file(id), asked)?;
        }
        let mut file = File::create(self.store.run_file(id))?;
        file.write_all(header)?;
        Ok(file)
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, Live>> {
        // Whatever panicked, an entry is there or not.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the trace of one run, in a thread of its own.
struct Keeper {
    shared: Arc<Shared>,
    id: u64,
    file: File,
    progress: watch::Sender<Progress>,
    plan: Arc<Plan>,
    faults: Vec<Fault>,
}

impl Keeper {
    fn keep(mut self, handle: RunHandle, place: OwnedSemaphorePermit) {
        let mut refused = None;
        while let Ok(event) = handle.events().recv() {
            let events = match event {
                RunEvent::Events(events) => events,
                RunEvent::Dumped(dump) => {
                    let kept =
                        self.shared.store.keep_dump(self.id, &dump.file_name(), &dump.pickle);
                    if let Err(error) = kept {
                        terminal::note(&format!("lockstep: run {}: {error}", self.id));
                    }
                    continue;
                }
                RunEvent::Ended(_) => break,
            };
            if refused.is_none()
                && let Err(why) = self.append(&TraceWriter::events(&events))
            {
                // Events so far stay readable; the ranks need not go on.
                handle.cancel();
                refused = Some(why);
            }
        }
        let ended = handle.join();
        let end = match refused {
            Some(why) => TraceEnd {
                time_ps: ended.time_ps,
                outcome: Outcome::Failed { why: why.to_string() },
            },
            None => ended,
        };
        // Past the limit there is still room for the end.
        if let Err(why) = self.write(&TraceWriter::end(&end)) {
            terminal::note(&format!("lockstep: run {}: {why}", self.id));
        }
        let (report, comparison) = match self.trace() {
            Some(trace) => {
                let mut report = diagnose_trace(&trace);
                report.notes.extend(late_faults::notes(&self.faults, &trace));
                (Some(report), against_simulation(&self.plan, &trace))
            }
            None => (None, None),
        };
        let end = RunEnd { outcome: end.outcome, report, comparison };
        // In this order: who finds the run in the list as ended may start the next, and who sees it
        // done finds it so.
        drop(place);
        if let Err(error) = self.shared.store.end_run(self.id, &end) {
            terminal::note(&format!("lockstep: run {}: {error}", self.id));
        }
        self.progress.send_modify(|progress| progress.done = true);
        self.shared.live().remove(&self.id);
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), TraceFileError> {
        let length = self.progress.borrow().bytes + bytes.len() as u64;
        if length > MAX_TRACE_BYTES {
            return Err(TraceFileError::TooLong);
        }
        self.write(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TraceFileError> {
        if let Err(error) = self.file.write_all(bytes) {
            // Half a frame would make what follows unreadable.
            let whole = self.progress.borrow().bytes;
            let _ = self.file.set_len(whole).and_then(|()| self.file.seek(SeekFrom::Start(whole)));
            return Err(TraceFileError::Write(error));
        }
        self.progress.send_modify(|progress| progress.bytes += bytes.len() as u64);
        Ok(())
    }

    fn trace(&self) -> Option<Trace> {
        let bytes = std::fs::read(self.shared.store.run_file(self.id)).ok()?;
        Trace::from_bytes(&bytes).ok()
    }
}
