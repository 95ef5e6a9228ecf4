//! One question over HTTP, within a time and a size: to a worker's debug server, to the job's page of all of
//! them, or to a `lockstep serve`.

use axum::body::{Body, to_bytes};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Answers past this many bytes are refused: a dump of 20,000 calls with their stacks is smaller.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// An address that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A TCP port, of the host as it was named.
    Tcp { host: String, address: SocketAddr },
    /// A Unix socket (`TORCH_WORKER_SERVER_SOCKET`).
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, address } => write!(f, "{host}:{}", address.port()),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The reason that there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nothing listens there.
    #[error("{0} refuses connections")]
    Refused(Place),
    /// It took the connection and did not answer in time.
    #[error("{place} does not answer within {} s", within.as_secs())]
    Silent {
        /// The server that was asked.
        place: Place,
        /// The time that it had.
        within: Duration,
    },
    /// It answered with a status that is no success, and this text.
    #[error("{place} answers {status}: {}", text.trim())]
    Status {
        /// The server that was asked.
        place: Place,
        /// The status.
        status: StatusCode,
        /// The beginning of its text.
        text: String,
    },
    /// It speaks something else, or the connection broke.
    #[error("{place} is not asked over HTTP: {why}")]
    NotHttp {
        /// The server that was asked.
        place: Place,
        /// The reason.
        why: String,
    },
}

/// A connection of either kind.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Place {
    async fn connect(&self) -> std::io::Result<Box<dyn Connection>> {
        Ok(match self {
            Place::Tcp { address, .. } => Box::new(TcpStream::connect(address).await?),
            Place::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }

    /// The body of the answer to a request for `path`.
    ///
    /// # Errors
    /// There is no answer with status 200 within that time.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        within: Duration,
    ) -> Result<Vec<u8>, AskError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_LENGTH, 0)
            .body(Body::empty())
            .map_err(|error| AskError::NotHttp { place: self.clone(), why: error.to_string() })?;
        self.send(request, within).await
    }

    /// The body of the answer to a request.
    ///
    /// # Errors
    /// There is no answer with a status of success within that time.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        within: Duration,
    ) -> Result<Vec<u8>, AskError> {
        match tokio::time::timeout(within, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::Silent { place: self.clone(), within }),
        }
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Vec<u8>, AskError> {
        let not_http = |why: String| AskError::NotHttp { place: self.clone(), why };
        let stream = self.connect().await.map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound => {
                AskError::Refused(self.clone())
            }
            _ => not_http(error.to_string()),
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| not_http(error.to_string()))?;
        let connection = tokio::spawn(connection);
        let answer = async {
            let response =
                sender.send_request(request).await.map_err(|error| not_http(error.to_string()))?;
            let status = response.status();
            let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER_BYTES);
            let body = body.await.map_err(|error| not_http(error.to_string()))?;
            if !status.is_success() {
                let text = String::from_utf8_lossy(&body).chars().take(200).collect();
                return Err(AskError::Status { place: self.clone(), status, text });
            }
            Ok(body.to_vec())
        }
        .await;
        connection.abort();
        answer
    }
}
