//! The tables of the list, and the version of their form.

/// The tables' version; a store of another one is refused.
pub(super) const VERSION: i64 = 1;

/// The tables, each with a folder of its name for their files.
pub(super) const TABLE_NAMES: [&str; 2] = ["runs", "traces"];

pub(super) const TABLES: &str = "
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
