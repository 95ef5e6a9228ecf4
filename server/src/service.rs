//! The state that every handler of the service can use.

use super::admission::Admission;
use super::commands::version::Version;
use super::findings::Findings;
use super::runs::Runs;
use super::script_records::ScriptRecords;
use super::store::Store;
use super::watched_jobs::WatchedJobs;
use std::sync::Arc;

/// The state that every handler can use.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) store: Arc<Store>,
    pub(crate) runs: Runs,
    pub(crate) findings: Findings,
    pub(crate) version: Arc<Version>,
    pub(crate) watched: WatchedJobs,
    pub(crate) records: ScriptRecords,
    /// Bounds the memory of request bodies.
    pub(crate) admission: Admission,
}
