//! The job on the page of a `lockstep serve` while it runs: what its ranks do, and the newest trace of their calls.

use super::hub::Hub;
use crate::files;
use crate::http::{AskError, Place};
use crate::terminal;
use crate::watched_jobs::News;
use anyhow::{Context, Result, bail};
use axum::body::Body;
use hyper::{Method, Request, StatusCode, header};
use lockstep_core::trace::Trace;
use lockstep_formats::recording::{Piece, Sources};
use serde::Deserialize;
use serde_json::json;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two messages to the page.
const PACE: Duration = Duration::from_secs(1);

/// A page that does not answer is asked again after this long.
const AGAIN: Duration = Duration::from_secs(5);

/// The time that a page has for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A trace that takes so long to make pauses so many times as long.
const REST: u32 = 20;

/// The address that `lockstep serve` prints: `http://127.0.0.1:7077/#token=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageAddress {
    /// `127.0.0.1:7077`.
    authority: String,
    /// The token, unless the service has none.
    token: Option<String>,
}

impl FromStr for PageAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<PageAddress> {
        let expected =
            "it is the address that lockstep serve prints: http://127.0.0.1:7077/#token=…";
        let Some(rest) = text.strip_prefix("http://") else {
            bail!("{expected}. Only plain HTTP is spoken: use an SSH tunnel to another machine");
        };
        let (authority, behind) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.is_empty() || authority.contains(['@', '#', '?']) {
            bail!("{expected}");
        }
        let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        let authority = match port {
            Some(Ok(_)) => authority.to_owned(),
            Some(Err(_)) => bail!("{authority} has no port; {expected}"),
            None => format!("{authority}:80"),
        };
        let token = behind.strip_prefix("#token=").map(|token| match token.split_once('&') {
            Some((token, _)) => token.to_owned(),
            None => token.to_owned(),
        });
        match (behind, &token) {
            ("" | "#" | "#/", None) | (_, Some(_)) => Ok(PageAddress { authority, token }),
            _ => bail!("{behind:?} is behind its port; {expected}"),
        }
    }
}

impl PageAddress {
    /// The place of a watched job on the page.
    fn of_job(&self, id: u64) -> String {
        let token = self.token.as_ref().map(|token| format!("token={token}&")).unwrap_or_default();
        format!("http://{}/#{token}/runs/watched-{id}", self.authority)
    }

    fn place(&self) -> Result<Place> {
        let mut found = self
            .authority
            .to_socket_addrs()
            .with_context(|| format!("{} is no machine that this one knows", self.authority))?;
        let address = found.next().with_context(|| format!("{} has no address", self.authority))?;
        let (host, _) = self.authority.rsplit_once(':').unwrap_or((&self.authority, ""));
        Ok(Place::Tcp { host: host.to_owned(), address })
    }
}

/// The job at its end: its news, and the whole trace where there is one.
struct End {
    news: News,
    trace: Option<Vec<u8>>,
}

/// Shows the job from a thread of its own: a page that does not answer never holds up the watch.
pub(super) struct Shown {
    ends: Sender<End>,
    thread: JoinHandle<()>,
}

impl Shown {
    /// Begins to show the job whose ranks report to `hub` and whose dumps lie in `recording`.
    pub(super) fn begin(page: PageAddress, command: String, hub: Hub, recording: PathBuf) -> Shown {
        let (ends, ended) = channel();
        let mut showing =
            Showing { page, command, hub, recording, id: None, told: false, dumps: 0 };
        let thread = std::thread::spawn(move || showing.run(&ended));
        Shown { ends, thread }
    }

    /// Shows how the job ended, and waits until that has arrived, or cannot.
    pub(super) fn end(self, ended: String, report: Option<String>, trace: Option<&Trace>) {
        let news = News { ended: Some(ended), report, ..News::default() };
        let trace = trace.map(Trace::to_bytes);
        // Both fail only where the thread has panicked: there is nobody left to tell.
        let _ = self.ends.send(End { news, trace });
        let _ = self.thread.join();
    }
}

struct Showing {
    page: PageAddress,
    command: String,
    hub: Hub,
    recording: PathBuf,
    /// The number of the job on the page, once it is there.
    id: Option<u64>,
    /// True once a failure was told: once is enough.
    told: bool,
    /// The dumps that were there when the last trace was made.
    dumps: u64,
}

#[derive(Deserialize)]
struct Begun {
    id: u64,
}

