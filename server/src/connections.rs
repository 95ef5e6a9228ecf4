//! Connections: so many at once, each with a deadline for its headers and for a client that takes nothing.
//!
//! Each takes a descriptor, and runs need some too. When all places are taken, the connection is closed that
//! has waited longest for a request, so that silent clients cannot keep others out.

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Request, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Sleep;
use tower_service::Service as _;

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once, requests and watchers alike.
    pub(crate) places: usize,
    /// A request's headers have to be there within this; a connection without a request ends after it.
    pub(crate) headers: Duration,
    /// A client that takes nothing of an answer for this long is gone.
    pub(crate) stalled: Duration,
    /// A connection waits this long for a place.
    pub(crate) place: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            places: 256,
            headers: Duration::from_secs(15),
            stalled: Duration::from_secs(30),
            place: Duration::from_secs(10),
        }
    }
}

/// Serves `app` until `stop` is notified, and then until every request is answered.
pub(crate) async fn serve(listener: TcpListener, app: Router, limits: Limits, stop: Arc<Notify>) {
    let places = Arc::new(Semaphore::new(limits.places));
    let waiting = Waiting::default();
    let (stopping, told_to_stop) = watch::channel(());
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.headers);
    let told = stop.notified();
    tokio::pin!(told);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut told => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The client is gone, or no descriptor is free: some will be.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let place = match places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                waiting.end_the_oldest();
                let place = places.clone().acquire_owned();
                match tokio::time::timeout(limits.place, place).await {
                    Ok(Ok(place)) => place,
                    _ => continue,
                }
            }
        };
        let connection = waiting.enter();
        let ended = connection.ended.clone();
        let io = TokioIo::new(Placed::new(stream, limits.stalled, place));
        let router = app.clone();
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let (mut router, connection) = (router.clone(), connection.clone());
            async move {
                let at_work = connection.at_work();
                // A router is always ready, and cannot fail.
                let response = router.call(request.map(Body::new)).await;
                let response: Result<Response<Body>, Infallible> = response;
                response.map(|response| response.map(|body| Sent { body, _at_work: at_work }))
            }
        });
        let serving = http.serve_connection(io, service).with_upgrades();
        let mut told_to_stop = told_to_stop.clone();
        tokio::spawn(async move {
            let mut serving = std::pin::pin!(serving);
            tokio::select! {
                // A client that breaks off is no fault of ours.
                _ = &mut serving => {}
                () = ended.notified() => {}
                _ = told_to_stop.changed() => {
                    serving.as_mut().graceful_shutdown();
                    let _ = serving.await;
                }
            }
        });
    }
    drop((listener, told_to_stop));
    // Nobody may listen any more.
    let _ = stopping.send(());
    stopping.closed().await;
}

/// The connections, and since when each has waited for a request.
#[derive(Clone, Debug, Default)]
struct Waiting {
    all: Arc<Mutex<Connections>>,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    of: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// `None` while it is at work on a request.
    since: Option<Instant>,
    ended: Arc<Notify>,
}

/// A connection among the others. Its last clone takes it out.
#[derive(Clone, Debug)]
struct Connection {
    ended: Arc<Notify>,
    entered: Arc<Entered>,
}

#[derive(Debug)]
struct Entered {
    id: u64,
    waiting: Waiting,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        // Whatever panicked, an entry is there or not.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Connection {
        let ended = Arc::new(Notify::new());
        let mut all = self.lock();
        let id = all.next;
        all.next += 1;
        all.of.insert(id, Entry { since: Some(Instant::now()), ended: ended.clone() });
        Connection { ended, entered: Arc::new(Entered { id, waiting: self.clone() }) }
    }

    /// Ends the connection that has waited longest; none if all are at work.
    fn end_the_oldest(&self) {
        let mut all = self.lock();
        let waiting = all.of.iter().filter_map(|(id, entry)| Some((entry.since?, *id)));
        let Some((_, oldest)) = waiting.min() else { return };
        if let Some(entry) = all.of.remove(&oldest) {
            entry.ended.notify_one();
        }
    }

    fn set(&self, id: u64, since: Option<Instant>) {
        if let Some(entry) = self.lock().of.get_mut(&id) {
            entry.since = since;
        }
    }
}

