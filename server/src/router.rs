//! Every route of the service.

use crate::api::{guard, page, runs, scenarios, traces, version};
use crate::commands::version::Version;
use crate::findings::Findings;
use crate::runs::Runs;
use crate::store::Store;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Bodies of everything but uploads: a plan of a million operations fits.
const MAX_BODY_BYTES: usize = 64 << 20;

/// All files of one upload together.
pub(crate) const MAX_UPLOAD_BYTES: usize = 512 << 20;

/// What every handler can use.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) store: Arc<Store>,
    pub(crate) runs: Runs,
    pub(crate) findings: Findings,
    pub(crate) version: Arc<Version>,
    /// Uploads are read one at a time, so that their size bounds the memory they take.
    pub(crate) reading: Arc<Semaphore>,
}

/// The service behind its guard.
pub(crate) fn router(service: Service, guard: guard::Guard) -> Router {
    let uploads = Router::new()
        .route("/api/traces", get(traces::list).post(traces::upload))
        .layer(DefaultBodyLimit::max(MAX_UPLOAD_BYTES));
    Router::new()
        .route("/api/version", get(version::get))
        .route("/api/scenarios", get(scenarios::list))
        .route("/api/runs", get(runs::list).post(runs::create))
        .route("/api/runs/{id}", get(runs::get))
        .route("/api/runs/{id}/cancel", post(runs::cancel))
        .route("/api/runs/{id}/pause", post(runs::pause))
        .route("/api/runs/{id}/resume", post(runs::resume))
        .route("/api/runs/{id}/dump", post(runs::dump))
        .route("/api/runs/{id}/dumps", get(runs::dumps))
        .route("/api/runs/{id}/dumps/{rank}", get(runs::rank_dump))
        .route("/api/runs/{id}/trace", get(runs::trace))
        .route("/api/runs/{id}/events", get(runs::events))
        .route("/api/runs/{id}/findings", get(runs::findings).layer(from_fn(guard::own_site)))
        .route("/api/traces/{id}", get(traces::get))
        .route("/api/traces/{id}/trace", get(traces::trace))
        .route("/api/traces/{id}/findings", get(traces::findings))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .merge(uploads)
        .fallback(page::serve)
        .method_not_allowed_fallback(crate::api::method_not_allowed)
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
        .with_state(service)
}
