//! The ranks of a recorded script talk to the hub. It keeps their notes and carries their messages to each
//! other.
//!
//! Every rank has one connection over a Unix socket. A message is the length of its JSON (4 bytes, little
//! endian), the length of its payload (8 bytes), the JSON and the payload. A rank that asks for a message
//! that another has not yet posted waits. When every rank that still runs waits, no more messages will come:
//! all ranks are notified, and go on with their own values. So a script that would hang is recorded past the
//! hang.

use anyhow::{Context, Result, bail};
use lockstep_replay::script::ScriptEvent;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The longest JSON of a message.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// The longest payload of a message.
const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

/// More bytes that no rank has taken yet end the recording.
const MAX_POSTED_BYTES: usize = 4 << 30;

/// More events of all ranks end the recording: a plan could not hold them.
const MAX_EVENTS: usize = 16_000_000;

/// Messages that wait for the hub; a rank that sends more waits.
const QUEUED: usize = 1024;

/// Interval at which the hub looks whether the script's processes still run.
const LOOKS: Duration = Duration::from_millis(200);

/// A rank's message to the hub that is no event.
#[derive(Debug, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
enum Request {
    Hello {
        rank: u32,
    },
    /// A path of one of the user's own files, for a name that the notes use.
    Source {
        name: String,
        path: PathBuf,
    },
    Post {
        key: String,
        from: u32,
        readers: u32,
        #[serde(default)]
        none: bool,
    },
    Take {
        key: String,
        from: Vec<u32>,
    },
    TakeAny {
        keys: Vec<(String, u32)>,
    },
    Store {
        op: StoreOp,
        key: String,
        #[serde(default)]
        amount: i64,
        #[serde(default)]
        expected: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoreOp {
    Set,
    Get,
    Add,
    Append,
    CompareSet,
    Check,
    Wait,
    Delete,
    NumKeys,
}

/// The hub's answer to a rank.
#[derive(Debug, Default, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    lengths: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<i64>,
}

/// A message from a connection's thread to the hub.
enum Arrival {
    Connected(u32, UnixStream),
    Message { rank: u32, text: Vec<u8>, payload: Vec<u8> },
    Gone(u32),
    Broken(String),
}

/// A request that waits for messages that others have not posted.
#[derive(Debug)]
enum Waiting {
    Parts { key: String, from: Vec<u32> },
    Any { keys: Vec<(String, u32)> },
    Key { key: String, get: bool },
}

/// Bytes that a rank has left for others.
struct Posted {
    /// `None` if the rank has nothing that it could send.
    data: Option<Vec<u8>>,
    readers: u32,
}

/// The reason that a recording stops before the script's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// By Ctrl-C or a signal.
    Cancelled,
    /// No rank made a call for so long.
    Quiet(Duration),
    /// A plan could not hold more.
    Full,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Cancelled => f.write_str("by a signal"),
            Cut::Quiet(patience) => {
                write!(f, "since no rank made a call for {} s", patience.as_secs())
            }
            Cut::Full => write!(f, "after {MAX_EVENTS} events of all ranks"),
        }
    }
}

/// The events of all ranks of a script.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// By rank, its events; none of a rank that was not recorded.
    pub(super) events: BTreeMap<u32, Vec<ScriptEvent>>,
    /// The paths of the user's own files, by the names that the events use.
    pub(super) sources: BTreeMap<String, PathBuf>,
    /// Why the recording stopped before the script's end, if it did.
    pub(super) cut: Option<Cut>,
}

/// The socket on which the hub listens.
pub(super) struct Hub {
    arrivals: Receiver<Arrival>,
}

