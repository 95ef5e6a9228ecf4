//! The server of a TCP store: one thread over `poll`, as c10d's daemons are. Dropping it ends the thread and
//! closes the sockets.
//!
//! The protocol defines the special behaviour of a TCP store (slashes before keys, waits that are cancelled,
//! a connection that is dropped over a bad `add`); [`Held`] is its contents.
//!
//! The protocol has no message for a refusal: a client that asks for more than the limits is cut off, as by
//! c10d's server, and gets the reason from its own code ([`super::client`]). Values that others put into the
//! store stay.

use super::held::{ClientId, Held};
use super::wire::{
    MAX_AT_ONCE_BYTES, MAX_HELD_BYTES, NOT_READY, Query, READY, Request, STOP_WAITING, VALIDATION,
    WAIT_CANCELED, parse,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that have not yet sent the first message of a client: when there are more, the oldest is
/// closed.
const MAX_STRANGERS: usize = 256;

/// Bytes read from one client before the others have their turn.
const TURN_BYTES: usize = 256 << 10;

/// Serves a store. Keys that clients set have a slash before them here.
#[derive(Debug)]
pub struct StoreServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    serving: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Readable when the serving thread has to look at the state.
    changed: OwnedFd,
}

#[derive(Debug)]
struct State {
    held: Held,
    closing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves whole values: every change is one call of the table.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only when the counter is full: woken often enough.
        let _ = rustix::io::write(&self.changed, &1u64.to_ne_bytes());
    }
}

impl StoreServer {
    /// Starts serving on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When the system gives no socket or thread.
    pub fn start() -> io::Result<StoreServer> {
        StoreServer::listen((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Starts serving at an address; port 0 for a free one. Whoever can reach it can read and
    /// change the store, as with c10d's: there is no password.
    ///
    /// # Errors
    /// When the address is taken, or the system gives no socket or thread.
    pub fn listen(address: SocketAddr) -> io::Result<StoreServer> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = State { held: Held::new(), closing: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed });
        let served = shared.clone();
        let serving = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            Server { listener, shared: served, clients: Vec::new(), came: 0 }.run()
        })?;
        Ok(StoreServer { shared, address, serving: Some(serving) })
    }

    /// The address at which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets a key from inside the server's process.
    pub fn set(&self, key: &str, value: &[u8]) {
        // A plain table takes every key.
        let _ = self.shared.lock().held.set(&format!("/{key}"), value);
        self.shared.wake();
    }

    /// True if a key exists, asked inside the server's process.
    pub fn has(&self, key: &str) -> bool {
        self.peek(key).is_some()
    }

    /// A key's value now, from inside the server's process.
    pub fn peek(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.lock().held.get(&format!("/{key}"))
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake();
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// The serving thread.
struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    clients: Vec<Client>,
    /// The number of clients that have connected so far.
    came: ClientId,
}

/// A client from the server's side.
struct Client {
    id: ClientId,
    stream: TcpStream,
    /// The bytes of the next request that have arrived.
    inbox: Vec<u8>,
    /// The bytes that still have to be sent.
    outbox: Vec<u8>,
    /// It has said the number that no stray connection says.
    validated: bool,
    gone: bool,
}

