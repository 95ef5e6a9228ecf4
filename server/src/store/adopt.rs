//! Traces that lie in the data folder and are not in the list: they are taken into it again. A list that is
//! damaged is put aside, and made anew from the files.

use super::error::{StoreError, at};
use super::files::{INCOMING, remove};
use super::record::{now_ms, to_json};
use super::tables::{TABLES, VERSION};
use lockstep_core::trace::{Origin, Trace};
use lockstep_diagnosis::diagnose_whole_trace;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the list in the data folder.
pub(super) const LIST: &str = "lockstep.sqlite";

/// The list of a folder, which is made if there is none. One that SQLite cannot read is put aside under
/// another name, which is added to `notes`.
///
/// # Errors
/// When it is of another version, or the folder cannot be written.
pub(super) fn open_list(folder: &Path, notes: &mut Vec<String>) -> Result<Connection, StoreError> {
    let path = folder.join(LIST);
    match opened(&path, folder) {
        Err(StoreError::Sqlite(error)) if path.is_file() => {
            let aside = put_aside(folder)?;
            notes.push(format!(
                "the list of runs is damaged ({error}): it is kept as {}, and a new one is made from the files \
                 beside it",
                aside.display()
            ));
            opened(&path, folder)
        }
        list => list,
    }
}

/// Gives the list another name, and returns it.
///
/// # Errors
/// When it cannot be renamed.
pub(super) fn put_aside(folder: &Path) -> Result<PathBuf, StoreError> {
    let path = folder.join(LIST);
    let aside = folder.join(format!("{LIST}.aside-{}", now_ms()));
    // Changes that SQLite has not merged into the list yet belong to it.
    for end in ["-wal", "-shm"] {
        let part = folder.join(format!("{LIST}{end}"));
        if part.exists() {
            let kept = PathBuf::from(format!("{}{end}", aside.display()));
            fs::rename(&part, &kept).map_err(at("rename", &part))?;
        }
    }
    fs::rename(&path, &aside).map_err(at("rename", &path))?;
    Ok(aside)
}

fn opened(path: &Path, folder: &Path) -> Result<Connection, StoreError> {
    let list = Connection::open(path)?;
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
    let sound: String = list.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound != "ok" {
        let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(damaged, Some(sound)).into());
    }
    Ok(list)
}

/// The numbers of a table's rows, and of the files of its folder, `7.lks`.
pub(super) struct Sides {
    pub(super) rows: BTreeSet<u64>,
    pub(super) files: BTreeSet<u64>,
}

impl Sides {
    /// # Errors
    /// When the list or the folder cannot be read.
    pub(super) fn of(list: &Connection, table: &str, folder: &Path) -> Result<Sides, StoreError> {
        let mut statement = list.prepare(&format!("SELECT id FROM {table}"))?;
        let rows = statement.query_map([], |row| row.get::<_, i64>(0))?;
        let rows = rows.map(|id| id.map(|id| id as u64)).collect::<Result<_, _>>()?;
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(folder).map_err(at("read the folder", folder))? {
            let name = entry.map_err(at("read the folder", folder))?.file_name();
            let name = name.to_string_lossy();
            files.extend(name.strip_suffix(".lks").and_then(|id| id.parse::<u64>().ok()));
        }
        Ok(Sides { rows, files })
    }
}

