//! The data that outlives the service: the list of runs and traces in SQLite, their bytes in files
//! beside it.
//!
//! A run's row is written when it starts and again when it ends. One that still says `running`
//! when the store is opened belonged to a service that crashed: it has ended as its trace says, or is marked
//! `interrupted`, and its trace can be read up to where it was cut off. An uploaded trace is in the list and in its file,
//! or in neither. A file that the list does not have is taken into it again (`adopt`), never removed.

mod adopt;
pub(crate) mod error;
mod files;
mod record;
mod tables;

pub(crate) use record::{RunEnd, RunRecord, RunState, TraceRecord};

use adopt::Sides;
use error::{StoreError, at};
use files::{INCOMING, remove};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Origin, rank_of_file_name};
use lockstep_diagnosis::Report;
use lockstep_gpu_exec::RankDump;
use record::{SELECT_RUN, SELECT_TRACE, now_ms, run_of, to_json, trace_of};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tables::TABLE_NAMES;

/// When there are more runs, or traces, the oldest go.
const MAX_KEPT: usize = 200;

/// The list and the files beside it.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    list: Mutex<Connection>,
    /// Runs whose end the list did not take, on a full disk for example, with the time of their end. Writing
    /// them is tried again at every request for runs.
    unwritten: Mutex<BTreeMap<u64, (RunEnd, i64)>>,
    /// Numbers for files that are being written.
    incoming: AtomicU64,
    /// See [`Store::notes`].
    notes: Vec<String>,
    /// Held while the store is open: a second service would take our runs for crashed ones.
    _lock: File,
}

impl Store {
    /// Opens the store in a folder and makes it if there is none.
    ///
    /// # Errors
    /// When the folder cannot be used, or another service uses it.
    pub(crate) fn open(folder: &Path) -> Result<Store, StoreError> {
        for part in TABLE_NAMES {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(at("make the folder", &path))?;
        }
        let lock = locked(folder)?;
        let mut notes = Vec::new();
        let list = adopt::open_list(folder, &mut notes)?;
        adopt::settle_running(&list, &folder.join("runs"))?;
        for table in TABLE_NAMES {
            adopt::adopt(&list, table, &folder.join(table), &mut notes)?;
        }
        // A run without its trace still says how it ended; an uploaded trace is nothing else.
        let Sides { rows, files } = Sides::of(&list, "traces", &folder.join("traces"))?;
        for id in rows.difference(&files) {
            list.execute("DELETE FROM traces WHERE id = ?1", [*id as i64])?;
            notes.push(format!("the file of uploaded trace {id} is gone, and so is its row"));
        }
        Ok(Store {
            folder: folder.into(),
            list: Mutex::new(list),
            unwritten: Mutex::default(),
            incoming: AtomicU64::new(0),
            notes,
            _lock: lock,
        })
    }

    /// Puts the list aside, under another name, so that [`Store::open`] makes a new one from the files.
    ///
    /// # Errors
    /// When a service uses the folder, or the list cannot be renamed.
    pub(crate) fn forget_list(folder: &Path) -> Result<(), StoreError> {
        let _lock = locked(folder)?;
        match folder.join(adopt::LIST).exists() {
            true => adopt::put_aside(folder).map(drop),
            false => Ok(()),
        }
    }

    /// Reports the faults that were found when the store was opened, a sentence each.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The path of a run's trace.
    pub(crate) fn run_file(&self, id: u64) -> PathBuf {
        self.folder.join("runs").join(format!("{id}.lks"))
    }

    /// The path of the plan and the faults that a run was asked for, if it was asked for faults: its trace holds the
    /// plan with the faults in it.
    pub(crate) fn asked_file(&self, id: u64) -> PathBuf {
        self.folder.join("runs").join(format!("{id}.asked.json"))
    }

    /// The folder of a run's Flight Recorder dumps, if it left any.
    pub(crate) fn dump_folder(&self, id: u64) -> PathBuf {
        self.folder.join("runs").join(format!("{id}.dumps"))
    }

