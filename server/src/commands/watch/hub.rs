//! The ranks of a watched job report to the hub. It keeps the newest dump and stacks of each as files.
//!
//! Every rank has one connection over a Unix socket. A message is the length of its JSON (4 bytes, little
//! endian), the length of its payload (8 bytes), the JSON and the payload. The hub never answers, so that no
//! rank waits for it.

use crate::processes::is_stopped;
use crate::watched_jobs::{RankDoing, RankNow};
use anyhow::{Context, Result};
use lockstep_core::rank::{GlobalRank, MAX_WORLD_SIZE};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest JSON of a message.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The longest dump or stacks of a rank.
const MAX_PAYLOAD_BYTES: u64 = 256 << 20;

/// More ranks of one machine are not listened to.
const MAX_CONNECTIONS: usize = 1024;

/// A rank that says nothing for this long is looked at from outside.
const SILENT: Duration = Duration::from_secs(3);

/// A rank's message.
#[derive(Debug, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
enum Message {
    /// The first one.
    Hello { rank: u32, pid: u32 },
    /// The number of ranks, as soon as it is known.
    World { world_size: u32 },
    /// Once a second: how often the recorder's counters have changed.
    Beat { changes: u64 },
    /// The payload is a dump of the flight recorder.
    Dump,
    /// The payload is where each thread is.
    Stacks,
    /// The script ended, and not by an exception.
    End,
}

/// One rank, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct WatchedRank {
    /// Its process.
    pub(super) pid: u32,
    /// When it said something last.
    heard: Instant,
    changes: u64,
    /// When it was seen to make a call last.
    moved: Instant,
    /// True if the process is stopped by a signal.
    pub(super) stopped: bool,
    /// True if the script came to its end.
    pub(super) ended: bool,
    /// True if the connection is closed.
    gone: bool,
}

impl WatchedRank {
    /// The rank's doing at this moment.
    pub(super) fn now(&self, rank: GlobalRank) -> RankNow {
        let doing = match self {
            WatchedRank { ended: true, .. } => RankDoing::Ended,
            WatchedRank { stopped: true, .. } => RankDoing::Stopped,
            WatchedRank { gone: true, .. } => RankDoing::Gone,
            _ => RankDoing::Runs,
        };
        let still_ms = self.moved.elapsed().as_millis() as u64;
        RankNow { rank: rank.0, still_ms, doing }
    }
}

/// The newest record of each rank.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The ranks that have spoken.
    pub(super) ranks: BTreeMap<GlobalRank, WatchedRank>,
    /// The number of ranks of the job, if any rank has reported it.
    pub(super) world_size: Option<u32>,
    /// Counts the dumps that came.
    pub(super) dumps: u64,
    /// Dumps and stacks that could not be written, the first one's reason.
    pub(super) unwritten: Option<String>,
}

impl Watched {
    /// True if no rank has made a call for `patience`, and at least one rank is still connected.
    pub(super) fn stands_still(&self, patience: Duration) -> bool {
        let mut there = self.ranks.values().filter(|rank| !rank.ended && !rank.gone).peekable();
        there.peek().is_some() && there.all(|rank| rank.moved.elapsed() >= patience)
    }

    /// Looks at the processes of ranks that say nothing.
    pub(super) fn look_at_the_silent(&mut self) {
        for rank in self.ranks.values_mut() {
            // Only a word of its own takes it back: a process that is being killed is not stopped any more.
            if !rank.gone && !rank.ended && rank.heard.elapsed() >= SILENT && is_stopped(rank.pid) {
                rank.stopped = true;
            }
        }
    }
}

/// The hub, which listens as long as the process lives.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    watched: Arc<Mutex<Watched>>,
}

