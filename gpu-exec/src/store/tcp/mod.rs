//! `TCPStore`: one process serves the table, the others ask it, in PyTorch's own protocol
//! (`TCPStoreBackend.hpp`, `TCPStore.cpp` and `TCPStoreLibUvBackend.cpp` of 2.7; the server also
//! answers what later ones ask: queues, the list of keys, barriers).

mod client;
mod held;
mod server;
mod wire;

pub use client::StoreClient;
pub use server::StoreServer;

use super::{DEFAULT_TIMEOUT, Store, StoreError};
use lockstep_torch::c10d::{DistError, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The key under which a server's workers count themselves.
const WORKERS: &str = "init/";

/// Interval at which a server looks whether all its workers have come, as in c10d.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The options of a [`TcpStore`]: the arguments of `torch.distributed.TCPStore`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpStoreOptions {
    /// True if this process serves the store (`is_master`).
    pub is_server: bool,
    /// The number of users (`world_size`), which are then counted as they come.
    pub num_workers: Option<u32>,
    /// True if the server returns only once all clients have come.
    pub wait_for_workers: bool,
    /// The time to wait: for the server, for the workers, and for keys.
    pub timeout: Duration,
}

impl Default for TcpStoreOptions {
    fn default() -> TcpStoreOptions {
        TcpStoreOptions {
            is_server: false,
            num_workers: None,
            wait_for_workers: true,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

/// `torch.distributed.TCPStore`: a connection to a served store, and in one of its processes the
/// server too.
#[derive(Debug)]
pub struct TcpStore {
    // Before the server, so that it closes first.
    client: StoreClient,
    server: Option<StoreServer>,
    address: SocketAddr,
}

impl TcpStore {
    /// Serves a store at `address` (port 0 for a free one) or connects to the one there.
    ///
    /// # Errors
    /// When there is no server, or not all workers come in time.
    pub fn new(address: SocketAddr, options: &TcpStoreOptions) -> Result<TcpStore, StoreError> {
        let server = match options.is_server {
            true => Some(StoreServer::listen(address).map_err(StoreError::Connection)?),
            false => None,
        };
        let address = server.as_ref().map_or(address, StoreServer::address);
        let client = StoreClient::connect(address, options.timeout)?;
        let mut store = TcpStore { client, server, address };
        if let (true, Some(workers)) = (options.wait_for_workers, options.num_workers) {
            store.wait_for_workers(workers, options.timeout)?;
        }
        Ok(store)
    }

    /// The address at which it is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait_for_workers(&mut self, workers: u32, timeout: Duration) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut joined = self.client.add_raw(WORKERS, 1)?;
        while self.server.is_some() && joined < i64::from(workers) {
            if started.elapsed() >= timeout {
                let text = format!(
                    "Timed out after {} seconds waiting for clients. {joined}/{workers} clients \
                     joined.",
                    started.elapsed().as_secs()
                );
                return Err(DistError::new(ErrorKind::DistStoreError, text).into());
            }
            std::thread::sleep(LOOK_AGAIN);
            joined = self.client.add_raw(WORKERS, 0)?;
        }
        Ok(())
    }
}

impl Store for TcpStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.client.set(key, value)
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.client.get(key)
    }

    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        self.client.add(key, by)
    }

    fn append(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.client.append(key, value)
    }

    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        self.client.check(keys)
    }

    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        self.client.compare_set(key, expected, desired)
    }

    fn wait(&mut self, keys: &[&str], timeout: Option<Duration>) -> Result<(), StoreError> {
        self.client.wait(keys, timeout)
    }

    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError> {
        self.client.delete_key(key)
    }

    fn num_keys(&mut self) -> Result<u64, StoreError> {
        self.client.num_keys()
    }

    fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        self.client.multi_get(keys)
    }

    fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), StoreError> {
        self.client.multi_set(entries)
    }

    fn timeout(&self) -> Duration {
        self.client.timeout()
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.client.set_timeout(timeout);
    }
}
