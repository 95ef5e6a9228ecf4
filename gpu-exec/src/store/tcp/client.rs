//! A process's end of a TCP store.

use super::wire::{
    MAX_AT_ONCE_BYTES, MAX_HELD_BYTES, MAX_KEY_BYTES, MAX_KEYS, MAX_VALUE_BYTES, NOT_READY, Query,
    READY, STOP_WAITING, VALIDATION, WAIT_CANCELED, Writer,
};
use crate::store::{Store, StoreError, timed_out};
use lockstep_torch::c10d::store::StoreKind;
use lockstep_torch::c10d::{DistError, ErrorKind};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Time within which the server has to answer a request that needs no waiting: on a machine that is
/// busy it is not at once.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Time that it has at the least to answer the first word: whoever connects waits no longer than it
/// wants to, if that is more.
const GREETS_WITHIN: Duration = Duration::from_secs(5);

/// A value is received in pieces of this many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The pause before another attempt to connect.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// A connection to a [`StoreServer`](super::StoreServer), or to PyTorch's.
#[derive(Debug)]
pub struct StoreClient {
    stream: TcpStream,
    timeout: Duration,
}

impl StoreClient {
    /// Connects, trying again until `timeout`, which is the store's from then on.
    ///
    /// # Errors
    /// No server answers there in time.
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<StoreClient, StoreError> {
        let started = Instant::now();
        let stream = loop {
            let left = timeout.saturating_sub(started.elapsed());
            let attempt = match left.is_zero() {
                true => Err(io::ErrorKind::TimedOut.into()),
                false => TcpStream::connect_timeout(&address, left),
            };
            match attempt {
                Ok(stream) => break stream,
                Err(_) if started.elapsed() < timeout => {
                    let left = timeout.saturating_sub(started.elapsed());
                    std::thread::sleep(TRY_AGAIN.min(left));
                }
                Err(_) => {
                    let text = format!(
                        "The client socket has timed out after {}ms while trying to connect to \
                         ({}, {}).",
                        timeout.as_millis(),
                        address.ip(),
                        address.port()
                    );
                    return Err(DistError::new(ErrorKind::DistNetworkError, text).into());
                }
            }
        };
        stream.set_nodelay(true).map_err(StoreError::Connection)?;
        stream.set_write_timeout(Some(ANSWERS_WITHIN)).map_err(StoreError::Connection)?;
        let mut client = StoreClient { stream, timeout };
        let nonce = std::process::id();
        let within = timeout.clamp(GREETS_WITHIN, ANSWERS_WITHIN);
        let no_store = |why: String| {
            let text = format!("what listens at {address} is no c10d store: {why}");
            StoreError::C10d(DistError::new(ErrorKind::DistNetworkError, text))
        };
        let hung_up = |_| no_store("it hung up when it was greeted as one".to_owned());
        client.send(Writer::new(Query::Validate).word(VALIDATION)).map_err(hung_up)?;
        client.send(Writer::new(Query::Ping).word(nonce)).map_err(hung_up)?;
        let mut answer = [0; 4];
        match client.wait_for_whole(&mut answer, within) {
            Ok(()) if u32::from_ne_bytes(answer) == nonce => Ok(client),
            Ok(()) => {
                let answer = answer.escape_ascii();
                Err(no_store(format!("it answered \"{answer}\" when it was greeted as one")))
            }
            Err(error) if is_timeout(&error) => {
                let seconds = within.as_secs();
                Err(no_store(format!("it was greeted as one and said nothing for {seconds} s")))
            }
            Err(error) => Err(hung_up(lost(error))),
        }
    }

    /// Fills the buffer with bytes that come within that time.
    fn wait_for_whole(&mut self, into: &mut [u8], within: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(within))?;
        self.stream.read_exact(into)
    }

    /// The address of this end: one under which the server's machine reaches this one.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    fn send(&mut self, request: Writer) -> Result<(), StoreError> {
        let request = request.finish();
        fits("a request", request.len(), MAX_AT_ONCE_BYTES)?;
        self.stream.write_all(&request).map_err(lost)
    }

    fn fill(&mut self, into: &mut [u8], within: Duration) -> Result<(), StoreError> {
        let within = within.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(within)).map_err(StoreError::Connection)?;
        self.stream.read_exact(into).map_err(lost)
    }

    fn receive<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, ANSWERS_WITHIN)?;
        Ok(bytes)
    }

    fn receive_number(&mut self) -> Result<i64, StoreError> {
        Ok(i64::from_ne_bytes(self.receive()?))
    }

    fn receive_value(&mut self) -> Result<Vec<u8>, StoreError> {
        let length = u64::from_ne_bytes(self.receive()?);
        // A store may hold more than it takes at once: `append` adds up.
        if length > MAX_HELD_BYTES as u64 {
            return Err(unexpected(format!("a value of {length} bytes")));
        }
        // Not sized by what the other side says: the bytes may never come.
        let mut value = Vec::new();
        while value.len() < length as usize {
            let there = value.len();
            value.resize(there + PIECE_BYTES.min(length as usize - there), 0);
            self.fill(&mut value[there..], ANSWERS_WITHIN)?;
        }
        Ok(value)
    }

    /// `add` on a key as it is: the store's own counters have no slash before them.
    pub(super) fn add_raw(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        self.send(Writer::new(Query::Add).bytes(key.as_bytes()).number(by))?;
        self.receive_number()
    }

    /// Waits for keys as the server knows them; `named` are the caller's names.
    fn wait_for(
        &mut self,
        keys: &[String],
        named: &[&str],
        timeout: Duration,
    ) -> Result<(), StoreError> {
        self.send(Writer::new(Query::Wait).keys(keys))?;
        let mut answer = [0];
        let asked = self.wait_for_answer(&mut answer, timeout)?;
        if asked {
            return match answer {
                [STOP_WAITING] => Ok(()),
                [other] => Err(unexpected(format!("{other} to a wait"))),
            };
        }
        self.send(Writer::new(Query::CancelWait))?;
        // The keys may have come just before.
        if self.receive()? == [STOP_WAITING] && self.receive()? != [WAIT_CANCELED] {
            return Err(unexpected("no end to a wait that was canceled".to_owned()));
        }
        Err(timed_out(StoreKind::Tcp { counts_workers: false }, named, timeout))
    }

    /// True once the byte is there, false if it does not come in time.
    fn wait_for_answer(
        &mut self,
        into: &mut [u8; 1],
        timeout: Duration,
    ) -> Result<bool, StoreError> {
        let within = timeout.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(within)).map_err(StoreError::Connection)?;
        match self.stream.read(into) {
            Ok(0) => Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(lost(error)),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// c10d's error for a connection that is gone, and ours for one that is stuck.
fn lost(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => {
            let text = "failed to recv, got 0 bytes";
            StoreError::C10d(DistError::new(ErrorKind::DistNetworkError, text).with_help(
                "The store's server has ended, or refused the last request: Lockstep's \
                         takes and gives 64 MiB at once, and holds 1 GiB.",
            ))
        }
        _ => StoreError::Connection(error),
    }
}

