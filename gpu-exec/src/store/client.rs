//! A rank's end of the store.

use super::wire::{Answer, Request, read_frame, write_frame};
use super::{Store, StoreError};
use crate::clock;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How much longer than a request's own timeout its answer may take.
const SLACK: Duration = Duration::from_secs(5);

/// A connection to a [`super::StoreServer`].
#[derive(Debug)]
pub struct StoreClient {
    stream: TcpStream,
}

impl StoreClient {
    /// Connects.
    ///
    /// # Errors
    /// When nobody answers there within `timeout`.
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<StoreClient, StoreError> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SLACK))?;
        Ok(StoreClient { stream })
    }

    fn ask(&mut self, request: &Request, timeout: Duration) -> Result<Answer, StoreError> {
        self.stream.set_read_timeout(Some(timeout.saturating_add(SLACK)))?;
        write_frame(&mut self.stream, request)?;
        Ok(read_frame(&mut self.stream)?)
    }

    fn ask_at_once(&mut self, request: &Request) -> Result<Answer, StoreError> {
        self.ask(request, Duration::ZERO)
    }
}

fn unexpected(answer: &Answer) -> StoreError {
    StoreError::Connection(io::Error::other(format!("it answered {answer:?}")))
}

fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

impl Store for StoreClient {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let bytes = key.len() + value.len() + 16;
        if bytes > super::wire::MAX_FRAME_BYTES {
            return Err(StoreError::TooLong { bytes });
        }
        match self.ask_at_once(&Request::Set { key: key.to_owned(), value: value.to_vec() })? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn get(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError> {
        let timeout_ns = clock::nanoseconds(timeout);
        match self.ask(&Request::Get { key: key.to_owned(), timeout_ns }, timeout)? {
            Answer::Value(value) => Ok(value),
            Answer::Timeout { key } => Err(StoreError::Timeout { key, timeout }),
            other => Err(unexpected(&other)),
        }
    }

    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        match self.ask_at_once(&Request::Add { key: key.to_owned(), by })? {
            Answer::Number(sum) => Ok(sum),
            Answer::NotANumber => Err(StoreError::NotANumber { key: key.to_owned() }),
            other => Err(unexpected(&other)),
        }
    }

    fn wait(&mut self, keys: &[&str], timeout: Duration) -> Result<(), StoreError> {
        let timeout_ns = clock::nanoseconds(timeout);
        match self.ask(&Request::Wait { keys: owned(keys), timeout_ns }, timeout)? {
            Answer::Done => Ok(()),
            Answer::Timeout { key } => Err(StoreError::Timeout { key, timeout }),
            other => Err(unexpected(&other)),
        }
    }

    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let (expected, desired) = (expected.to_vec(), desired.to_vec());
        match self.ask_at_once(&Request::CompareSet { key: key.to_owned(), expected, desired })? {
            Answer::Value(value) => Ok(value),
            other => Err(unexpected(&other)),
        }
    }

    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        match self.ask_at_once(&Request::Check { keys: owned(keys) })? {
            Answer::Truth(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }

    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError> {
        match self.ask_at_once(&Request::DeleteKey { key: key.to_owned() })? {
            Answer::Truth(deleted) => Ok(deleted),
            other => Err(unexpected(&other)),
        }
    }
}