/// Takes files without a row into the list, and removes files that a crash has left half written. Unreadable
/// files are left where they are, and listed in `notes`.
///
/// # Errors
/// When the list or the folder cannot be read or written.
pub(super) fn adopt(
    list: &Connection,
    table: &str,
    folder: &Path,
    notes: &mut Vec<String>,
) -> Result<(), StoreError> {
    for entry in fs::read_dir(folder).map_err(at("read the folder", folder))? {
        let path = entry.map_err(at("read the folder", folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Nobody was told yet that it is kept.
        if name.ends_with(INCOMING) {
            remove(&path)?;
            continue;
        }
        let number = name.strip_suffix(".lks").or_else(|| name.strip_suffix(".dumps"));
        if number.is_none_or(|number| number.parse::<u64>().is_err()) {
            notes.push(format!(
                "{} was not written by lockstep serve: it stays where it is",
                path.display()
            ));
        }
    }
    let Sides { rows, files } = Sides::of(list, table, folder)?;
    for id in files.difference(&rows) {
        let path = folder.join(format!("{id}.lks"));
        let read = fs::read(&path).map_err(at("read", &path))?;
        match Trace::read(&read) {
            Ok(trace) => {
                add_row(list, table, *id, &path, &trace)?;
                notes.push(format!("{} was not in the list, and is in it again", path.display()));
            }
            Err(error) => notes.push(format!(
                "{} is not in the list and cannot be read ({error}): it stays where it is",
                path.display()
            )),
        }
    }
    // A new run's file must not take the place of one that could not be read.
    if let Some(last) = files.last() {
        let highest = params![table, *last as i64];
        let raised =
            list.execute("UPDATE sqlite_sequence SET seq = MAX(seq, ?2) WHERE name = ?1", highest)?;
        if raised == 0 {
            list.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", highest)?;
        }
    }
    Ok(())
}

/// Settles the runs that a service left running when it ended: those whose trace has an end get its outcome,
/// the others count as interrupted.
///
/// # Errors
/// When the list cannot be read or written.
pub(super) fn settle_running(list: &Connection, folder: &Path) -> Result<(), StoreError> {
    let mut statement = list.prepare("SELECT id FROM runs WHERE state = 'running'")?;
    let ids = statement.query_map([], |row| row.get::<_, i64>(0))?;
    for id in ids.collect::<Result<Vec<_>, _>>()? {
        let read = fs::read(folder.join(format!("{id}.lks"))).ok();
        let trace = read.and_then(|bytes| Trace::read(&bytes).ok());
        let Some(trace) = trace else { continue };
        let Some(end) = &trace.end else { continue };
        list.execute(
            "UPDATE runs SET state = 'ended', ended_ms = created_ms + ?2, outcome = ?3, report = ?4 WHERE id = ?1",
            params![
                id,
                (end.time_ps / 1_000_000_000) as i64,
                to_json(Some(&end.outcome))?,
                to_json(Some(&diagnose_whole_trace(&trace)))?
            ],
        )?;
    }
    list.execute("UPDATE runs SET state = 'interrupted' WHERE state = 'running'", [])?;
    Ok(())
}

/// Adds the row of a trace that was found.
fn add_row(
    list: &Connection,
    table: &str,
    id: u64,
    path: &Path,
    trace: &Trace,
) -> Result<(), StoreError> {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let created_ms = since.map_or_else(now_ms, |since| since.as_millis() as i64);
    let header = &trace.header;
    let name = header.plan.as_deref().map_or("found in the data folder", |plan| &plan.name);
    let report = diagnose_whole_trace(trace);
    if table == "runs" {
        let backend = match &header.origin {
            Origin::Run { backend, .. } => backend.as_str(),
            _ => "unknown",
        };
        let outcome = trace.end.as_ref().map(|end| &end.outcome);
        let state = if outcome.is_some() { "ended" } else { "interrupted" };
        list.execute(
            "INSERT INTO runs (id, name, backend, world_size, state, created_ms, ended_ms, outcome, report)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8)",
            params![
                id as i64,
                name,
                backend,
                header.world_size,
                state,
                created_ms,
                to_json(outcome)?,
                to_json(Some(&report))?
            ],
        )?;
    } else {
        list.execute(
            "INSERT INTO traces (id, name, origin, world_size, created_ms, report)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                id as i64,
                name,
                serde_json::to_string(&header.origin)?,
                header.world_size,
                created_ms,
                serde_json::to_string(&report)?
            ],
        )?;
    }
    Ok(())
}