    /// Keeps a rank's flight recorder dump; a later dump replaces it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn keep_dump(&self, id: u64, name: &str, pickle: &[u8]) -> Result<(), StoreError> {
        let folder = self.dump_folder(id);
        fs::create_dir_all(&folder).map_err(at("make the folder", &folder))?;
        let path = folder.join(name);
        fs::write(&path, pickle).map_err(at("write", &path))
    }

    /// The ranks that left a dump, ascending.
    pub(crate) fn dumped_ranks(&self, id: u64) -> Vec<GlobalRank> {
        let entries = fs::read_dir(self.dump_folder(id)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut ranks: Vec<_> = names.filter_map(|name| rank_of_file_name(&name).ok()).collect();
        ranks.sort_unstable();
        ranks
    }

    /// The path of an uploaded trace.
    pub(crate) fn trace_file(&self, id: u64) -> PathBuf {
        self.folder.join("traces").join(format!("{id}.lks"))
    }

    /// Lists a run that has begun, and returns its id.
    pub(crate) fn add_run(
        &self,
        name: &str,
        backend: &str,
        world_size: u32,
    ) -> Result<u64, StoreError> {
        let list = self.list();
        list.execute(
            "INSERT INTO runs (name, backend, world_size, state, created_ms)
             VALUES (?1, ?2, ?3, 'running', ?4)",
            params![name, backend, world_size, now_ms()],
        )?;
        let id = list.last_insert_rowid();
        let old = forget(&list, "runs", "AND state <> 'running'")?;
        drop(list);
        for id in old {
            self.remove_run_files(id)?;
        }
        Ok(id as u64)
    }

    /// Gives a run another name in the list; false if there is no such run.
    pub(crate) fn rename_run(&self, id: u64, name: &str) -> Result<bool, StoreError> {
        let list = self.list();
        let renamed =
            list.execute("UPDATE runs SET name = ?2 WHERE id = ?1", params![id as i64, name])?;
        Ok(renamed > 0)
    }

    /// Removes a run that does not go on, its trace and its dumps; false if there is no such run. The
    /// row goes last: a file without a row would be taken into the list again.
    pub(crate) fn delete_run(&self, id: u64) -> Result<bool, StoreError> {
        if self.run(id)?.is_none_or(|run| run.state == RunState::Running) {
            return Ok(false);
        }
        self.remove_run_files(id)?;
        self.unwritten().remove(&id);
        self.list().execute("DELETE FROM runs WHERE id = ?1", [id as i64])?;
        Ok(true)
    }

    /// Removes the files that the service wrote for a run. Other files in its folder stay there.
    fn remove_run_files(&self, id: u64) -> Result<(), StoreError> {
        remove(&self.run_file(id))?;
        remove(&self.asked_file(id))?;
        let folder = self.dump_folder(id);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(at("read the folder", &folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(at("read the folder", &folder))?;
            if RankDump::rank_of_file(&entry.file_name().to_string_lossy()).is_some() {
                remove(&entry.path())?;
            }
        }
        match fs::remove_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                Err(at("remove", &folder)(error))
            }
            _ => Ok(()),
        }
    }

    /// Records how a run ended. If the record cannot be written, the end is still reported as long as the
    /// service runs, and written as soon as it can be.
    ///
    /// # Errors
    /// When it could not be written.
    pub(crate) fn end_run(&self, id: u64, end: &RunEnd) -> Result<(), StoreError> {
        let ended_ms = now_ms();
        let written = self.write_end(id, end, ended_ms);
        if written.is_err() {
            self.unwritten().insert(id, (end.clone(), ended_ms));
        }
        written
    }

    /// Tries again to write down the ends that could not be; the runs whose end still cannot.
    pub(crate) fn write_ends(&self) -> Vec<u64> {
        let mut unwritten = self.unwritten();
        unwritten.retain(|id, (end, ended_ms)| self.write_end(*id, end, *ended_ms).is_err());
        unwritten.keys().copied().collect()
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<u64, (RunEnd, i64)>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run as it is, whatever the list has of it.
    fn as_it_is(&self, run: RunRecord) -> RunRecord {
        match self.unwritten().get(&run.id) {
            Some((end, ended_ms)) => run.ended(end, *ended_ms as u64),
            None => run,
        }
    }

    fn write_end(&self, id: u64, end: &RunEnd, ended_ms: i64) -> Result<(), StoreError> {
        self.list().execute(
            "UPDATE runs SET state = 'ended', ended_ms = ?2, outcome = ?3, report = ?4,
             comparison = ?5 WHERE id = ?1",
            params![
                id as i64,
                ended_ms,
                serde_json::to_string(&end.outcome)?,
                to_json(end.report.as_ref())?,
                to_json(end.comparison.as_ref())?,
            ],
        )?;
        Ok(())
    }

    /// Every run, newest first.
    pub(crate) fn runs(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.write_ends();
        let list = self.list();
        let mut statement = list.prepare(&format!("{SELECT_RUN} ORDER BY id DESC"))?;
        let mut rows = statement.query([])?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            // A row that holds something else altogether takes no other away.
            runs.extend(run_of(row).ok());
        }
        drop(rows);
        drop(statement);
        drop(list);
        Ok(runs.into_iter().map(|run| self.as_it_is(run)).collect())
    }

    /// One run, if there is such a one.
    pub(crate) fn run(&self, id: u64) -> Result<Option<RunRecord>, StoreError> {
        self.write_ends();
        let found = self
            .list()
            .query_row(&format!("{SELECT_RUN} WHERE id = ?1"), [id as i64], |row| Ok(run_of(row)))
            .optional()?;
        Ok(found.transpose()?.map(|run| self.as_it_is(run)))
    }

    /// Keeps an uploaded trace, and returns how it is listed.
    pub(crate) fn add_trace(
        &self,
        name: &str,
        origin: &Origin,
        world_size: u32,
        report: &Report,
        bytes: &[u8],
    ) -> Result<TraceRecord, StoreError> {
        let created_ms = now_ms();
        let (origin_json, report_json) =
            (serde_json::to_string(origin)?, serde_json::to_string(report)?);
        // The bytes first, under a name that means nothing yet, and while others use the list: a
        // crash before the commit leaves a file without a place in the list, which the next start
        // removes, and never a place without its file.
        let number = self.incoming.fetch_add(1, Ordering::Relaxed);
        let incoming = self.folder.join("traces").join(format!("{number}{INCOMING}"));
        let written = File::create(&incoming).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&incoming);
            return Err(at("write", &incoming)(error));
        }
        let mut list = self.list();
        let change = list.transaction()?;
        change.execute(
            "INSERT INTO traces (name, origin, world_size, created_ms, report)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![name, origin_json, world_size, created_ms, report_json],
        )?;
        let id = change.last_insert_rowid() as u64;
        let path = self.trace_file(id);
        let old = forget(&change, "traces", "")?;
        let moved = fs::rename(&incoming, &path).and_then(|()| {
            // The name, too, must be on the disk before the list says that it is.
            File::open(self.folder.join("traces"))?.sync_all()
        });
        if let Err(error) = moved {
            let _ = fs::remove_file(&incoming).and(fs::remove_file(&path));
            return Err(at("write", &path)(error));
        }
        if let Err(error) = change.commit() {
            let _ = fs::remove_file(&path);
            return Err(error.into());
        }
        drop(list);
        for id in old {
            remove(&self.trace_file(id))?;
        }
        let (name, origin, report) = (name.to_owned(), origin.clone(), report.clone());
        Ok(TraceRecord { id, name, origin, world_size, created_ms: created_ms as u64, report })
    }

    /// Every uploaded trace, newest first.
    pub(crate) fn traces(&self) -> Result<Vec<TraceRecord>, StoreError> {
        let list = self.list();
        let mut statement = list.prepare(&format!("{SELECT_TRACE} ORDER BY id DESC"))?;
        let mut rows = statement.query([])?;
        let mut traces = Vec::new();
        while let Some(row) = rows.next()? {
            traces.extend(trace_of(row).ok());
        }
        Ok(traces)
    }

    /// One uploaded trace, if there is such a one.
    pub(crate) fn trace(&self, id: u64) -> Result<Option<TraceRecord>, StoreError> {
        let found = self
            .list()
            .query_row(&format!("{SELECT_TRACE} WHERE id = ?1"), [id as i64], |row| {
                Ok(trace_of(row))
            })
            .optional()?;
        found.transpose()
    }

    fn list(&self) -> MutexGuard<'_, Connection> {
        // A statement is whole or rolled back, whoever panicked.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lock of a folder: a second service would take our runs for crashed ones.