impl Hub {
    /// Listens at `path` for the connections of `ranks` ranks.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(super) fn listen(path: &Path, ranks: usize) -> Result<Hub> {
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        let (sender, arrivals) = sync_channel(QUEUED);
        std::thread::spawn(move || {
            for stream in listener.incoming().take(ranks) {
                let Ok(stream) = stream else { return };
                let sender = sender.clone();
                std::thread::spawn(move || read_rank(stream, &sender));
            }
        });
        Ok(Hub { arrivals })
    }

    /// Serves the ranks until all have ended. `runs` says whether the script's processes still run;
    /// `patience` is how long ranks may go without a message before the recording is cut; `cancelled` cuts it
    /// at once.
    ///
    /// # Errors
    /// When a rank sends something that no recorder sends.
    pub(super) fn serve(
        self,
        ranks: &[u32],
        patience: Duration,
        cancelled: &AtomicBool,
        mut runs: impl FnMut() -> Result<bool>,
    ) -> Result<Noted> {
        let mut board = Board {
            streams: BTreeMap::new(),
            unended: ranks.iter().copied().collect(),
            waiting: BTreeMap::new(),
            posted: BTreeMap::new(),
            posted_bytes: 0,
            store: BTreeMap::new(),
            events: ranks.iter().map(|rank| (*rank, Vec::new())).collect(),
            sources: BTreeMap::new(),
            count: 0,
        };
        let mut quiet = Duration::ZERO;
        let mut cut = None;
        while !board.unended.is_empty() {
            if cancelled.load(Ordering::Relaxed) {
                cut = Some(Cut::Cancelled);
                break;
            }
            match self.arrivals.recv_timeout(LOOKS) {
                Ok(arrival) => {
                    quiet = Duration::ZERO;
                    board.arrived(arrival)?;
                    if board.count > MAX_EVENTS {
                        cut = Some(Cut::Full);
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    quiet += LOOKS;
                    if !runs()? {
                        break;
                    }
                    if quiet >= patience {
                        cut = Some(Cut::Quiet(patience));
                        break;
                    }
                }
            }
        }
        Ok(Noted { events: board.events, sources: board.sources, cut })
    }
}

/// Reads the messages of one rank.
fn read_rank(mut stream: UnixStream, sender: &SyncSender<Arrival>) {
    let mut rank = None;
    loop {
        let (text, payload) = match read_message(&mut stream) {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(error) => {
                let _ = sender.send(Arrival::Broken(format!("{error:#}")));
                break;
            }
        };
        let arrival = match rank {
            Some(rank) => Arrival::Message { rank, text, payload },
            None => match (serde_json::from_slice(&text), stream.try_clone()) {
                (Ok(Request::Hello { rank: own }), Ok(stream)) => {
                    rank = Some(own);
                    Arrival::Connected(own, stream)
                }
                _ => Arrival::Broken("a rank did not begin with its number".to_owned()),
            },
        };
        if sender.send(arrival).is_err() {
            return;
        }
    }
    if let Some(rank) = rank {
        let _ = sender.send(Arrival::Gone(rank));
    }
}

/// The next message; `None` when the rank has hung up.
fn read_message(stream: &mut UnixStream) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut head = [0; 12];
    match stream.read_exact(&mut head) {
        Ok(()) => {}
        Err(_) => return Ok(None),
    }
    let [a, b, c, d, length @ ..] = head;
    let text_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
    let payload_bytes = u64::from_le_bytes(length);
    if text_bytes > MAX_TEXT_BYTES || payload_bytes > MAX_PAYLOAD_BYTES {
        bail!("a rank sends a message of {text_bytes} and {payload_bytes} bytes");
    }
    let mut text = vec![0; text_bytes];
    let mut payload = vec![0; payload_bytes as usize];
    let whole = stream.read_exact(&mut text).and_then(|()| stream.read_exact(&mut payload));
    Ok(whole.is_ok().then_some((text, payload)))
}

/// The state of all ranks.
struct Board {
    streams: BTreeMap<u32, UnixStream>,
    unended: BTreeSet<u32>,
    waiting: BTreeMap<u32, Waiting>,
    posted: BTreeMap<(String, u32), Posted>,
    posted_bytes: usize,
    store: BTreeMap<String, Vec<u8>>,
    events: BTreeMap<u32, Vec<ScriptEvent>>,
    sources: BTreeMap<String, PathBuf>,
    count: usize,
}

impl Board {
    fn arrived(&mut self, arrival: Arrival) -> Result<()> {
        match arrival {
            Arrival::Broken(why) => bail!("the recorder broke: {why}"),
            Arrival::Connected(rank, stream) => {
                if !self.unended.contains(&rank) || self.streams.insert(rank, stream).is_some() {
                    bail!("the recorder broke: rank {rank} came twice, or is not recorded");
                }
            }
            Arrival::Gone(rank) => {
                let own = self.events.entry(rank).or_default();
                if !own.iter().any(|event| matches!(event, ScriptEvent::End { .. })) {
                    let how = Some("its process was killed".to_owned());
                    let traceback = String::new();
                    own.push(ScriptEvent::End { how, status: 1, traceback, at: None });
                }
                self.unended.remove(&rank);
                self.waiting.remove(&rank);
                self.release_if_all_wait();
            }
            Arrival::Message { rank, text, payload } => self.message(rank, &text, payload)?,
        }
        Ok(())
    }

