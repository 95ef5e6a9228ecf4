//! So many connections at once, and no more: each takes a descriptor, and runs need some too.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at once, requests and watchers alike; the next wait in the listener's queue.
const MOST: usize = 256;

/// A listener that waits for room before it takes the next connection.
#[derive(Debug)]
pub(crate) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener) -> Bounded {
        Bounded::of(listener, MOST)
    }

    fn of(listener: TcpListener, most: usize) -> Bounded {
        Bounded { listener, places: Arc::new(Semaphore::new(most)) }
    }
}

/// A connection in its place.
#[derive(Debug)]
pub(crate) struct Placed {
    stream: TcpStream,
    /// `None` only for a semaphore that is closed, which nobody does.
    _place: Option<OwnedSemaphorePermit>,
}

impl Listener for Bounded {
    type Io = Placed;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Placed, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Placed { stream, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
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
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
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
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_connection_waits_for_a_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut bounded = Bounded::of(listener, 2);
            let address = bounded.local_addr().unwrap();
            let mut ours = Vec::new();
            for _ in 0..3 {
                ours.push(TcpStream::connect(address).await.unwrap());
            }
            let first = bounded.accept().await;
            let _second = bounded.accept().await;
            {
                let third = bounded.accept();
                tokio::pin!(third);
                let ready = std::future::poll_fn(|context| {
                    Poll::Ready(third.as_mut().poll(context).is_ready())
                });
                assert!(!ready.await, "there is no place");
            }
            drop(first);
            let (_, third) = bounded.accept().await;
            assert_eq!(third, ours[2].local_addr().unwrap());
        });
    }
}
