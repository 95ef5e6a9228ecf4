//! Bodies of requests are admitted before anything reads them: so many bytes of all requests together, one
//! large body parsed at a time, and no body that comes too slowly.
//!
//! A reservation grows with the bytes that have come, so a slow client holds only the bytes that it has sent.
//! It goes along with the work ([`Held`]): a client that hangs up frees nothing before the work on its bytes
//! has ended.

use crate::api::ApiError;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The first bytes of every body are free, so that a small request always gets through.
const FREE_BYTES: u64 = 64 << 10;

/// A permit of [`Admission`] is for so many bytes.
const STEP_BYTES: u64 = 256 << 10;

/// A body past this is parsed alone.
const LARGE_BYTES: usize = 1 << 20;

/// The lowest rate at which a body may arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest pause.
    pub(crate) pause: Duration,
    /// The rate that a body has to keep up once `grace` has passed.
    pub(crate) bytes_per_s: u64,
    /// The time before the rate counts.
    pub(crate) grace: Duration,
    /// The longest time of a whole body.
    pub(crate) whole: Duration,
    /// The longest wait for other bodies to make room.
    pub(crate) room: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            pause: Duration::from_secs(15),
            bytes_per_s: 64 << 10,
            grace: Duration::from_secs(10),
            whole: Duration::from_secs(20 * 60),
            room: Duration::from_secs(20),
        }
    }
}

/// The room for bodies.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    steps: Arc<Semaphore>,
    parsers: Arc<Semaphore>,
    total_bytes: u64,
    pace: Pace,
}

/// The bytes that a body has reserved. Returned when the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    steps: Arc<Mutex<Vec<OwnedSemaphorePermit>>>,
}

/// The bodies of some routes.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    admission: Admission,
    /// The most that one may have.
    most_bytes: u64,
}

impl Admission {
    /// Room for so many bytes of bodies at once.
    pub(crate) fn new(total_bytes: u64, pace: Pace) -> Admission {
        let steps = usize::try_from(total_bytes / STEP_BYTES).unwrap_or(Semaphore::MAX_PERMITS);
        let steps = Arc::new(Semaphore::new(steps.min(Semaphore::MAX_PERMITS)));
        Admission { steps, parsers: Arc::new(Semaphore::new(1)), total_bytes, pace }
    }

    /// Routes whose bodies have at most so many bytes, and fit into the room.
    pub(crate) fn bodies(&self, most_bytes: u64) -> Bodies {
        Bodies { admission: self.clone(), most_bytes: most_bytes.min(self.total_bytes) }
    }

    /// The turn to parse a body of so many bytes; `None` for a small one, which needs no turn. The work on
    /// the body has to hold it.
    ///
    /// # Errors
    /// When the service is shutting down.
    pub(crate) async fn turn(
        &self,
        bytes: usize,
    ) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        if bytes <= LARGE_BYTES {
            return Ok(None);
        }
        match self.parsers.clone().acquire_owned().await {
            Ok(turn) => Ok(Some(turn)),
            Err(_) => Err(ApiError::internal("the service is shutting down")),
        }
    }
}

/// Hands a request on with a body that is admitted as it comes.
pub(crate) async fn admit(
    State(bodies): State<Bodies>,
    mut request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        request.extensions_mut().insert(Held::default());
        return next.run(request).await;
    }
    if request.body().size_hint().lower() > bodies.most_bytes {
        return too_large(bodies.most_bytes).into_response();
    }
    let refusal = Arc::new(OnceLock::new());
    let held = Held::default();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(held.clone());
    let small = body.size_hint().upper().is_some_and(|most| most <= FREE_BYTES);
    let mut incoming = Incoming { body, bodies, held, began: Instant::now(), bytes: 0 };
    if small {
        // Read for handlers that do not: a connection whose request was not read to its end is closed.
        let mut all = Vec::new();
        loop {
            match incoming.next().await {
                Ok(Some(chunk)) => all.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return error.into_response(),
            }
        }
        return next.run(Request::from_parts(parts, Body::from(all))).await;
    }
    let told = refusal.clone();
    let admitted = stream::try_unfold(incoming, move |mut incoming| {
        let told = told.clone();
        async move {
            match incoming.next().await {
                Ok(Some(chunk)) => Ok(Some((chunk, incoming))),
                Ok(None) => Ok(None),
                Err(error) => {
                    let text = error.to_string();
                    // The first one is the cause.
                    let _ = told.set(error);
                    Err(std::io::Error::other(text))
                }
            }
        }
    });
    let response = next.run(Request::from_parts(parts, Body::from_stream(admitted))).await;
    // Whatever the handler made of a body that broke off: this is why.
    match refusal.get() {
        Some(refusal) => refusal.clone().into_response(),
        None => response,
    }
}

/// A body on its way.
struct Incoming {
    body: Body,
    bodies: Bodies,
    held: Held,
    began: Instant,
    bytes: u64,
}

impl Incoming {
    async fn next(&mut self) -> Result<Option<axum::body::Bytes>, ApiError> {
        loop {
            let deadline = self.deadline();
            let body = &mut self.body;
            let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
            let Ok(frame) = tokio::time::timeout_at(deadline, frame).await else {
                return Err(self.too_slow());
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| {
                ApiError::bad_request(format!("the body of the request broke off: {error}"))
            })?;
            let Ok(chunk) = frame.into_data() else { continue };
            self.bytes += chunk.len() as u64;
            if self.bytes > self.bodies.most_bytes {
                return Err(too_large(self.bodies.most_bytes));
            }
            self.reserve().await?;
            return Ok(Some(chunk));
        }
    }

