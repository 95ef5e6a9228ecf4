//! A rank before it has joined the others.

use super::clerk::Clerk;
use super::failure::RankFailure;
use super::gate::Gate;
use super::held::Held;
use crate::host::control::{START_KEY, Setup, joined_key};
use crate::store::{Store, StoreClient, StoreError};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The last act of a rank when it gets the order to end.
pub(crate) type Closing = OnceLock<Box<dyn Fn() + Send + Sync>>;

/// A rank before it has joined.
pub(crate) struct Start<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) socket: &'a UnixStream,
    pub(crate) closing: &'a Closing,
    pub(super) held: &'a Arc<Held>,
}

impl Start<'_> {
    /// Joins the others. Returns time 0 of the run on the shared clock.
    pub(crate) fn join(&self) -> Result<u64, RankFailure> {
        match self.setup.launched {
            false => join(self.setup),
            true => self.held.join(self.socket, Duration::from_nanos(self.setup.join_timeout_ns)),
        }
    }

    /// Waits until everybody is done.
    #[cfg(feature = "mpi")]
    pub(crate) fn leave(&self) -> Result<(), RankFailure> {
        self.held.leave()
    }

    /// From here on the coordinator's orders reach these clerks.
    pub(crate) fn serve(&self, clerks: Vec<Arc<Clerk>>) {
        self.held.serve(clerks);
    }

    /// The gate that the program passes before each operation.
    pub(crate) fn gate(&self) -> Arc<Gate> {
        self.held.gate.clone()
    }
}

/// Joins the others through the store. Returns time 0 of the run on the shared clock.
pub(super) fn join(setup: &Setup) -> Result<u64, RankFailure> {
    let timeout = Duration::from_nanos(setup.join_timeout_ns);
    let joining = || -> Result<Vec<u8>, StoreError> {
        let mut store = StoreClient::connect(setup.store, timeout)?;
        store.set(&joined_key(setup.rank), std::process::id().to_string().as_bytes())?;
        store.get(START_KEY)
    };
    let start = joining()?;
    let start = std::str::from_utf8(&start).ok().and_then(|text| text.parse().ok());
    start.ok_or(RankFailure::NotInStore("starting time"))
}