impl Hub {
    /// Listens at `socket`, and keeps the ranks' files in `folder`.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(super) fn listen(socket: &Path, folder: &Path) -> Result<Hub> {
        let listener = UnixListener::bind(socket)
            .with_context(|| format!("cannot listen at {}", socket.display()))?;
        let hub = Hub { watched: Arc::default() };
        let (listening, folder) = (hub.clone(), folder.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().take(MAX_CONNECTIONS).flatten() {
                let (hub, folder) = (listening.clone(), folder.clone());
                std::thread::spawn(move || hub.hear(stream, &folder));
            }
        });
        Ok(hub)
    }

    /// The newest record of each rank.
    pub(super) fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears one rank out. One that breaks the protocol is not listened to any more; the job goes on.
    fn hear(&self, mut stream: UnixStream, folder: &Path) {
        let Some((Message::Hello { rank, pid }, _)) = read_message(&mut stream) else { return };
        if rank >= MAX_WORLD_SIZE {
            return;
        }
        let rank = GlobalRank(rank);
        let now = Instant::now();
        let new = WatchedRank {
            pid,
            heard: now,
            changes: 0,
            moved: now,
            stopped: false,
            ended: false,
            gone: false,
        };
        // A rank that was started again takes the place of the one that failed.
        self.watched().ranks.insert(rank, new);
        while let Some((message, payload)) = read_message(&mut stream) {
            let written = match &message {
                Message::Dump if !payload.is_empty() => replace(&dump_path(folder, rank), &payload),
                Message::Stacks => replace(&stacks_path(folder, rank), &payload),
                _ => Ok(()),
            };
            let mut watched = self.watched();
            watched.dumps += u64::from(matches!(message, Message::Dump) && written.is_ok());
            if let Err(error) = written {
                watched.unwritten.get_or_insert(error.to_string());
            }
            if let Message::World { world_size } = message {
                watched.world_size = Some(world_size.min(MAX_WORLD_SIZE));
            }
            let Some(own) = watched.ranks.get_mut(&rank).filter(|own| own.pid == pid) else {
                return;
            };
            own.heard = Instant::now();
            own.stopped = false;
            match message {
                Message::Beat { changes } if changes != own.changes => {
                    (own.changes, own.moved) = (changes, own.heard);
                    // It is somewhere else now.
                    let _ = std::fs::remove_file(stacks_path(folder, rank));
                }
                Message::End => own.ended = true,
                _ => {}
            }
        }
        if let Some(own) = self.watched().ranks.get_mut(&rank).filter(|own| own.pid == pid) {
            own.gone = true;
        }
    }
}

/// The newest dump of a rank.
fn dump_path(folder: &Path, rank: GlobalRank) -> PathBuf {
    folder.join(format!("nccl_trace_rank_{rank}"))
}

/// The newest stacks of a rank.
fn stacks_path(folder: &Path, rank: GlobalRank) -> PathBuf {
    folder.join(format!("stacks_rank_{rank}.txt"))
}

/// Writes a file beside the old one, and puts it in its place.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("incoming");
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, path)
}

