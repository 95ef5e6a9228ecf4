//! The handlers of the routes, a file a noun. Errors are `{"error": "one sentence"}` with a 4xx or 5xx.

mod error;
mod file;
pub(crate) mod guard;
pub(crate) mod page;
pub(crate) mod records;
pub(crate) mod runs;
pub(crate) mod scenarios;
pub(crate) mod traces;
pub(crate) mod version;
pub(crate) mod watched;

pub(crate) use error::ApiError;

use axum::extract::Request;
use axum::http::{Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// A path that is there, but not for this method.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(format!("{} does not take {method}", uri.path()))
}

/// Puts an error that a library of ours has answered as text into the form of ours.
pub(crate) async fn errors_as_json(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !(status.is_client_error() || status.is_server_error()) || is_json {
        return response;
    }
    let text = axum::body::to_bytes(response.into_body(), MAX_ERROR_BYTES).await;
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
    let said = match text.is_empty() {
        true => status.canonical_reason().unwrap_or("the request failed").to_owned(),
        false => text,
    };
    ApiError::other(status, said).into_response()
}

/// No library's sentence is longer.
const MAX_ERROR_BYTES: usize = 16 << 10;

/// The id in a path.
fn parse_id(what: &str, id: &str) -> Result<u64, ApiError> {
    id.parse().ok().filter(|id| *id <= i64::MAX as u64).ok_or_else(|| not_found(what, id))
}

/// There is no such run, or trace.
fn not_found(what: &str, id: impl std::fmt::Display) -> ApiError {
    ApiError::not_found(format!("there is no {what} {id}"))
}

/// Runs blocking work (SQLite, files, starting processes) away from the threads that serve.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, ApiError>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(panicked()),
    }
}

fn panicked() -> ApiError {
    ApiError::internal("this request panicked; that is a bug in Lockstep")
}
