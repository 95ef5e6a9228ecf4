//! The answer to a request that cannot be carried out: a status and one sentence.

use crate::runs::StartError;
use crate::store::error::StoreError;
use axum::Json;
use axum::extract::multipart::MultipartError;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockstep_gpu_exec::RunError;
use serde::Serialize;

/// A refusal or a failure.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
}

#[derive(Serialize)]
struct Body {
    error: String,
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into() }
    }

    /// The request itself is wrong.
    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// The sender may not.
    pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, message)
    }

    /// The sender did not prove who it is.
    pub(crate) fn unauthorized(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, message)
    }

    /// There is no such thing.
    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, message)
    }

    /// It was there once.
    pub(crate) fn gone(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::GONE, message)
    }

    /// The sender has stopped in the middle.
    pub(crate) fn stalled(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::REQUEST_TIMEOUT, message)
    }

    /// More than is taken.
    pub(crate) fn too_large(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// Not with this method.
    pub(crate) fn method_not_allowed(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    /// Not in the state that it is in.
    pub(crate) fn conflict(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, message)
    }

    /// The files are read, and are nothing that can be used.
    pub(crate) fn unusable(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// Not in a form that is read.
    pub(crate) fn unsupported(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    }

    /// Not now.
    pub(crate) fn busy(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// An error of any other status, such as a library answers.
    pub(super) fn other(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError::new(status, message)
    }

    /// Our fault.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(Body { error: self.message })).into_response()
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        ApiError::internal(error.to_string())
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> ApiError {
        ApiError::internal(format!("a file of the service cannot be read: {error}"))
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> ApiError {
        let status = match &error {
            StartError::TooMany => StatusCode::TOO_MANY_REQUESTS,
            StartError::TooManyRanks(_) => StatusCode::BAD_REQUEST,
            StartError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            StartError::Store(_) | StartError::Trace(_) => StatusCode::INTERNAL_SERVER_ERROR,
            StartError::Run(error) => match error {
                RunError::Unavailable { .. } | RunError::NoSuchBackend(_) => StatusCode::CONFLICT,
                RunError::Spawn { .. } | RunError::System { .. } | RunError::DidNotJoin { .. } => {
                    StatusCode::INTERNAL_SERVER_ERROR
                }
                _ => StatusCode::BAD_REQUEST,
            },
        };
        ApiError::new(status, error.to_string())
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> ApiError {
        ApiError::new(rejection.status(), rejection.body_text())
    }
}

impl From<MultipartError> for ApiError {
    fn from(error: MultipartError) -> ApiError {
        ApiError::new(error.status(), error.body_text())
    }
}