impl Showing {
    fn run(&mut self, ended: &Receiver<End>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        let mut rest = Duration::ZERO;
        loop {
            let pause = match runtime.block_on(self.step(&mut rest)) {
                Ok(()) => PACE,
                Err(error) => {
                    self.failed(&error);
                    AGAIN
                }
            };
            rest = rest.saturating_sub(pause);
            match ended.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(end) => {
                    if let Err(error) = runtime.block_on(self.end(end)) {
                        self.failed(&error);
                    }
                    return;
                }
            }
        }
    }

    fn failed(&mut self, error: &anyhow::Error) {
        // A service that was started anew knows nothing of the job.
        let forgotten = error
            .downcast_ref()
            .is_some_and(|it| matches!(it, AskError::Status { status: StatusCode::NOT_FOUND, .. }));
        if forgotten {
            self.id = None;
        }
        if !std::mem::replace(&mut self.told, true) {
            terminal::note(&format!(
                "lockstep: the page does not show the job for now: {error:#}. The job goes on, and is watched"
            ));
        }
    }

    /// Tells the news, and shows a new trace if there are new dumps and the last one was not just made.
    async fn step(&mut self, rest: &mut Duration) -> Result<()> {
        let id = self.begun().await?;
        let news = self.news();
        self.tell(id, &news).await?;
        let dumps = self.hub.watched().dumps;
        if dumps == self.dumps || !rest.is_zero() {
            return Ok(());
        }
        let began = Instant::now();
        if let Some(trace) = calls_in(&self.recording) {
            self.show(id, trace.to_bytes()).await?;
        }
        (*rest, self.dumps) = (began.elapsed() * REST, dumps);
        Ok(())
    }

    async fn end(&mut self, end: End) -> Result<()> {
        let id = self.begun().await?;
        if let Some(trace) = end.trace {
            self.show(id, trace).await?;
        }
        let news = News { ended: end.news.ended, report: end.news.report, ..self.news() };
        self.tell(id, &news).await
    }

    /// The number of the job on the page; begins it there, if need be.
    async fn begun(&mut self) -> Result<u64> {
        if let Some(id) = self.id {
            return Ok(id);
        }
        let body = json!({ "command": self.command }).to_string();
        let answer =
            self.send(Method::POST, "/api/watched", "application/json", body.into()).await?;
        let Begun { id } = serde_json::from_slice(&answer).context("the page says no number")?;
        terminal::note(&format!("lockstep: the job is shown at {}", self.page.of_job(id)));
        (self.id, self.dumps) = (Some(id), 0);
        Ok(id)
    }

    fn news(&self) -> News {
        let watched = self.hub.watched();
        let ranks = watched.ranks.iter().map(|(rank, own)| own.now(*rank)).collect();
        News { world_size: watched.world_size, ranks, ..News::default() }
    }

    async fn tell(&self, id: u64, news: &News) -> Result<()> {
        let body = serde_json::to_vec(news).context("the news are no JSON")?;
        let path = format!("/api/watched/{id}");
        self.send(Method::PUT, &path, "application/json", body).await.map(drop)
    }

    async fn show(&self, id: u64, trace: Vec<u8>) -> Result<()> {
        let path = format!("/api/watched/{id}/trace");
        self.send(Method::PUT, &path, "application/octet-stream", trace).await.map(drop)
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Vec<u8>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.page.authority)
            .header(header::CONTENT_TYPE, kind)
            .header(header::CONTENT_LENGTH, body.len());
        if let Some(token) = &self.page.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body)).context("the page's address is none")?;
        Ok(self.page.place()?.send(request, PATIENCE).await?)
    }
}

/// The calls in the dumps that are there now; `None` where they cannot be put together yet.
fn calls_in(recording: &Path) -> Option<Trace> {
    let mut sources = Sources::default();
    for path in files::below(&[recording]).ok()? {
        let name = path.file_name()?.to_string_lossy().into_owned();
        if name.starts_with("nccl_trace_rank_") && !name.ends_with(".incoming") {
            sources.take(Piece::read(&name, &files::read(&path, files::MAX_FILE_BYTES).ok()?));
        }
    }
    Some(sources.join().ok()?.calls?.merged.trace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_one_that_serve_prints() {
        let address = |text: &str| text.parse::<PageAddress>();
        let printed = address("http://127.0.0.1:7077/#token=abc").unwrap();
        assert_eq!(printed.authority, "127.0.0.1:7077");
        assert_eq!(printed.of_job(3), "http://127.0.0.1:7077/#token=abc&/runs/watched-3");
        let open = address("http://login1:8080").unwrap();
        assert_eq!(
            (open.token.clone(), open.of_job(1).as_str()),
            (None, "http://login1:8080/#/runs/watched-1")
        );
        for wrong in ["127.0.0.1:7077", "https://a:1/", "http://", "http://a:x/", "http://a:1/page"]
        {
            let error = address(wrong).unwrap_err().to_string();
            assert!(error.contains("lockstep serve prints"), "{wrong}: {error}");
        }
    }
}