impl Connection {
    fn at_work(&self) -> AtWork {
        self.entered.waiting.set(self.entered.id, None);
        AtWork(self.entered.clone())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.waiting.lock().of.remove(&self.id);
    }
}

/// Held while a request is worked on and its answer is sent.
#[derive(Debug)]
struct AtWork(Arc<Entered>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.id, Some(Instant::now()));
    }
}

/// The body of an answer, until all of it is sent.
struct Sent {
    body: Body,
    _at_work: AtWork,
}

impl HttpBody for Sent {
    type Data = axum::body::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// A connection in its place. Writing fails once the client has taken nothing for too long.
#[derive(Debug)]
struct Placed {
    stream: TcpStream,
    stalled: Duration,
    /// Runs while the client takes nothing.
    deadline: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl Placed {
    fn new(stream: TcpStream, stalled: Duration, place: OwnedSemaphorePermit) -> Placed {
        Placed { stream, stalled, deadline: None, _place: place }
    }

    /// The result, or an error when nothing was taken for too long.
    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let stalled = self.stalled;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(stalled)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Placed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let placed = self.get_mut();
        let polled = Pin::new(&mut placed.stream).poll_write(context, bytes);
        placed.in_time(context, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let placed = self.get_mut();
        let polled = Pin::new(&mut placed.stream).poll_write_vectored(context, bytes);
        placed.in_time(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LIMITS: Limits = Limits {
        places: 4,
        headers: Duration::from_millis(300),
        stalled: Duration::from_millis(300),
        place: Duration::from_secs(5),
    };

    /// Does `work` beside a service, which then has to end.
    fn beside<F: Future<Output = ()>>(
        limits: Limits,
        work: impl FnOnce(std::net::SocketAddr) -> F,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let app = Router::new()
                .route("/", get(|| async { "here" }))
                .route("/large", get(|| async { vec![7u8; 64 << 20] }));
            let stop = Arc::new(Notify::new());
            let serving = tokio::spawn(serve(listener, app, limits, stop.clone()));
            work(address).await;
            stop.notify_one();
            tokio::time::timeout(Duration::from_secs(5), serving).await.unwrap().unwrap();
        });
    }

    async fn answer(stream: &mut TcpStream) -> String {
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut bytes = vec![0; 1000];
        let read = stream.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    #[test]
    fn half_open_connections_keep_nobody_out() {
        // Longer than the test: it is not the deadline that makes room.
        let limits = Limits { headers: Duration::from_secs(60), ..LIMITS };
        beside(limits, async |address| {
            let mut silent = Vec::new();
            for _ in 0..4 {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET / HT").await.unwrap();
                silent.push(stream);
            }
            let mut asking = TcpStream::connect(address).await.unwrap();
            assert!(answer(&mut asking).await.ends_with("here"));
            // The one that had waited longest is gone, the others are there.
            assert_eq!(silent[0].read(&mut [0; 10]).await.unwrap_or(0), 0);
            for stream in &mut silent[1..] {
                stream.write_all(b"TP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
                assert_ne!(stream.read(&mut [0; 10]).await.unwrap(), 0);
            }
        });
    }

    #[test]
    fn headers_have_a_deadline_and_so_have_readers() {
        beside(LIMITS, async |address| {
            let mut slow = TcpStream::connect(address).await.unwrap();
            let began = Instant::now();
            let dripped = async {
                while slow.write_all(b"G").await.is_ok() && began.elapsed().as_secs() < 10 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            dripped.await;
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            // It asks for much and takes nothing; then the connection is gone.
            let mut idle = TcpStream::connect(address).await.unwrap();
            idle.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut bytes = Vec::new();
            let _ = tokio::time::timeout(Duration::from_secs(5), idle.read_to_end(&mut bytes))
                .await
                .unwrap();
            assert!(bytes.len() < 64 << 20, "{}", bytes.len());
        });
    }
}
