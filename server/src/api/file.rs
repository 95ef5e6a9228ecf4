//! Sending a trace file as it lies on disk.

use super::ApiError;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::path::Path;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

/// The file's first `bytes`, or all of it, to be saved as `name`.
pub(super) async fn send(
    path: &Path,
    bytes: Option<u64>,
    name: &str,
) -> Result<Response, ApiError> {
    let file = tokio::fs::File::open(path).await?;
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
