//! Greets connections to a port that is open for a run's ranks. Anybody may connect, so each is greeted on a
//! thread of its own, and a silent one delays nobody. The number of greetings at once, their time and their
//! bytes are limited: a stranger costs no more than that.

use super::control::read_short_frame;
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Greeted at the same time; the next wait in the listener's queue.
const MOST: usize = 64;

/// Time within which a connection has to identify itself, all words together.
const GREETING: Duration = Duration::from_secs(10);

/// No word of a greeting is longer.
const MAX_WORD_BYTES: usize = 4 << 10;

/// The greetings at one port. A greeting gives a `T`, or nothing for a stranger.
pub(super) struct Greeters<T> {
    come: Sender<T>,
    greeted: Receiver<T>,
    /// A copy for each thread that greets.
    busy: Arc<()>,
}

impl<T: Send + 'static> Greeters<T> {
    pub(super) fn new() -> Greeters<T> {
        let (come, greeted) = mpsc::channel();
        Greeters { come, greeted, busy: Arc::new(()) }
    }

    /// Begins to greet new connections; returns at once. The listener must not block.
    pub(super) fn admit<F>(&self, listener: &TcpListener, greet: F)
    where
        F: FnOnce(Stranger, SocketAddr) -> io::Result<T> + Clone + Send + 'static,
    {
        while Arc::strong_count(&self.busy) <= MOST {
            let Ok((stream, address)) = listener.accept() else { return };
            let (come, busy, greet) = (self.come.clone(), self.busy.clone(), greet.clone());
            let greeting = move || {
                let greeted = Stranger::new(stream).and_then(|stranger| greet(stranger, address));
                drop(busy);
                // A stranger gets no answer.
                if let Ok(greeted) = greeted {
                    let _ = come.send(greeted);
                }
            };
            // A system without a thread for it hangs up: whoever it was tries again.
            let _ = thread::Builder::new().name("greeting".to_owned()).spawn(greeting);
        }
    }

    /// The next connection that was greeted, if there is one.
    pub(super) fn next(&self) -> Option<T> {
        self.greeted.try_recv().ok()
    }
}

/// A connection of which it is not known yet whose it is.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) stream: TcpStream,
    until: Instant,
}

impl Stranger {
    /// Its time begins.
    pub(super) fn new(stream: TcpStream) -> io::Result<Stranger> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(GREETING))?;
        Ok(Stranger { stream, until: Instant::now() + GREETING })
    }

    /// The next word.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let heard = read_short_frame(self, MAX_WORD_BYTES)?;
        heard.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// The connection, whose words may take as long as they take from now on.
    pub(super) fn known(self) -> io::Result<TcpStream> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)?;
        Ok(self.stream)
    }
}

impl Read for Stranger {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::control::frame;
    use std::io::Write;

    fn door() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn hears(mut stranger: Stranger, _: SocketAddr) -> io::Result<u32> {
        stranger.hear()
    }

    #[test]
    fn silent_strangers_cost_so_many_threads_and_delay_nobody_among_fewer() {
        let (listener, address) = door();
        let greeters = Greeters::new();
        let mut silent: Vec<TcpStream> = Vec::new();
        let connect = |some: &mut Vec<TcpStream>| some.push(TcpStream::connect(address).unwrap());
        (1..MOST).for_each(|_| connect(&mut silent));
        let mut ours = TcpStream::connect(address).unwrap();
        ours.write_all(&frame(&7u32)).unwrap();
        let began = Instant::now();
        let greeted = loop {
            greeters.admit(&listener, hears);
            if let Some(greeted) = greeters.next() {
                break greeted;
            }
            assert!(began.elapsed() < GREETING, "the silent ones are still there");
        };
        assert_eq!(greeted, 7);
        (0..40).for_each(|_| connect(&mut silent));
        for _ in 0..20 {
            greeters.admit(&listener, hears);
            assert!(Arc::strong_count(&greeters.busy) <= MOST + 1);
            thread::sleep(Duration::from_millis(1));
        }
        drop(silent);
    }

    #[test]
    fn a_long_word_is_not_waited_for() {
        let (listener, address) = door();
        let mut stream = TcpStream::connect(address).unwrap();
        // A length that would be a gigabyte of memory.
        stream.write_all(&(1u32 << 30).to_le_bytes()).unwrap();
        let (theirs, _) = loop {
            if let Ok(accepted) = listener.accept() {
                break accepted;
            }
        };
        let error = Stranger::new(theirs).unwrap().hear::<u32>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