/// The next message; `None` at the end, or if the bytes are not a message.
fn read_message(stream: &mut UnixStream) -> Option<(Message, Vec<u8>)> {
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    let (text_bytes, payload_bytes) = head.split_first_chunk::<4>()?;
    let text_bytes = u32::from_le_bytes(*text_bytes) as usize;
    let payload_bytes = u64::from_le_bytes(*payload_bytes.first_chunk::<8>()?);
    if text_bytes > MAX_TEXT_BYTES || payload_bytes > MAX_PAYLOAD_BYTES {
        return None;
    }
    let mut text = vec![0; text_bytes];
    stream.read_exact(&mut text).ok()?;
    // Grows with what comes: a length alone takes no memory.
    let mut payload = Vec::new();
    stream.take(payload_bytes).read_to_end(&mut payload).ok()?;
    if payload.len() as u64 != payload_bytes {
        return None;
    }
    Some((serde_json::from_slice(&text).ok()?, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A rank of a watched job, without Python.
    struct Rank {
        stream: UnixStream,
    }

    impl Rank {
        fn connect(socket: &Path, rank: u32, pid: u32) -> Rank {
            let mut own = Rank { stream: UnixStream::connect(socket).unwrap() };
            own.tell(&format!("{{\"t\":\"hello\",\"rank\":{rank},\"pid\":{pid}}}"), b"");
            own
        }

        fn tell(&mut self, text: &str, payload: &[u8]) {
            let lengths = (text.len() as u32).to_le_bytes();
            self.stream.write_all(&lengths).unwrap();
            self.stream.write_all(&(payload.len() as u64).to_le_bytes()).unwrap();
            self.stream.write_all(text.as_bytes()).unwrap();
            self.stream.write_all(payload).unwrap();
        }
    }

    /// Waits until something is so; the threads of the hub have their own pace.
    fn until(hub: &Hub, so: impl Fn(&Watched) -> bool) {
        let began = Instant::now();
        while !so(&hub.watched()) {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", hub.watched());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn listening() -> (tempfile::TempDir, PathBuf, Hub) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("hub");
        let hub = Hub::listen(&socket, folder.path()).unwrap();
        (folder, socket, hub)
    }

    #[test]
    fn the_newest_dump_and_the_stacks_of_a_rank_that_stands_are_kept() {
        let (folder, socket, hub) = listening();
        let mut rank = Rank::connect(&socket, 3, 77);
        rank.tell("{\"t\":\"world\",\"world_size\":4}", b"");
        rank.tell("{\"t\":\"dump\"}", b"old");
        rank.tell("{\"t\":\"stacks\"}", b"here");
        rank.tell("{\"t\":\"dump\"}", b"new");
        rank.tell("{\"t\":\"beat\",\"changes\":0}", b"");
        rank.tell("{\"t\":\"end\"}", b"");
        until(&hub, |watched| watched.ranks.get(&GlobalRank(3)).is_some_and(|rank| rank.ended));
        let dump = folder.path().join("nccl_trace_rank_3");
        assert_eq!(std::fs::read(&dump).unwrap(), b"new");
        let stacks = folder.path().join("stacks_rank_3.txt");
        assert_eq!(std::fs::read(&stacks).unwrap(), b"here");
        assert_eq!(hub.watched().world_size, Some(4));
        // It goes on.
        rank.tell("{\"t\":\"beat\",\"changes\":1}", b"");
        until(&hub, |watched| watched.ranks[&GlobalRank(3)].changes == 1);
        assert!(!stacks.exists());
        assert!(hub.watched().unwritten.is_none());
    }

    #[test]
    fn a_job_stands_still_when_none_of_its_ranks_moves() {
        let (_folder, socket, hub) = listening();
        assert!(!hub.watched().stands_still(Duration::ZERO), "nobody is there");
        let one = Rank::connect(&socket, 0, 1);
        let mut other = Rank::connect(&socket, 1, 2);
        until(&hub, |watched| watched.ranks.len() == 2);
        assert!(hub.watched().stands_still(Duration::ZERO));
        assert!(!hub.watched().stands_still(Duration::from_secs(3600)));
        other.tell("{\"t\":\"end\"}", b"");
        drop(one);
        until(&hub, |watched| watched.ranks.values().all(|rank| rank.ended || rank.gone));
        assert!(!hub.watched().stands_still(Duration::ZERO), "all have gone");
    }

    #[test]
    fn strangers_and_oversized_messages_are_not_listened_to() {
        let (folder, socket, hub) = listening();
        let mut stranger = UnixStream::connect(&socket).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut rank = Rank::connect(&socket, 0, 1);
        rank.stream.write_all(&2u32.to_le_bytes()).unwrap();
        rank.stream.write_all(&u64::MAX.to_le_bytes()).unwrap();
        until(&hub, |watched| watched.ranks.get(&GlobalRank(0)).is_some_and(|rank| rank.gone));
        assert_eq!(hub.watched().ranks.len(), 1);
        assert!(!folder.path().join("nccl_trace_rank_0").exists());
    }
}
