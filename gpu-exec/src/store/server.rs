//! The store's server: a thread that accepts, a thread for each client. It lives in the
//! coordinator and is gone, threads and sockets, when it is dropped.

use super::StoreError;
use super::table::Table;
use super::wire::{Answer, Request, read_frame, write_frame};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Serves a store on a free port of 127.0.0.1.
#[derive(Debug)]
pub struct StoreServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    table: Table,
    closing: AtomicBool,
    /// The clients that are there, to be cut off at the end, and their threads.
    clients: Mutex<Vec<(Arc<TcpStream>, JoinHandle<()>)>>,
}

impl StoreServer {
    /// Starts serving.
    ///
    /// # Errors
    /// When the system gives no socket or thread.
    pub fn start() -> io::Result<StoreServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepted = shared.clone();
        let accepting = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || accept(&listener, &accepted))?;
        Ok(StoreServer { shared, address, accepting: Some(accepting) })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets a key from inside the server's process.
    pub fn set(&self, key: &str, value: &[u8]) {
        self.shared.table.set(key.to_owned(), value.to_vec());
    }

    /// Whether a key exists, from inside the server's process.
    pub fn has(&self, key: &str) -> bool {
        self.shared.table.check(&[key.to_owned()])
    }

    /// A key's value now, from inside the server's process.
    pub fn peek(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.table.wait(&[key.to_owned()], Duration::ZERO).ok()
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.table.close();
        // The accepting thread sees `closing` once something connects.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let (Ok(_), Some(accepting)) = (woken, self.accepting.take()) {
            let _ = accepting.join();
        }
        let clients = {
            let mut clients = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *clients)
        };
        for (stream, _) in &clients {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for (_, thread) in clients {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream.map(Arc::new) else {
            // Out of descriptors, most likely: some will be given back.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let cut_off = stream.clone();
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("store-client".to_owned())
            .spawn(move || serve(&stream, &served.table));
        let Ok(thread) = thread else { continue };
        let mut clients = shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Those who are done are forgotten here, so that their sockets close.
        let (done, mut there): (Vec<_>, Vec<_>) =
            clients.drain(..).partition(|(_, thread)| thread.is_finished());
        there.push((cut_off, thread));
        *clients = there;
        drop(clients);
        drop(done);
    }
}

/// Answers one client until it leaves or says something that is no request.
fn serve(mut stream: &TcpStream, table: &Table) {
    let _ = stream.set_nodelay(true);
    while let Ok(request) = read_frame::<Request>(&mut stream) {
        if write_frame(&mut stream, &answer(table, request)).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn answer(table: &Table, request: Request) -> Answer {
    let waited = |keys: &[String], timeout_ns| table.wait(keys, Duration::from_nanos(timeout_ns));
    let failed = |error| match error {
        StoreError::Timeout { key, .. } => Answer::Timeout { key },
        _ => Answer::NotANumber,
    };
    match request {
        Request::Set { key, value } => {
            table.set(key, value);
            Answer::Done
        }
        Request::Get { key, timeout_ns } => {
            waited(&[key], timeout_ns).map_or_else(failed, Answer::Value)
        }
        Request::Add { key, by } => table.add(&key, by).map_or_else(failed, Answer::Number),
        Request::Wait { keys, timeout_ns } => {
            waited(&keys, timeout_ns).map_or_else(failed, |_| Answer::Done)
        }
        Request::CompareSet { key, expected, desired } => {
            Answer::Value(table.compare_set(&key, &expected, desired))
        }
        Request::Check { keys } => Answer::Truth(table.check(&keys)),
        Request::DeleteKey { key } => Answer::Truth(table.delete_key(&key)),
    }
}
