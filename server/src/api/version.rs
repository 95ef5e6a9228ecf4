//! `/api/version`.

use crate::commands::version::Version;
use crate::service::Service;
use axum::Json;
use axum::extract::State;

/// The version, the formats, and which backends this machine has.
pub(crate) async fn get(State(service): State<Service>) -> Json<Version> {
    Json((*service.version).clone())
}
