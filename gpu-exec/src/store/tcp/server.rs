//! The server of a TCP store: one thread over `poll`, as c10d's daemons are. It is gone, thread
//! and sockets, when it is dropped.
//!
//! The table is a plain one: what makes a TCP store special (slashes before keys, waits that are
//! cancelled, a connection that is dropped over a bad `add`) is said by the protocol.
//!
//! The protocol has no word for a refusal: whoever asks for more than the limits is cut off, as by
//! c10d's server, and hears so from its own client ([`super::client`]). What others put into the
//! store stays.

use super::wire::{
    MAX_AT_ONCE_BYTES, MAX_HELD_BYTES, NOT_READY, Query, READY, Request, STOP_WAITING, VALIDATION,
    WAIT_CANCELED, parse,
};
use lockstep_core::c10d::store::{Answer, Store as Table, StoreKind};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that have not yet said what every client says first: when there are more, the
/// oldest goes.
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
    table: Table,
    /// Bytes of the table's keys, each with its value, and of all of them; not less than there are.
    sizes: BTreeMap<String, usize>,
    held: usize,
    closing: bool,
}

/// What a request puts under a key.
#[derive(Clone, Copy)]
enum Put {
    Instead(usize),
    OnTop(usize),
    /// One or the other.
    Either(usize),
}

impl State {
    /// Makes room for what is put under a key; `None` if there is none.
    fn make_room(&mut self, key: &str, put: Put) -> Option<()> {
        let before = self.sizes.get(key).copied();
        let old = before.unwrap_or(0);
        let after = match put {
            Put::Instead(bytes) => key.len() + bytes,
            Put::OnTop(bytes) => before.unwrap_or(key.len()) + bytes,
            Put::Either(bytes) => old.max(key.len() + bytes),
        };
        let held = self.held.saturating_sub(old).saturating_add(after);
        if held > MAX_HELD_BYTES {
            return None;
        }
        self.held = held;
        self.sizes.insert(key.to_owned(), after);
        Some(())
    }

    fn make_room_for(&mut self, request: &Request) -> Option<()> {
        match request {
            Request::Set { key, value } => self.make_room(key, Put::Instead(value.len())),
            Request::Append { key, value } => self.make_room(key, Put::OnTop(value.len())),
            Request::CompareSet { key, desired, .. } => {
                self.make_room(key, Put::Either(desired.len()))
            }
            // A number in decimal digits.
            Request::Add { key, .. } => self.make_room(key, Put::Either(20)),
            Request::MultiSet(entries) => (entries.iter())
                .try_for_each(|(key, value)| self.make_room(key, Put::Instead(value.len()))),
            Request::DeleteKey(key) => {
                self.held = self.held.saturating_sub(self.sizes.remove(key).unwrap_or(0));
                Some(())
            }
            _ => Some(()),
        }
    }
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
        let (table, sizes) = (Table::new(StoreKind::Hash), BTreeMap::new());
        let state = State { table, sizes, held: 0, closing: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed });
        let served = shared.clone();
        let serving = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || Server { listener, shared: served, clients: Vec::new() }.run())?;
        Ok(StoreServer { shared, address, serving: Some(serving) })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets a key from inside the server's process.
    pub fn set(&self, key: &str, value: &[u8]) {
        // A plain table takes every key.
        let _ = self.shared.lock().table.set(&format!("/{key}"), value);
        self.shared.wake();
    }

    /// Whether a key exists, from inside the server's process.
    pub fn has(&self, key: &str) -> bool {
        self.peek(key).is_some()
    }

    /// A key's value now, from inside the server's process.
    pub fn peek(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.lock().table.get(&format!("/{key}")).ok()?.ready()
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
}

/// A client from the server's side.
struct Client {
    stream: TcpStream,
    /// What has arrived of the next request.
    inbox: Vec<u8>,
    /// What still has to be sent.
    outbox: Vec<u8>,
    /// It has said the number that no stray connection says.
    validated: bool,
    /// The keys that it waits for.
    waits: Option<Vec<String>>,
    gone: bool,
}

