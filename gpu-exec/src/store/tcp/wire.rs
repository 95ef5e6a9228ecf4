//! The protocol's bytes: a request is its number and its arguments; lengths and counts are `u64`,
//! numbers are native-endian, as C++ sends them. Up to PyTorch 2.15's requests.

use std::io;

/// The first word of a client, after [`Query::Validate`]: it is no stray connection.
pub(super) const VALIDATION: u32 = 0x3C85_F7CE;

/// PyTorch's limits (`TCPStoreLibUvBackend.cpp`): bytes of a key, bytes of a value, keys at once.
pub(super) const MAX_KEY_BYTES: usize = 8 << 10;
pub(super) const MAX_VALUE_BYTES: usize = 8 << 20;
pub(super) const MAX_KEYS: usize = 128 << 10;

/// Ours, since c10d has none: bytes of a whole request and of answers that wait to be taken, and
/// of all that a server holds, its clients' words included.
pub(super) const MAX_AT_ONCE_BYTES: usize = 64 << 20;
pub(super) const MAX_HELD_BYTES: usize = 1 << 30;

/// The requests' numbers: `QueryType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Query {
    Validate,
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    GetNumKeys,
    DeleteKey,
    Append,
    MultiGet,
    MultiSet,
    CancelWait,
    Ping,
    /// Since 2.8, as the next two.
    QueuePush,
    QueuePop,
    QueueLen,
    /// Since versions after 2.8.
    ListKeys,
    Barrier,
}

/// A request as the server understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Validate(u32),
    Set { key: String, value: Vec<u8> },
    CompareSet { key: String, expected: Vec<u8>, desired: Vec<u8> },
    Get(String),
    Add { key: String, by: i64 },
    Check(Vec<String>),
    Wait(Vec<String>),
    GetNumKeys,
    DeleteKey(String),
    Append { key: String, value: Vec<u8> },
    MultiGet(Vec<String>),
    MultiSet(Vec<(String, Vec<u8>)>),
    CancelWait,
    Ping(u32),
    QueuePush { key: String, value: Vec<u8> },
    QueuePop(String),
    QueueLen(String),
    ListKeys,
    Barrier { key: String, workers: i64 },
}

/// Answers to `check`.
pub(super) const READY: u8 = 0;
pub(super) const NOT_READY: u8 = 1;

/// Answers to `wait` and its cancellation.
pub(super) const STOP_WAITING: u8 = 0;
pub(super) const WAIT_CANCELED: u8 = 1;

