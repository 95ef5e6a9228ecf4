//! `/api/traces`: recordings that were uploaded.

use super::{ApiError, blocking, file, not_found, parse_id};
use crate::recording::Recording;
use crate::router::{MAX_UPLOAD_BYTES, Service};
use crate::store::TraceRecord;
use axum::Json;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Multipart, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use lockstep_diagnosis::Report;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

/// Files of one upload.
const MAX_FILES: usize = 10_000;

/// An upload of which nothing comes for this long is given up on.
const IDLE: Duration = Duration::from_secs(30);

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
    request: Request,
) -> Result<(StatusCode, Json<TraceRecord>), ApiError> {
    let Ok(_turn) = service.reading.clone().acquire_owned().await else {
        return Err(ApiError::internal("the service is shutting down"));
    };
    let files = files_of(request, IDLE).await?;
    let keep = move || {
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

/// What is wrong in an uploaded trace.
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

/// Receives the files of an upload. Whoever sends nothing for `idle` is refused: uploads wait for
/// one another, and one that has stalled would keep the others waiting for good.
async fn files_of(request: Request, idle: Duration) -> Result<Vec<(String, Bytes)>, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/form-data"));
    if !is_form {
        return Ok(vec![("trace".to_owned(), body_of(request.into_body(), idle).await?)]);
    }
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let mut files = Vec::new();
    while let Some(mut field) = in_time(idle, form.next_field()).await?? {
        let name = field.file_name().map(str::to_owned);
        let mut bytes = Vec::new();
        while let Some(chunk) = in_time(idle, field.chunk()).await?? {
            if name.is_some() {
                bytes.extend_from_slice(&chunk);
            }
        }
        let Some(name) = name else { continue };
        if files.len() == MAX_FILES {
            return Err(ApiError::bad_request(format!("more than {MAX_FILES} files at once")));
        }
        files.push((name, bytes.into()));
    }
    Ok(files)
}

/// A whole body.
async fn body_of(mut body: Body, idle: Duration) -> Result<Bytes, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) =
        in_time(idle, poll_fn(|context| Pin::new(&mut body).poll_frame(context))).await?
    {
        let frame = frame.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let Ok(chunk) = frame.into_data() else { continue };
        if chunk.len() > MAX_UPLOAD_BYTES - bytes.len() {
            let most = MAX_UPLOAD_BYTES >> 20;
            return Err(ApiError::too_large(format!("an upload has at most {most} MiB")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

/// What comes within `idle`.
async fn in_time<T>(idle: Duration, coming: impl Future<Output = T>) -> Result<T, ApiError> {
    tokio::time::timeout(idle, coming).await.map_err(|_| {
        let seconds = idle.as_secs_f32();
        ApiError::stalled(format!("nothing more of the upload came within {seconds} s"))
    })
}

fn unusable(error: anyhow::Error) -> ApiError {
    ApiError::unusable(format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use tokio_util::io::ReaderStream;

    /// The status of an upload that begins with `start` and then says nothing more, nor ends.
    fn stalled(kind: &str, start: &'static str) -> u16 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut sender, receiver) = tokio::io::duplex(1 << 10);
            tokio::io::AsyncWriteExt::write_all(&mut sender, start.as_bytes()).await.unwrap();
            let request = Request::post("/api/traces").header("content-type", kind);
            let request = request.body(Body::from_stream(ReaderStream::new(receiver))).unwrap();
            let refused = files_of(request, Duration::from_millis(1)).await.unwrap_err();
            drop(sender);
            refused.into_response().status().as_u16()
        })
    }

    #[test]
    fn a_stalled_upload_is_given_up_on() {
        let kind = "multipart/form-data; boundary=b";
        let begun = "--b\r\ncontent-disposition: form-data; name=\"a\"; filename=\"a\"\r\n\r\nhalf";
        assert_eq!(stalled("application/octet-stream", "half"), 408);
        assert_eq!(stalled(kind, ""), 408);
        assert_eq!(stalled(kind, begun), 408);
        assert_eq!(stalled(kind, &begun.replace("; filename=\"a\"", "").leak()[..]), 408);
    }
}