fn unexpected(answer: String) -> StoreError {
    StoreError::Connection(io::Error::other(format!("the server answered {answer}")))
}

/// The key as the server knows it.
fn served(key: &str) -> Result<String, StoreError> {
    fits("a key", key.len() + 1, MAX_KEY_BYTES)?;
    Ok(format!("/{key}"))
}

fn all_served(keys: &[&str]) -> Result<Vec<String>, StoreError> {
    fits("a list of keys", keys.len(), MAX_KEYS)?;
    keys.iter().map(|key| served(key)).collect()
}

fn fits(what: &'static str, length: usize, limit: usize) -> Result<(), StoreError> {
    if length > limit { Err(StoreError::TooLong { what, length, limit }) } else { Ok(()) }
}

impl Store for StoreClient {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        fits("a value", value.len(), MAX_VALUE_BYTES)?;
        self.send(Writer::new(Query::Set).bytes(served(key)?.as_bytes()).bytes(value))
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        let served = served(key)?;
        self.wait_for(std::slice::from_ref(&served), &[key], self.timeout)?;
        self.send(Writer::new(Query::Get).bytes(served.as_bytes()))?;
        self.receive_value()
    }

    fn add(&mut self, key: &str, by: i64) -> Result<i64, StoreError> {
        self.add_raw(&served(key)?, by)
    }

    fn append(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        fits("a value", value.len(), MAX_VALUE_BYTES)?;
        self.send(Writer::new(Query::Append).bytes(served(key)?.as_bytes()).bytes(value))
    }

    fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        self.send(Writer::new(Query::Check).keys(&all_served(keys)?))?;
        match self.receive()? {
            [READY] => Ok(true),
            [NOT_READY] => Ok(false),
            [other] => Err(unexpected(format!("{other} to a check"))),
        }
    }

    fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        for value in [expected, desired] {
            fits("a value", value.len(), MAX_VALUE_BYTES)?;
        }
        let request = Writer::new(Query::CompareSet).bytes(served(key)?.as_bytes());
        self.send(request.bytes(expected).bytes(desired))?;
        self.receive_value()
    }

    fn wait(&mut self, keys: &[&str], timeout: Option<Duration>) -> Result<(), StoreError> {
        self.wait_for(&all_served(keys)?, keys, timeout.unwrap_or(self.timeout))
    }

    fn delete_key(&mut self, key: &str) -> Result<bool, StoreError> {
        self.send(Writer::new(Query::DeleteKey).bytes(served(key)?.as_bytes()))?;
        Ok(self.receive_number()? == 1)
    }

    fn num_keys(&mut self) -> Result<u64, StoreError> {
        self.send(Writer::new(Query::GetNumKeys))?;
        Ok(u64::try_from(self.receive_number()?).unwrap_or(0))
    }

    fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        let served = all_served(keys)?;
        self.wait_for(&served, keys, self.timeout)?;
        self.send(Writer::new(Query::MultiGet).keys(&served))?;
        let mut values: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0;
        for _ in keys {
            let value = self.receive_value()?;
            bytes += value.len();
            if bytes > MAX_HELD_BYTES {
                return Err(unexpected(format!("more than {MAX_HELD_BYTES} bytes of values")));
            }
            values.push(value);
        }
        Ok(values)
    }

    fn multi_set(&mut self, entries: &[(&str, &[u8])]) -> Result<(), StoreError> {
        fits("a list of keys", entries.len(), MAX_KEYS)?;
        let mut request = Writer::new(Query::MultiSet).number(entries.len() as i64);
        for (key, value) in entries {
            fits("a value", value.len(), MAX_VALUE_BYTES)?;
            request = request.bytes(served(key)?.as_bytes()).bytes(value);
        }
        self.send(request)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}
