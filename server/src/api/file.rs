//! Sending a trace file as it lies on disk.

use super::ApiError;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::io::{Error, ErrorKind};
use std::path::Path;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

/// The file, to be read.
pub(super) async fn open(path: &Path) -> Result<File, ApiError> {
    File::open(path).await.map_err(|error| unreadable(path, &error))
}

/// The error for a file that cannot be read: a listed file that no longer exists was removed by somebody.
pub(super) fn unreadable(path: &Path, error: &Error) -> ApiError {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match error.kind() {
        ErrorKind::NotFound => ApiError::gone(format!(
            "{name} was removed from the service's data folder, and nothing else holds it"
        )),
        _ => ApiError::internal(format!("{name} in the service's data folder: {error}")),
    }
}

/// The file's first `bytes`, or all of it, to be saved as `name`.
pub(super) async fn send(
    path: &Path,
    bytes: Option<u64>,
    name: &str,
) -> Result<Response, ApiError> {
    let file = open(path).await?;
    let length = match bytes {
        Some(bytes) => bytes,
        None => file.metadata().await?.len(),
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, Body::from_stream(ReaderStream::new(file.take(length)))).into_response())
}
