//! What outlives the service: the list of runs and traces in SQLite, their bytes in files beside
//! it.
//!
//! A run's row is written when it starts and again when it ends. One that still says `running`
//! when the store is opened belonged to a service that crashed: it is marked `interrupted`, and its
//! trace can be read up to where it was cut off.

use lockstep_core::diagnosis::Report;
use lockstep_core::trace::{Origin, Outcome};
use lockstep_sim::Comparison;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The tables' version; a store of another one is refused.
const VERSION: i64 = 1;

/// When there are more runs, or traces, the oldest go.
const MAX_KEPT: usize = 200;

const TABLES: &str = "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        backend TEXT NOT NULL,
        world_size INTEGER NOT NULL,
        state TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        ended_ms INTEGER,
        outcome TEXT,
        report TEXT,
        comparison TEXT
    );
    CREATE TABLE traces (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        origin TEXT NOT NULL,
        world_size INTEGER NOT NULL,
        created_ms INTEGER NOT NULL,
        report TEXT NOT NULL
    );
";

/// Why the store cannot be used.
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
        /// Where.
        folder: PathBuf,
        /// What its tables say.
        found: i64,
    },
    /// The operating system refused something.
    #[error("cannot {doing} {path}: {source}")]
    Files {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// SQLite refused something.
    #[error("the list of runs cannot be read or written: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row that this version did not write.
    #[error("the list of runs is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
}

/// How far a run got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    /// Its ranks are at work.
    Running,
    /// It ended; its outcome says how.
    Ended,
    /// The service ended first.
    Interrupted,
}

/// A run as the list has it, and as the API sends it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunRecord {
    pub(crate) id: u64,
    /// The plan's name.
    pub(crate) name: String,
    pub(crate) backend: String,
    pub(crate) world_size: u32,
    pub(crate) state: RunState,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) outcome: Option<Outcome>,
    /// The diagnosis once it has ended.
    pub(crate) report: Option<Report>,
    /// Against the simulator, once it has ended.
    pub(crate) comparison: Option<Comparison>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub(crate) outcome: Outcome,
    pub(crate) report: Option<Report>,
    pub(crate) comparison: Option<Comparison>,
}

/// An uploaded trace as the list has it, and as the API sends it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TraceRecord {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) world_size: u32,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
    pub(crate) report: Report,
}

/// The list and the files beside it.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    list: Mutex<Connection>,
    /// Held while the store is open: a second service would take our runs for crashed ones.
    _lock: File,
}

impl Store {
    /// Opens the store in a folder and makes it if there is none.
    ///
    /// # Errors
    /// When the folder cannot be used, or another service uses it.
    pub(crate) fn open(folder: &Path) -> Result<Store, StoreError> {
        for part in ["runs", "traces"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(at("make the folder", &path))?;
        }
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(at("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::InUse(folder.into())),
            Err(fs::TryLockError::Error(error)) => return Err(at("lock", &path)(error)),
        }
        let list = Connection::open(folder.join("lockstep.sqlite"))?;
        list.pragma_update(None, "journal_mode", "WAL")?;
        match list.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))? {
            VERSION => {}
            0 => {
                let made = list.execute_batch(&format!(
                    "BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"
                ));
                made?;
            }
            found => return Err(StoreError::OtherVersion { folder: folder.into(), found }),
        }
        list.execute("UPDATE runs SET state = 'interrupted' WHERE state = 'running'", [])?;
        Ok(Store { folder: folder.into(), list: Mutex::new(list), _lock: lock })
    }

    /// Where a run's trace is.
    pub(crate) fn run_file(&self, id: u64) -> PathBuf {
        self.folder.join("runs").join(format!("{id}.lks"))
    }

    /// Where an uploaded trace is.
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
            remove(&self.run_file(id))?;
        }
        Ok(id as u64)
    }

    /// Writes down how a run ended.
    pub(crate) fn end_run(&self, id: u64, end: &RunEnd) -> Result<(), StoreError> {
        self.list().execute(
            "UPDATE runs SET state = 'ended', ended_ms = ?2, outcome = ?3, report = ?4,
             comparison = ?5 WHERE id = ?1",
            params![
                id as i64,
                now_ms(),
                serde_json::to_string(&end.outcome)?,
                to_json(end.report.as_ref())?,
                to_json(end.comparison.as_ref())?,
            ],
        )?;
        Ok(())
    }

    /// Every run, newest first.
    pub(crate) fn runs(&self) -> Result<Vec<RunRecord>, StoreError> {
        let list = self.list();
        let mut statement = list.prepare(&format!("{SELECT_RUN} ORDER BY id DESC"))?;
        let mut rows = statement.query([])?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            runs.push(run_of(row)?);
        }
        Ok(runs)
    }

    /// One run, if there is such a one.
    pub(crate) fn run(&self, id: u64) -> Result<Option<RunRecord>, StoreError> {
        let found = self
            .list()
            .query_row(&format!("{SELECT_RUN} WHERE id = ?1"), [id as i64], |row| Ok(run_of(row)))
            .optional()?;
        found.transpose()
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
        let list = self.list();
        list.execute(
            "INSERT INTO traces (name, origin, world_size, created_ms, report)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                name,
                serde_json::to_string(origin)?,
                world_size,
                created_ms,
                serde_json::to_string(report)?,
            ],
        )?;
        let id = list.last_insert_rowid() as u64;
        let path = self.trace_file(id);
        if let Err(error) = fs::write(&path, bytes) {
            // What was written of it, and its place in the list, must not stay behind.
            let _ = fs::remove_file(&path);
            list.execute("DELETE FROM traces WHERE id = ?1", [id as i64])?;
            return Err(at("write", &path)(error));
        }
        let old = forget(&list, "traces", "")?;
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
            traces.push(trace_of(row)?);
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