    /// The moment at which the body is too slow if nothing more has come.
    fn deadline(&self) -> Instant {
        let pace = &self.bodies.admission.pace;
        let at_rate = Duration::from_secs(1 + self.bytes / pace.bytes_per_s.max(1));
        let by_rate = self.began + pace.grace + at_rate;
        (Instant::now() + pace.pause).min(by_rate).min(self.began + pace.whole)
    }

    fn too_slow(&self) -> ApiError {
        let seconds = self.began.elapsed().as_secs_f32();
        ApiError::stalled(format!(
            "only {} bytes of the request's body came in {seconds:.1} s, and the rest was not waited for; send \
             it again over a faster connection",
            self.bytes
        ))
    }

    /// Takes room for the bytes that have come, and waits if there is none.
    async fn reserve(&mut self) -> Result<(), ApiError> {
        let admission = &self.bodies.admission;
        let wanted = self.bytes.saturating_sub(FREE_BYTES).div_ceil(STEP_BYTES);
        while self.held.count() < wanted {
            let step = admission.steps.clone().acquire_owned();
            let waited = Instant::now();
            let Ok(Ok(step)) = tokio::time::timeout(admission.pace.room, step).await else {
                return Err(ApiError::busy(format!(
                    "other requests hold the {} MiB that bodies may take here; try again in a minute",
                    admission.total_bytes >> 20
                )));
            };
            // The client is not slow while it waits for us.
            self.began += waited.elapsed();
            self.held.add(step);
        }
        Ok(())
    }
}

impl Held {
    fn count(&self) -> u64 {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn add(&self, step: OwnedSemaphorePermit) {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }
}

fn too_large(most_bytes: u64) -> ApiError {
    ApiError::too_large(format!("the body of such a request has at most {} MiB", most_bytes >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio_util::io::ReaderStream;

    const PACE: Pace = Pace {
        pause: Duration::from_secs(5),
        bytes_per_s: 1000,
        grace: Duration::from_secs(3),
        whole: Duration::from_secs(60),
        room: Duration::from_secs(2),
    };

    /// Time advances only when everything waits for it.
    fn test(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            tokio::time::pause();
            work.await;
        });
    }

    fn incoming(bodies: &Bodies) -> (tokio::io::DuplexStream, Incoming) {
        let (sender, receiver) = tokio::io::duplex(4 << 20);
        let body = Body::from_stream(ReaderStream::new(receiver));
        let (held, began) = (Held::default(), Instant::now());
        (sender, Incoming { body, bodies: bodies.clone(), held, began, bytes: 0 })
    }

    async fn all(incoming: &mut Incoming) -> Result<u64, u16> {
        loop {
            match incoming.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(incoming.bytes),
                Err(error) => return Err(error.into_response().status().as_u16()),
            }
        }
    }

    #[test]
    fn a_body_that_pauses_drips_or_never_ends_is_given_up_on() {
        test(async {
            let bodies = Admission::new(1 << 30, PACE).bodies(1 << 30);
            let began = Instant::now();
            let (mut sender, mut silent) = incoming(&bodies);
            sender.write_all(&[0; 100_000]).await.unwrap();
            assert_eq!(all(&mut silent).await, Err(408));
            assert_eq!(began.elapsed().as_secs(), 5);
            for (bytes, seconds) in [(500, 3..=8), (2000, 59..=61)] {
                let (mut sender, mut slow) = incoming(&bodies);
                let began = Instant::now();
                let dripping = tokio::spawn(async move {
                    while sender.write_all(&vec![0; bytes]).await.is_ok() {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                });
                assert_eq!(all(&mut slow).await, Err(408));
                assert!(seconds.contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
                dripping.abort();
            }
        });
    }

    #[test]
    fn bodies_share_the_room_and_give_it_back() {
        test(async {
            let admission = Admission::new(4 * STEP_BYTES, PACE);
            let bodies = admission.bodies(1 << 30);
            let (mut sender, mut first) = incoming(&bodies);
            sender.write_all(&vec![0; 3 * STEP_BYTES as usize]).await.unwrap();
            drop(sender);
            assert_eq!(all(&mut first).await, Ok(3 * STEP_BYTES));
            // A small one needs none; the next large one finds no room.
            let (mut sender, mut small) = incoming(&bodies);
            sender.write_all(&[0; 1000]).await.unwrap();
            drop(sender);
            assert_eq!(all(&mut small).await, Ok(1000));
            let (mut sender, mut second) = incoming(&bodies);
            sender.write_all(&vec![0; 3 * STEP_BYTES as usize]).await.unwrap();
            drop(sender);
            assert_eq!(all(&mut second).await, Err(503));
            drop((first, second));
            assert_eq!(admission.steps.available_permits(), 4);
            let (mut sender, mut over) = incoming(&admission.bodies(1000));
            sender.write_all(&[0; 2000]).await.unwrap();
            assert_eq!(all(&mut over).await, Err(413));
        });
    }

    #[test]
    fn a_large_body_is_parsed_alone_also_when_its_client_hung_up() {
        test(async {
            let admission = Admission::new(1 << 30, PACE);
            let turn = admission.turn(LARGE_BYTES + 1).await.unwrap();
            assert!(turn.is_some() && admission.turn(1000).await.unwrap().is_none());
            let second = tokio::time::timeout(PACE.room, admission.turn(LARGE_BYTES + 1)).await;
            assert!(second.is_err(), "the first turn is still held");
            drop(turn);
            assert!(admission.turn(LARGE_BYTES + 1).await.unwrap().is_some());
        });
    }
}