    fn message(&mut self, rank: u32, text: &[u8], payload: Vec<u8>) -> Result<()> {
        if let Ok(event) = serde_json::from_slice::<ScriptEvent>(text) {
            self.count += 1;
            self.events.entry(rank).or_default().push(event);
            return Ok(());
        }
        let request = serde_json::from_slice(text).with_context(|| {
            let shown: String = String::from_utf8_lossy(text).chars().take(200).collect();
            format!("the recorder broke: rank {rank} sends {shown}")
        })?;
        match request {
            Request::Hello { .. } => bail!("the recorder broke: rank {rank} came twice"),
            Request::Source { name, path } => {
                self.sources.insert(name, path);
            }
            Request::Post { key, from, readers, none } => {
                if readers > 0 {
                    self.posted_bytes += payload.len();
                }
                if self.posted_bytes > MAX_POSTED_BYTES {
                    bail!(
                        "the ranks tell each other more than {} GiB at once",
                        MAX_POSTED_BYTES >> 30
                    );
                }
                let data = (!none).then_some(payload);
                if readers > 0 {
                    self.posted.insert((key.clone(), from), Posted { data, readers });
                    self.wake(&key);
                }
            }
            Request::Take { key, from } => self.wait(rank, Waiting::Parts { key, from }),
            Request::TakeAny { keys } => self.wait(rank, Waiting::Any { keys }),
            Request::Store { op, key, amount, expected } => {
                self.store(rank, op, key, payload, amount, expected);
            }
        }
        Ok(())
    }

    fn wait(&mut self, rank: u32, waiting: Waiting) {
        if !self.serve(rank, &waiting) {
            self.waiting.insert(rank, waiting);
            self.release_if_all_wait();
        }
    }

    /// Answers a waiting rank's request, if its messages are there.
    fn serve(&mut self, rank: u32, waiting: &Waiting) -> bool {
        match waiting {
            Waiting::Parts { key, from } => {
                let there = |from: &u32| self.posted.contains_key(&(key.clone(), *from));
                if !from.iter().all(there) {
                    return false;
                }
                let parts: Vec<Option<Vec<u8>>> =
                    from.iter().map(|from| self.take(key, *from)).collect();
                let parts: Option<Vec<Vec<u8>>> = parts.into_iter().collect();
                let lengths = parts.as_ref().map(|parts| parts.iter().map(Vec::len).collect());
                let payload = parts.unwrap_or_default().concat();
                self.answer(rank, &Answer { lengths, ..Answer::default() }, &payload);
                true
            }
            Waiting::Any { keys } => {
                let there =
                    |(key, from): &&(String, u32)| self.posted.contains_key(&(key.clone(), *from));
                let Some((key, from)) = keys.iter().find(there).cloned() else { return false };
                let payload = self.take(&key, from).unwrap_or_default();
                self.answer(rank, &Answer { key: Some(key), ..Answer::default() }, &payload);
                true
            }
            Waiting::Key { key, get } => {
                let Some(value) = self.store.get(key) else { return false };
                let payload = if *get { value.clone() } else { Vec::new() };
                self.answer(rank, &Answer { found: Some(true), ..Answer::default() }, &payload);
                true
            }
        }
    }

    fn take(&mut self, key: &str, from: u32) -> Option<Vec<u8>> {
        let at = (key.to_owned(), from);
        let posted = self.posted.get_mut(&at)?;
        posted.readers = posted.readers.saturating_sub(1);
        if posted.readers > 0 {
            return posted.data.clone();
        }
        let posted = self.posted.remove(&at)?;
        self.posted_bytes -= posted.data.as_ref().map_or(0, Vec::len);
        posted.data
    }

    /// Serves the ranks that waited for this key, if their messages are now there.
    fn wake(&mut self, key: &str) {
        let waits = |waiting: &Waiting| match waiting {
            Waiting::Parts { key: known, .. } | Waiting::Key { key: known, .. } => known == key,
            Waiting::Any { keys } => keys.iter().any(|(known, _)| known == key),
        };
        let waiting = self.waiting.iter().filter(|(_, waiting)| waits(waiting));
        let ranks: Vec<u32> = waiting.map(|(rank, _)| *rank).collect();
        for rank in ranks {
            let Some(waiting) = self.waiting.remove(&rank) else { continue };
            if !self.serve(rank, &waiting) {
                self.waiting.insert(rank, waiting);
            }
        }
    }

