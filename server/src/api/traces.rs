//! `/api/traces`: recordings that were uploaded.

use super::{ApiError, blocking, file, not_found, parse_id};
use crate::admission::Held;
use crate::recording::Recording;
use crate::service::Service;
use crate::store::TraceRecord;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, FromRequest, Multipart, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use lockstep_diagnosis::Report;

/// Files of one upload.
const MAX_FILES: usize = 10_000;

/// Every uploaded trace, newest first.
pub(crate) async fn list(
    State(service): State<Service>,
) -> Result<Json<Vec<TraceRecord>>, ApiError> {
    blocking(move || service.store.traces()).await.map(Json)
}

/// Takes the dumps of one job as files of a form, or one Lockstep trace as a form's file or as
/// the body itself.
pub(crate) async fn upload(
    State(service): State<Service>,
    Extension(held): Extension<Held>,
    request: Request,
) -> Result<(StatusCode, Json<TraceRecord>), ApiError> {
    let files = files_of(request).await?;
    let turn = service.admission.turn(files.iter().map(|(_, bytes)| bytes.len()).sum()).await?;
    let keep = move || {
        // Also when the client has hung up.
        let _until_read = (held, turn);
        let name = match files.as_slice() {
            [] => return Err(ApiError::bad_request("the upload has no files")),
            [(name, _)] => name.clone(),
            [(first, _), ..] => format!("{first} and {} more", files.len() - 1),
        };
        let mut recording = Recording::default();
        let alone = files.len() == 1;
        for (name, bytes) in files {
            recording.add(&name, &bytes, alone).map_err(unusable)?;
        }
        let read = recording.read().map_err(unusable)?;
        let (trace, report) = (read.held.into_trace().map_err(unusable)?, read.report);
        let header = &trace.header;
        let bytes = trace.to_bytes();
        let store = &service.store;
        Ok(store.add_trace(&name, &header.origin, header.world_size, &report, &bytes)?)
    };
    Ok((StatusCode::CREATED, Json(blocking(keep).await?)))
}

/// One uploaded trace's place in the list.
pub(crate) async fn get(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<TraceRecord>, ApiError> {
    find(service, &id).await.map(Json)
}

/// An uploaded trace in binary form.
pub(crate) async fn trace(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let store = service.store.clone();
    let record = find(service, &id).await?;
    file::send(&store.trace_file(record.id), None, &format!("trace-{}.lks", record.id)).await
}

/// The findings in an uploaded trace.
pub(crate) async fn findings(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<Report>, ApiError> {
    Ok(Json(find(service, &id).await?.report))
}

async fn find(service: Service, id: &str) -> Result<TraceRecord, ApiError> {
    let id = parse_id("trace", id)?;
    blocking(move || service.store.trace(id)).await?.ok_or_else(|| not_found("trace", id))
}

/// The files of an upload.
async fn files_of(request: Request) -> Result<Vec<(String, Bytes)>, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/form-data"));
    if !is_form {
        return Ok(vec![("trace".to_owned(), Bytes::from_request(request, &()).await?)]);
    }
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let mut files = Vec::new();
    while let Some(field) = form.next_field().await? {
        let Some(name) = field.file_name().map(str::to_owned) else { continue };
        if files.len() == MAX_FILES {
            return Err(ApiError::bad_request(format!("more than {MAX_FILES} files at once")));
        }
        files.push((name, field.bytes().await?));
    }
    Ok(files)
}

fn unusable(error: anyhow::Error) -> ApiError {
    ApiError::unusable(format!("{error:#}"))
}