/// Writes a request.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(query: Query) -> Writer {
        Writer(vec![query as u8])
    }

    pub(super) fn word(mut self, value: u32) -> Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn number(mut self, value: i64) -> Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.0.extend((bytes.len() as u64).to_ne_bytes());
        self.0.extend(bytes);
        self
    }

    pub(super) fn keys(mut self, keys: &[String]) -> Writer {
        self.0.extend((keys.len() as u64).to_ne_bytes());
        keys.iter().fold(self, |writer, key| writer.bytes(key.as_bytes()))
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads the bytes of a request that have arrived.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The reason that a request cannot be read yet, or at all.
enum Stopped {
    /// More bytes have to come.
    Short,
    /// The bytes are not a request.
    Broken(String),
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Stopped> {
        let end = self.at.saturating_add(count);
        let taken = self.bytes.get(self.at..end).ok_or(Stopped::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stopped> {
        self.take(N)?.first_chunk().copied().ok_or(Stopped::Short)
    }

    fn length(&mut self, what: &str, limit: usize) -> Result<usize, Stopped> {
        let length = u64::from_ne_bytes(self.array()?);
        match usize::try_from(length) {
            Ok(length) if length <= limit => Ok(length),
            _ => Err(Stopped::Broken(format!("{what} of {length}; the limit is {limit}"))),
        }
    }

    fn key(&mut self) -> Result<String, Stopped> {
        let length = self.length("a key", MAX_KEY_BYTES)?;
        let key = self.take(length)?.to_vec();
        String::from_utf8(key).map_err(|_| Stopped::Broken("a key that is no UTF-8".to_owned()))
    }

    fn value(&mut self) -> Result<Vec<u8>, Stopped> {
        let length = self.length("a value", MAX_VALUE_BYTES)?;
        Ok(self.take(length)?.to_vec())
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Stopped>,
    ) -> Result<Vec<T>, Stopped> {
        let count = self.length("a list of keys", MAX_KEYS)?;
        // Not sized by the count: the items may never come.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn request(&mut self) -> Result<Request, Stopped> {
        let [number] = self.array()?;
        Ok(match number {
            n if n == Query::Validate as u8 => Request::Validate(u32::from_ne_bytes(self.array()?)),
            n if n == Query::Set as u8 => Request::Set { key: self.key()?, value: self.value()? },
            n if n == Query::CompareSet as u8 => Request::CompareSet {
                key: self.key()?,
                expected: self.value()?,
                desired: self.value()?,
            },
            n if n == Query::Get as u8 => Request::Get(self.key()?),
            n if n == Query::Add as u8 => {
                Request::Add { key: self.key()?, by: i64::from_ne_bytes(self.array()?) }
            }
            n if n == Query::Check as u8 => Request::Check(self.list(Reader::key)?),
            n if n == Query::Wait as u8 => Request::Wait(self.list(Reader::key)?),
            n if n == Query::GetNumKeys as u8 => Request::GetNumKeys,
            n if n == Query::DeleteKey as u8 => Request::DeleteKey(self.key()?),
            n if n == Query::Append as u8 => {
                Request::Append { key: self.key()?, value: self.value()? }
            }
            n if n == Query::MultiGet as u8 => Request::MultiGet(self.list(Reader::key)?),
            n if n == Query::MultiSet as u8 => {
                Request::MultiSet(self.list(|reader| Ok((reader.key()?, reader.value()?)))?)
            }
            n if n == Query::CancelWait as u8 => Request::CancelWait,
            n if n == Query::Ping as u8 => Request::Ping(u32::from_ne_bytes(self.array()?)),
            n if n == Query::QueuePush as u8 => {
                Request::QueuePush { key: self.key()?, value: self.value()? }
            }
            n if n == Query::QueuePop as u8 => Request::QueuePop(self.key()?),
            n if n == Query::QueueLen as u8 => Request::QueueLen(self.key()?),
            n if n == Query::ListKeys as u8 => Request::ListKeys,
            n if n == Query::Barrier as u8 => {
                Request::Barrier { key: self.key()?, workers: i64::from_ne_bytes(self.array()?) }
            }
            n => return Err(Stopped::Broken(format!("a request of number {n}"))),
        })
    }
}

/// The first request in the bytes that have arrived, and its length; `None` while it is not whole.
///
/// # Errors
/// When the bytes can never become a request.
pub(super) fn parse(arrived: &[u8]) -> io::Result<Option<(Request, usize)>> {
    let mut reader = Reader { bytes: arrived, at: 0 };
    match reader.request() {
        Ok(request) => Ok(Some((request, reader.at))),
        Err(Stopped::Short) => Ok(None),
        Err(Stopped::Broken(why)) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes that PyTorch 2.7.1's client sends for `store.add("n", -2)`.
    #[test]
    fn requests_are_pytorchs_bytes() {
        let add = Writer::new(Query::Add).bytes(b"/n").number(-2).finish();
        let expected = [&[4u8, 2, 0, 0, 0, 0, 0, 0, 0][..], b"/n", &(-2i64).to_le_bytes()].concat();
        assert_eq!(add, expected);
        let request = Request::Add { key: "/n".into(), by: -2 };
        assert_eq!(parse(&add).unwrap(), Some((request, add.len())));
        for whole in 0..add.len() {
            assert_eq!(parse(&add[..whole]).unwrap(), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some((_, taken))) = parse(&bytes) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}
