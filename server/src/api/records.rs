//! `/api/records`: scripts that the page has recorded by this machine's PyTorch.

use super::{ApiError, blocking, file, not_found, parse_id};
use crate::admission::Held;
use crate::script_records::{AskedScript, RecordError, ScriptRecord};
use crate::service::Service;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

impl From<RecordError> for ApiError {
    fn from(error: RecordError) -> ApiError {
        let words = error.to_string();
        match error {
            RecordError::NoToken => ApiError::forbidden(words),
            RecordError::Busy => ApiError::conflict(words),
            RecordError::Closing => ApiError::busy(words),
            RecordError::Write(_) => ApiError::internal(words),
            RecordError::Files(_)
            | RecordError::WorldSize(_)
            | RecordError::Name(_)
            | RecordError::SameName(_)
            | RecordError::Argument => ApiError::bad_request(words),
        }
    }
}

/// The version of torch that scripts would be recorded by, or why there is none.
pub(crate) async fn python(State(service): State<Service>) -> Result<Json<Value>, ApiError> {
    let ask = move || Ok::<_, ApiError>(service.records.torch());
    Ok(Json(match blocking(ask).await? {
        Ok(torch) => json!({ "torch": torch }),
        Err(why) => json!({ "why": why }),
    }))
}

/// The recordings that are kept, the newest first.
pub(crate) async fn list(State(service): State<Service>) -> Json<Vec<ScriptRecord>> {
    Json(service.records.list())
}

/// Begins to record a script.
pub(crate) async fn create(
    State(service): State<Service>,
    Extension(held): Extension<Held>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<ScriptRecord>), ApiError> {
    let body = body?;
    let turn = service.admission.turn(body.len()).await?;
    let records = service.records.clone();
    let start = move || {
        // Also when the client has hung up.
        let _until_started = (held, turn);
        let asked: AskedScript = serde_json::from_slice(&body).map_err(|error| {
            ApiError::bad_request(format!(
                "a script is recorded by {{\"files\": [{{\"name\": \"train.py\", \"text\": \"…\"}}], \
                 \"world_size\": 4}}: {error}"
            ))
        })?;
        records.start(&asked).map_err(ApiError::from)
    };
    let id = blocking(start).await?;
    let begun = service.records.get(id).ok_or_else(|| not_found("record", id))?;
    Ok((StatusCode::CREATED, Json(begun)))
}

/// A recording, as far as it has come.
pub(crate) async fn get(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<ScriptRecord>, ApiError> {
    let id = parse_id("record", &id)?;
    service.records.get(id).map(Json).ok_or_else(|| not_found("record", id))
}

/// The plan of one that has ended.
pub(crate) async fn plan(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = parse_id("record", &id)?;
    let plan = service.records.plan(id).ok_or_else(|| not_found("plan of record", id))?;
    file::send(&plan, None, "recorded.plan").await
}

/// Ends a recording.
pub(crate) async fn cancel(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let id = parse_id("record", &id)?;
    match service.records.stop(id) {
        true => Ok(StatusCode::ACCEPTED),
        false => Err(not_found("record", id)),
    }
}
