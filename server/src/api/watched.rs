//! `/api/watched`: real jobs that a `lockstep watch` shows here while they run.

use super::{ApiError, blocking, not_found, parse_id};
use crate::admission::Held;
use crate::service::Service;
use crate::watched_jobs::{News, WatchedJob};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use lockstep_core::trace::Trace;
use serde::Deserialize;

/// A longer command is told by its beginning.
const MAX_COMMAND: usize = 2000;

/// The body of a new job.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    command: String,
}

/// Every watched job, newest first.
pub(crate) async fn list(State(service): State<Service>) -> Json<Vec<WatchedJob>> {
    Json(service.watched.list())
}

/// One of them.
pub(crate) async fn get(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<WatchedJob>, ApiError> {
    let id = parse_id("watched job", &id)?;
    service.watched.get(id).map(Json).ok_or_else(|| not_found("watched job", id))
}

/// Begins a job.
pub(crate) async fn begin(
    State(service): State<Service>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<WatchedJob>), ApiError> {
    let Begin { command } = serde_json::from_slice(&body?).map_err(|error| {
        ApiError::bad_request(format!(
            "a watched job begins with {{\"command\": \"torchrun …\"}}: {error}"
        ))
    })?;
    let id = service.watched.add(command.chars().take(MAX_COMMAND).collect());
    let begun = service.watched.get(id).ok_or_else(|| not_found("watched job", id))?;
    Ok((StatusCode::CREATED, Json(begun)))
}

/// Takes the news of a job.
pub(crate) async fn tell(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, ApiError> {
    let id = parse_id("watched job", &id)?;
    let news: News = serde_json::from_slice(&body?)
        .map_err(|error| ApiError::bad_request(format!("the news of a job: {error}")))?;
    known(service.watched.tell(id, news), id)
}

/// Takes the newest trace of a job.
pub(crate) async fn show(
    State(service): State<Service>,
    Extension(held): Extension<Held>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, ApiError> {
    let id = parse_id("watched job", &id)?;
    let bytes = body?;
    let turn = service.admission.turn(bytes.len()).await?;
    let show = move || {
        // Also when the client has hung up.
        let _until_read = (held, turn);
        Trace::from_bytes(&bytes).map_err(|error| ApiError::unusable(error.to_string()))?;
        Ok::<_, ApiError>(service.watched.show(id, bytes))
    };
    known(blocking(show).await?, id)
}

/// The newest trace of a job in binary form.
pub(crate) async fn trace(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, ApiError> {
    let id = parse_id("watched job", &id)?;
    let trace = service.watched.trace(id).ok_or_else(|| not_found("watched job", id))?;
    if trace.is_empty() {
        return Err(ApiError::not_found(format!("watched job {id} has shown no calls yet")));
    }
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], trace))
}

fn known(there: bool, id: u64) -> Result<StatusCode, ApiError> {
    if there { Ok(StatusCode::NO_CONTENT) } else { Err(not_found("watched job", id)) }
}