impl Server {
    fn run(mut self) {
        loop {
            let mut watched = vec![
                PollFd::from_borrowed_fd(self.shared.changed.as_fd(), PollFlags::IN),
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
            let _ = rustix::io::read(&self.shared.changed, &mut [0; 8]);
            if ready[1] {
                self.accept();
            }
            let mut state = self.shared.lock();
            if state.closing {
                return;
            }
            // Clients that were accepted just now have nothing ready.
            for (client, ready) in self.clients.iter_mut().zip(&ready[2..]) {
                if *ready && !client.gone {
                    client.serve(&mut state);
                }
            }
            for client in &mut self.clients {
                client.wake(&state.table);
            }
            drop(state);
            for client in &mut self.clients {
                client.flush();
            }
            self.clients.retain(|client| !client.gone);
            self.bound();
        }
    }

    /// Cuts off who has the most under way while that is too much of all clients together.
    fn bound(&mut self) {
        let under_way = |client: &Client| client.inbox.len() + client.outbox.len();
        while self.clients.iter().map(under_way).sum::<usize>() > MAX_HELD_BYTES {
            let most = (0..self.clients.len()).max_by_key(|at| under_way(&self.clients[*at]));
            let Some(most) = most else { return };
            self.clients.swap_remove(most);
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
                        self.clients.push(Client {
                            stream,
                            inbox: Vec::new(),
                            outbox: Vec::new(),
                            validated: false,
                            waits: None,
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
    /// Takes what has arrived and answers what is whole.
    fn serve(&mut self, state: &mut State) {
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
                    if self.answer(request, state).is_none() {
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
    fn answer(&mut self, request: Request, state: &mut State) -> Option<()> {
        if !self.validated {
            self.validated = request == Request::Validate(VALIDATION);
            return self.validated.then_some(());
        }
        state.make_room_for(&request)?;
        let table = &mut state.table;
        match request {
            Request::Validate(_) => return None,
            Request::Ping(nonce) => self.outbox.extend(nonce.to_ne_bytes()),
            Request::Set { key, value } => table.set(&key, &value).ok()?,
            Request::Append { key, value } => table.append(&key, &value).ok()?,
            Request::MultiSet(entries) => {
                for (key, value) in entries {
                    table.set(&key, &value).ok()?;
                }
            }
            Request::CompareSet { key, expected, desired } => {
                let holds = table.compare_set(&key, &expected, &desired).ok()?;
                self.send_value(&holds)?;
            }
            Request::Get(key) => {
                let value = table.get(&key).ok()?.ready()?;
                self.send_value(&value)?;
            }
            Request::MultiGet(keys) => {
                for key in keys {
                    let value = table.get(&key).ok()?.ready()?;
                    self.send_value(&value)?;
                }
            }
            Request::Add { key, by } => {
                // `std::stoll` refuses an empty value, which a plain table takes for none.
                let empty = table.get(&key).ok()? == Answer::Ready(Vec::new());
                let sum = if empty { None } else { table.add(&key, by).ok() };
                self.send_number(sum?);
            }
            Request::Check(keys) => {
                self.outbox.push(if has_all(table, &keys) { READY } else { NOT_READY });
            }
            Request::Wait(keys) => self.waits = Some(keys),
            Request::CancelWait => {
                self.waits = None;
                self.outbox.push(WAIT_CANCELED);
            }
            Request::GetNumKeys => {
                let keys = table.num_keys().ok()?;
                self.send_number(i64::try_from(keys).unwrap_or(i64::MAX));
            }
            Request::DeleteKey(key) => {
                let deleted = table.delete_key(&key).ok()?;
                self.send_number(deleted.into());
            }
        }
        // The answer to a wait comes before those of later requests.
        self.wake(table);
        Some(())
    }

    /// Ends a wait whose keys are all there.
    fn wake(&mut self, table: &Table) {
        if self.waits.as_ref().is_some_and(|keys| has_all(table, keys)) {
            self.waits = None;
            self.outbox.push(STOP_WAITING);
        }
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

fn has_all(table: &Table, keys: &[String]) -> bool {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    table.check(&keys).unwrap_or(false)
}