    /// Notifies the ranks if all of them wait, since no more messages can come then.
    fn release_if_all_wait(&mut self) {
        if self.waiting.len() < self.unended.len() {
            return;
        }
        for (rank, waiting) in std::mem::take(&mut self.waiting) {
            let found = matches!(waiting, Waiting::Key { .. }).then_some(false);
            self.answer(rank, &Answer { found, ..Answer::default() }, &[]);
        }
    }

    fn store(
        &mut self,
        rank: u32,
        op: StoreOp,
        key: String,
        value: Vec<u8>,
        amount: i64,
        expected: usize,
    ) {
        let named = key.clone();
        let mut answer = Answer::default();
        let mut payload = Vec::new();
        match op {
            StoreOp::Get | StoreOp::Wait => {
                return self.wait(rank, Waiting::Key { key, get: op == StoreOp::Get });
            }
            StoreOp::Set => {
                self.store.insert(key, value);
            }
            StoreOp::Append => self.store.entry(key).or_default().extend(value),
            StoreOp::Add => {
                let text = self.store.get(&key).map(|value| String::from_utf8_lossy(value));
                let before = text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
                let sum = before.saturating_add(amount);
                self.store.insert(key, sum.to_string().into_bytes());
                answer.value = Some(sum);
            }
            // TCPStore's rule: a key that is not there compares equal to the empty string.
            StoreOp::CompareSet => {
                let (expected, desired) = value.split_at(expected.min(value.len()));
                payload = match self.store.get(&key) {
                    None if expected.is_empty() => desired.to_vec(),
                    None => expected.to_vec(),
                    Some(held) if held == expected => desired.to_vec(),
                    Some(held) => held.clone(),
                };
                if payload == desired {
                    self.store.insert(key, payload.clone());
                }
            }
            StoreOp::Check => answer.found = Some(self.store.contains_key(&key)),
            StoreOp::Delete => answer.found = Some(self.store.remove(&key).is_some()),
            StoreOp::NumKeys => {
                let names = self.store.keys().filter(|known| known.starts_with(&key));
                answer.value = Some(names.count() as i64);
            }
        }
        self.answer(rank, &answer, &payload);
        self.wake(&named);
    }