const SELECT_RUN: &str = "SELECT id, name, backend, world_size, state, created_ms, ended_ms, \
                          outcome, report, comparison FROM runs";

const SELECT_TRACE: &str = "SELECT id, name, origin, world_size, created_ms, report FROM traces";

fn run_of(row: &Row<'_>) -> Result<RunRecord, StoreError> {
    let state = match row.get_ref(4)?.as_str().unwrap_or_default() {
        "running" => RunState::Running,
        "ended" => RunState::Ended,
        _ => RunState::Interrupted,
    };
    Ok(RunRecord {
        id: row.get::<_, i64>(0)? as u64,
        name: row.get(1)?,
        backend: row.get(2)?,
        world_size: row.get(3)?,
        state,
        created_ms: row.get::<_, i64>(5)? as u64,
        ended_ms: row.get::<_, Option<i64>>(6)?.map(|ms| ms as u64),
        outcome: from_json(row, 7)?,
        report: from_json(row, 8)?,
        comparison: from_json(row, 9)?,
    })
}

fn trace_of(row: &Row<'_>) -> Result<TraceRecord, StoreError> {
    Ok(TraceRecord {
        id: row.get::<_, i64>(0)? as u64,
        name: row.get(1)?,
        origin: serde_json::from_str(&row.get::<_, String>(2)?)?,
        world_size: row.get(3)?,
        created_ms: row.get::<_, i64>(4)? as u64,
        report: serde_json::from_str(&row.get::<_, String>(5)?)?,
    })
}

fn to_json<T: Serialize>(value: Option<&T>) -> Result<Option<String>, StoreError> {
    Ok(value.map(serde_json::to_string).transpose()?)
}

fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>, StoreError> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

/// Takes what is over the limit off a list and returns its ids.
fn forget(list: &Connection, table: &str, only: &str) -> Result<Vec<u64>, StoreError> {
    let mut statement = list.prepare(&format!(
        "DELETE FROM {table} WHERE id IN
         (SELECT id FROM {table} ORDER BY id DESC LIMIT -1 OFFSET {MAX_KEPT}) {only} RETURNING id"
    ))?;
    let ids = statement.query_map([], |row| row.get::<_, i64>(0))?;
    Ok(ids.map(|id| id.map(|id| id as u64)).collect::<Result<_, _>>()?)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", path)(error)),
        _ => Ok(()),
    }
}

fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_path_buf();
    move |source| StoreError::Files { doing, path, source }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_second_service_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Store::open(folder.path()).unwrap();
        let refused = Store::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("--data-dir"), "{refused}");
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