fn locked(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join("lock");
    let lock = File::create(&path).map_err(at("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(StoreError::InUse(folder.into())),
        Err(fs::TryLockError::Error(error)) => Err(at("lock", &path)(error)),
    }
}

/// Removes the rows past the limit from a list and returns their ids.
fn forget(list: &Connection, table: &str, only: &str) -> Result<Vec<u64>, StoreError> {
    let mut statement = list.prepare(&format!(
        "DELETE FROM {table} WHERE id IN
         (SELECT id FROM {table} ORDER BY id DESC LIMIT -1 OFFSET {MAX_KEPT}) {only} RETURNING id"
    ))?;
    let ids = statement.query_map([], |row| row.get::<_, i64>(0))?;
    Ok(ids.map(|id| id.map(|id| id as u64)).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::group::{BackendName, ProcessGroup};
    use lockstep_core::trace::{Outcome, Trace, TraceEnd, TraceHeader};

    fn trace() -> Trace {
        let origin = Origin::Run { backend: "host".into(), device: "2 processes".into() };
        let groups = vec![ProcessGroup::world(2, BackendName::Host).unwrap()];
        let header = TraceHeader { origin, world_size: 2, groups, plan: None, epoch_ns: 7 };
        let end = Some(TraceEnd { time_ps: 1000, outcome: Outcome::Completed });
        Trace { header, events: Vec::new(), end }
    }

    #[test]
    fn a_run_that_never_ended_is_interrupted_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (first, second) =
            (store.add_run("a", "host", 2).unwrap(), store.add_run("b", "host", 3).unwrap());
        let outcome = Outcome::Completed;
        let report = Some(Report::healthy(2));
        store.end_run(first, &RunEnd { outcome, report, comparison: None }).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        let runs = store.runs().unwrap();
        assert_eq!(runs.iter().map(|run| run.id).collect::<Vec<_>>(), [second, first]);
        assert_eq!(runs[0].state, RunState::Interrupted);
        assert_eq!(runs[1].state, RunState::Ended);
        assert_eq!(runs[1].outcome, Some(Outcome::Completed));
    }

    /// The list takes nothing more: ended runs are reported as ended, and written once there is room.
    #[test]
    fn the_end_of_a_run_on_a_full_disk_is_told_and_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let id = store.add_run("a", "host", 2).unwrap();
        let pages = |most: u32| {
            let set =
                store.list().pragma_update_and_check(None, "max_page_count", most, |_| Ok(()));
            set.unwrap();
        };
        pages(1);
        let outcome = Outcome::Failed { why: "no space left ".repeat(10_000) };
        let end = RunEnd { outcome: outcome.clone(), report: None, comparison: None };
        assert!(store.end_run(id, &end).is_err());
        let of_list = || {
            store
                .list()
                .query_row("SELECT state FROM runs", [], |row| row.get::<_, String>(0))
                .unwrap()
        };
        assert_eq!(of_list(), "running");
        for run in [store.run(id).unwrap().unwrap(), store.runs().unwrap().remove(0)] {
            assert_eq!((run.state, run.outcome), (RunState::Ended, Some(outcome.clone())));
            assert!(run.ending.is_some() && run.ended_ms.is_some());
        }
        assert_eq!(store.write_ends(), [id]);
        pages(1 << 20);
        assert_eq!(store.run(id).unwrap().unwrap().state, RunState::Ended);
        assert_eq!(of_list(), "ended");
    }

    /// The list has no end for the run, but its trace has.
    #[test]
    fn a_run_whose_trace_ends_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let id = store.add_run("a", "host", 2).unwrap();
        fs::write(store.run_file(id), trace().to_bytes()).unwrap();
        drop(store);
        let run = Store::open(folder.path()).unwrap().run(id).unwrap().unwrap();
        assert_eq!((run.state, run.outcome), (RunState::Ended, Some(Outcome::Completed)));
        assert!(run.report.is_some());
    }

    #[test]
    fn a_second_service_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Store::open(folder.path()).unwrap();
        let refused = Store::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("--data-dir"), "{refused}");
    }

    #[test]
    fn what_is_not_in_the_list_is_kept_and_taken_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let traces = folder.path().join("traces");
        let store = Store::open(folder.path()).unwrap();
        let report = Report::healthy(2);
        let origin = Origin::Run { backend: "host".to_owned(), device: "cpu".to_owned() };
        let add = || store.add_trace("a", &origin, 2, &report, b"bytes").unwrap().id;
        let (kept, lost) = (add(), add());
        let run = store.add_run("a", "host", 2).unwrap();
        assert_eq!(fs::read(store.trace_file(kept)).unwrap(), b"bytes");
        assert_eq!(fs::read_dir(&traces).unwrap().count(), 2);
        fs::remove_file(store.trace_file(lost)).unwrap();
        let strays = [store.trace_file(99), store.run_file(99), traces.join("notes.txt")];
        for stray in strays.iter().chain([&traces.join("7.incoming")]) {
            fs::write(stray, "x").unwrap();
        }
        let found = trace();
        fs::write(store.trace_file(50), found.to_bytes()).unwrap();
        fs::write(store.run_file(51), found.to_bytes()).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        let ids: Vec<u64> = store.traces().unwrap().iter().map(|trace| trace.id).collect();
        assert_eq!(ids, [50, kept]);
        assert!(!traces.join("7.incoming").exists());
        assert!(strays.iter().all(|stray| stray.exists()) && store.trace_file(kept).exists());
        assert!(store.run(run).unwrap().is_some());
        let adopted = store.run(51).unwrap().unwrap();
        assert_eq!((adopted.state, adopted.outcome), (RunState::Ended, Some(Outcome::Completed)));
        assert_eq!(store.notes().len(), 6, "{:?}", store.notes());
        // A new run does not take the place of a file that could not be read.
        assert_eq!(store.add_run("b", "host", 2).unwrap(), 100);
    }

    #[test]
    fn a_list_that_is_gone_or_damaged_is_made_from_the_files() {
        type Harm = fn(&Path);
        let harms: [Harm; 4] = [
            |list| fs::write(list, "").unwrap(),
            |list| fs::remove_file(list).unwrap(),
            |list| fs::write(list, [7; 9000]).unwrap(),
            |list| {
                let mut bytes = fs::read(list).unwrap();
                bytes[4096..].fill(0xa5);
                fs::write(list, bytes).unwrap();
            },
        ];
        for (number, harm) in harms.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path()).unwrap();
            let report = Report::healthy(2);
            let bytes = trace().to_bytes();
            let uploaded =
                store.add_trace("a", &trace().header.origin, 2, &report, &bytes).unwrap().id;
            let run = store.add_run("a", "host", 2).unwrap();
            fs::write(store.run_file(run), &bytes).unwrap();
            drop(store);
            for end in ["-wal", "-shm"] {
                let _ = fs::remove_file(folder.path().join(format!("{}{end}", adopt::LIST)));
            }
            harm(&folder.path().join(adopt::LIST));
            let store = Store::open(folder.path()).unwrap();
            assert!(store.trace(uploaded).unwrap().is_some(), "{number}: {:?}", store.notes());
            assert!(store.run(run).unwrap().is_some(), "{number}: {:?}", store.notes());
            assert_eq!(fs::read(store.run_file(run)).unwrap(), bytes);
        }
    }

    #[test]
    fn a_deleted_run_takes_only_what_the_service_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let end = RunEnd { outcome: Outcome::Unknown, report: None, comparison: None };
        let ids = [1, 2].map(|_| {
            let id = store.add_run("a", "host", 2).unwrap();
            fs::write(store.run_file(id), "x").unwrap();
            store.keep_dump(id, "nccl_trace_rank_0", b"x").unwrap();
            id
        });
        assert!(!store.delete_run(ids[0]).unwrap(), "it still runs");
        ids.iter().for_each(|id| store.end_run(*id, &end).unwrap());
        let own = store.dump_folder(ids[1]).join("notes.txt");
        fs::write(&own, "mine").unwrap();
        for id in ids {
            assert!(store.rename_run(id, "the slow one").unwrap());
            assert_eq!(store.run(id).unwrap().unwrap().name, "the slow one");
            assert!(store.delete_run(id).unwrap());
            assert!(!store.delete_run(id).unwrap() && !store.rename_run(id, "a").unwrap());
            assert!(!store.run_file(id).exists() && store.run(id).unwrap().is_none());
        }
        assert!(!store.dump_folder(ids[0]).exists() && own.exists());
        assert!(!store.dump_folder(ids[1]).join("nccl_trace_rank_0").exists());
        // The numbers of deleted runs are not given again.
        assert_eq!(store.add_run("b", "host", 2).unwrap(), 3);
    }

    #[test]
    fn the_oldest_runs_go_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for index in 0..MAX_KEPT + 3 {
            let id = store.add_run("a", "host", 2).unwrap();
            fs::write(store.run_file(id), "x").unwrap();
            if index != 1 {
                let end = RunEnd { outcome: Outcome::Unknown, report: None, comparison: None };
                store.end_run(id, &end).unwrap();
            }
        }
        // The second run still runs: it stays.
        let kept: Vec<u64> = store.runs().unwrap().iter().map(|run| run.id).collect();
        assert_eq!(kept.len(), MAX_KEPT + 1);
        assert_eq!(kept.last(), Some(&2));
        assert!(!store.run_file(1).exists() && store.run_file(2).exists());
    }
}