    /// A rank that has gone gets no answer; its connection's end says so by itself.
    fn answer(&mut self, rank: u32, answer: &Answer, payload: &[u8]) {
        let Some(stream) = self.streams.get_mut(&rank) else { return };
        let Ok(text) = serde_json::to_vec(answer) else { return };
        let mut bytes = Vec::with_capacity(12 + text.len() + payload.len());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend((payload.len() as u64).to_le_bytes());
        bytes.extend(text);
        bytes.extend(payload);
        let _ = stream.write_all(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A rank of a recorder, without Python.
    struct Rank {
        stream: UnixStream,
    }

    impl Rank {
        fn connect(path: &Path, rank: u32) -> Rank {
            let mut own = Rank { stream: UnixStream::connect(path).unwrap() };
            own.tell(&json!({"t": "hello", "rank": rank}), b"");
            own
        }

        fn tell(&mut self, message: &Value, payload: &[u8]) {
            let text = message.to_string();
            self.stream.write_all(&(text.len() as u32).to_le_bytes()).unwrap();
            self.stream.write_all(&(payload.len() as u64).to_le_bytes()).unwrap();
            self.stream.write_all(text.as_bytes()).unwrap();
            self.stream.write_all(payload).unwrap();
        }

        fn ask(&mut self, message: &Value, payload: &[u8]) -> (Value, Vec<u8>) {
            self.tell(message, payload);
            let (text, payload) = read_message(&mut self.stream).unwrap().unwrap();
            (serde_json::from_slice(&text).unwrap(), payload)
        }

        fn post(&mut self, key: &str, from: u32, readers: u32, data: &[u8]) {
            self.tell(&json!({"t": "post", "key": key, "from": from, "readers": readers}), data);
        }

        fn take(&mut self, key: &str, from: &[u32]) -> Option<Vec<u8>> {
            let (answer, payload) = self.ask(&json!({"t": "take", "key": key, "from": from}), b"");
            answer.get("lengths").map(|_| payload)
        }

        fn end(mut self) {
            self.tell(&json!({"t": "end", "how": null, "status": 0}), b"");
        }
    }

    /// Runs every rank in a thread of its own.
    fn served(ranks: Vec<fn(&mut Rank)>) -> Noted {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub");
        let hub = Hub::listen(&path, ranks.len()).unwrap();
        let numbers: Vec<u32> = (0..ranks.len() as u32).collect();
        let threads: Vec<_> = ranks
            .into_iter()
            .zip(0..)
            .map(|(own, rank)| {
                let path = path.clone();
                std::thread::spawn(move || {
                    let mut connected = Rank::connect(&path, rank);
                    own(&mut connected);
                    connected.end();
                })
            })
            .collect();
        let noted = hub
            .serve(&numbers, Duration::from_secs(60), &AtomicBool::new(false), || Ok(true))
            .unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        noted
    }

    #[test]
    fn ranks_get_what_the_others_post() {
        let noted = served(vec![
            |rank| {
                rank.post("k", 0, 1, b"zero");
                assert_eq!(rank.take("k", &[1]).unwrap(), b"one");
            },
            |rank| {
                assert_eq!(rank.take("k", &[0]).unwrap(), b"zero");
                rank.post("k", 1, 1, b"one");
            },
        ]);
        assert_eq!(noted.cut, None);
        assert!(
            noted
                .events
                .values()
                .all(|own| matches!(own[..], [ScriptEvent::End { how: None, .. }]))
        );
    }

    #[test]
    fn whoever_waits_for_nothing_is_told_so() {
        served(vec![
            |rank| {
                assert_eq!(rank.take("a", &[1]), None);
                rank.post("late", 0, 1, b"now");
            },
            |rank| {
                assert_eq!(rank.take("b", &[0]), None);
                assert_eq!(rank.take("late", &[0]).unwrap(), b"now");
            },
            // Waits for one that ends without a word.
            |rank| assert_eq!(rank.take("c", &[3]), None),
            |_| {},
        ]);
    }

    #[test]
    fn a_store_is_shared() {
        served(vec![
            |rank| {
                let store = |op: &str, key: &str| json!({"t": "store", "op": op, "key": key});
                let (answer, value) = rank.ask(&store("get", "greeting"), b"");
                assert_eq!((&answer["found"], &value[..]), (&json!(true), &b"hello"[..]));
                let set = json!({"t": "store", "op": "compare_set", "key": "c", "expected": 0});
                assert_eq!(rank.ask(&set, b"first").1, b"first");
                let set = json!({"t": "store", "op": "compare_set", "key": "c", "expected": 1});
                assert_eq!(rank.ask(&set, b"xsecond").1, b"first");
                assert_eq!(rank.ask(&store("get", "never"), b"").0["found"], json!(false));
            },
            |rank| {
                let add = json!({"t": "store", "op": "add", "key": "n", "amount": 3});
                assert_eq!(rank.ask(&add, b"").0["value"], json!(3));
                assert_eq!(rank.ask(&add, b"").0["value"], json!(6));
                rank.ask(&json!({"t": "store", "op": "set", "key": "greeting"}), b"hello");
            },
        ]);
    }

    #[test]
    fn a_rank_that_hangs_up_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub");
        let hub = Hub::listen(&path, 1).unwrap();
        drop(Rank::connect(&path, 0));
        let noted =
            hub.serve(&[0], Duration::from_secs(60), &AtomicBool::new(false), || Ok(true)).unwrap();
        let [ScriptEvent::End { how: Some(how), .. }] = &noted.events[&0][..] else { panic!() };
        assert!(how.contains("killed"), "{how}");
    }

    #[test]
    fn a_cancelled_recording_keeps_what_was_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub");
        let hub = Hub::listen(&path, 1).unwrap();
        let mut rank = Rank::connect(&path, 0);
        rank.tell(&json!({"t": "synchronize"}), b"");
        let cancelled = AtomicBool::new(false);
        // Cancelled when the hub finds the ranks quiet, and so has read what they sent.
        let looks = || {
            cancelled.store(true, Ordering::Relaxed);
            Ok(true)
        };
        let noted = hub.serve(&[0], Duration::from_secs(60), &cancelled, looks).unwrap();
        assert_eq!(noted.cut, Some(Cut::Cancelled));
        assert_eq!(noted.events[&0], [ScriptEvent::Synchronize]);
    }

    #[test]
    fn strangers_are_refused() {
        for (text, why) in
            [("{}", "did not begin"), ("{\"t\":\"hello\",\"rank\":9}", "not recorded")]
        {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("hub");
            let hub = Hub::listen(&path, 1).unwrap();
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&(text.len() as u32).to_le_bytes()).unwrap();
            stream.write_all(&0u64.to_le_bytes()).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let error = hub
                .serve(&[0], Duration::from_secs(60), &AtomicBool::new(false), || Ok(true))
                .unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