impl Server {
    fn run(mut self) {
        let shared = self.shared.clone();
        loop {
            let mut watched = vec![
                PollFd::from_borrowed_fd(shared.changed.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
            ];
            for client in &self.clients {
                let writes =
                    if client.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                watched
                    .push(PollFd::from_borrowed_fd(client.stream.as_fd(), PollFlags::IN | writes));
            }
            // An interruption is answered by looking at everything, as any event is.
            let _ = poll(&mut watched, None);
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            let _ = rustix::io::read(&shared.changed, &mut [0; 8]);
            if ready[1] {
                self.accept();
            }
            let mut state = shared.lock();
            if state.closing {
                return;
            }
            // Clients that were accepted just now have nothing ready.
            for (client, ready) in self.clients.iter_mut().zip(&ready[2..]) {
                if *ready && !client.gone {
                    client.serve(&mut state.held);
                }
            }
            for client in &mut self.clients {
                client.wake(&mut state.held);
                client.flush();
            }
            self.bound();
            for gone in self.clients.extract_if(.., |client| client.gone) {
                state.held.stop_waiting(gone.id);
            }
        }
    }

    /// Cuts off the client with the most bytes under way while all clients together have too many.
    fn bound(&mut self) {
        let under_way = |client: &Client| client.inbox.len() + client.outbox.len();
        loop {
            let here = self.clients.iter_mut().filter(|client| !client.gone);
            let (mut bytes, mut most) = (0, None);
            for client in here {
                bytes += under_way(client);
                if most.as_deref().is_none_or(|most| under_way(client) > under_way(most)) {
                    most = Some(client);
                }
            }
            let Some(most) = most.filter(|_| bytes > MAX_HELD_BYTES) else { return };
            most.gone = true;
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let mut strangers =
                        self.clients.iter_mut().filter(|client| !client.validated && !client.gone);
                    let oldest = strangers.next();
                    if strangers.count() + 2 > MAX_STRANGERS
                        && let Some(oldest) = oldest
                    {
                        // Removed later: the others have their places among what is watched.
                        oldest.gone = true;
                    }
                    if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                        self.came += 1;
                        self.clients.push(Client {
                            id: self.came,
                            stream,
                            inbox: Vec::new(),
                            outbox: Vec::new(),
                            validated: false,
                            gone: false,
                        });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // Out of descriptors, most likely: some will be given back.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            }
        }
    }
}

impl Client {
    /// Takes the bytes that have arrived and answers whole requests.
    fn serve(&mut self, held: &mut Held) {
        let mut piece = [0; 16 << 10];
        let mut taken = 0;
        while taken < TURN_BYTES {
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    self.gone = true;
                    break;
                }
                Ok(count) => {
                    self.inbox.extend_from_slice(&piece[..count]);
                    taken += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone = true;
                    break;
                }
            }
        }
        let mut done = 0;
        loop {
            let stray = self.inbox.first().is_some_and(|first| *first != Query::Validate as u8);
            if !self.validated && stray {
                self.gone = true;
                break;
            }
            match parse(&self.inbox[done..]) {
                Ok(Some((request, bytes))) => {
                    done += bytes;
                    if self.answer(request, held).is_none() {
                        self.gone = true;
                        break;
                    }
                }
                Ok(None) => {
                    self.gone |= self.inbox.len() - done > MAX_AT_ONCE_BYTES;
                    break;
                }
                Err(_) => {
                    self.gone = true;
                    break;
                }
            }
        }
        self.inbox.drain(..done);
    }

    /// Carries out a request; `None` if the client is to be cut off for it.
    fn answer(&mut self, request: Request, held: &mut Held) -> Option<()> {
        if !self.validated {
            self.validated = request == Request::Validate(VALIDATION);
            return self.validated.then_some(());
        }
        held.make_room_for(&request)?;
        // The answer to a wait comes before those of later requests.
        self.wake(held);
        match request {
            Request::Validate(_) => return None,
            Request::Ping(nonce) => self.outbox.extend(nonce.to_ne_bytes()),
            Request::Set { key, value } => held.set(&key, &value)?,
            Request::Append { key, value } => held.append(&key, &value)?,
            Request::MultiSet(entries) => {
                entries.iter().try_for_each(|(key, value)| held.set(key, value))?;
            }
            Request::CompareSet { key, expected, desired } => {
                let holds = held.compare_set(&key, &expected, &desired)?;
                self.send_value(&holds)?;
            }
            Request::Get(key) => self.send_value(&held.get(&key)?)?,
            Request::MultiGet(keys) => {
                keys.iter().try_for_each(|key| self.send_value(&held.get(key)?))?;
            }
            Request::Add { key, by } => self.send_number(held.add(&key, by)?),
            Request::Check(keys) => {
                self.outbox.push(if held.has_all(&keys) { READY } else { NOT_READY });
            }
            Request::Wait(keys) => held.wait(self.id, keys),
            Request::Barrier { key, workers } => held.barrier(self.id, key, workers)?,
            Request::CancelWait => {
                held.stop_waiting(self.id);
                self.outbox.push(WAIT_CANCELED);
            }
            Request::GetNumKeys => self.send_count(held.num_keys()?),
            Request::ListKeys => {
                let keys = held.keys();
                self.send_count(keys.len() as u64);
                keys.iter().try_for_each(|key| self.send_value(key.as_bytes()))?;
            }
            Request::DeleteKey(key) => self.send_number(held.delete_key(&key)?.into()),
            Request::QueuePush { key, value } => held.queue_push(key, value),
            Request::QueuePop(key) => {
                let (length, value) = held.queue_pop(&key);
                self.send_number(length);
                value.map_or(Some(()), |value| self.send_value(&value))?;
            }
            Request::QueueLen(key) => self.send_number(held.queue_len(&key)),
        }
        Some(())
    }

    /// Says that its wait has ended, if it has.
    fn wake(&mut self, held: &mut Held) {
        if held.has_woken(self.id) {
            self.outbox.push(STOP_WAITING);
        }
    }

    fn send_count(&mut self, count: u64) {
        self.send_number(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn send_number(&mut self, number: i64) {
        self.outbox.extend(number.to_ne_bytes());
    }

    /// `None` if the client would have too much to take.
    fn send_value(&mut self, value: &[u8]) -> Option<()> {
        if self.outbox.len() + value.len() > MAX_AT_ONCE_BYTES {
            return None;
        }
        self.outbox.extend((value.len() as u64).to_ne_bytes());
        self.outbox.extend(value);
        Some(())
    }

    fn flush(&mut self) {
        while !self.outbox.is_empty() && !self.gone {
            match self.stream.write(&self.outbox) {
                Ok(count) => {
                    self.outbox.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.gone = true,
            }
        }
        self.gone |= self.outbox.len() > MAX_AT_ONCE_BYTES;
    }
}
