//! Every route of the service.

use super::admission::admit;
use super::api::{errors_as_json, guard, page, records, runs, scenarios, traces, version, watched};
use super::service::Service;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use std::sync::Arc;

/// Bodies of everything but uploads: a plan of a million operations fits.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// All files of one upload together.
const MAX_UPLOAD_BYTES: u64 = 512 << 20;

/// The newest trace of a watched job: 2,000 calls a rank of some hundred ranks.
const MAX_WATCHED_BYTES: u64 = 64 << 20;

/// The service behind its guard.
pub(crate) fn router(service: Service, guard: guard::Guard) -> Router {
    let bodies = |most_bytes| from_fn_with_state(service.admission.bodies(most_bytes), admit);
    let uploads = Router::new()
        .route("/api/traces", get(traces::list).post(traces::upload))
        .layer(bodies(MAX_UPLOAD_BYTES));
    let watched_traces = Router::new()
        .route("/api/watched/{id}/trace", get(watched::trace).put(watched::show))
        .layer(bodies(MAX_WATCHED_BYTES));
    Router::new()
        .route("/api/version", get(version::get))
        .route("/api/scenarios", get(scenarios::list))
        .route("/api/runs", get(runs::list).post(runs::create))
        .route("/api/runs/{id}", get(runs::get).patch(runs::rename).delete(runs::delete))
        .route("/api/runs/{id}/cancel", post(runs::cancel))
        .route("/api/runs/{id}/pause", post(runs::pause))
        .route("/api/runs/{id}/resume", post(runs::resume))
        .route("/api/runs/{id}/dump", post(runs::dump))
        .route("/api/runs/{id}/dumps", get(runs::dumps))
        .route("/api/runs/{id}/dumps/{rank}", get(runs::rank_dump))
        .route("/api/runs/{id}/asked", get(runs::asked))
        .route("/api/runs/{id}/trace", get(runs::trace))
        .route("/api/runs/{id}/events", get(runs::events))
        .route("/api/runs/{id}/findings", get(runs::findings).layer(from_fn(guard::own_site)))
        .route("/api/records", get(records::list).post(records::create))
        .route("/api/records/python", get(records::python))
        .route("/api/records/{id}", get(records::get))
        .route("/api/records/{id}/plan", get(records::plan))
        .route("/api/records/{id}/cancel", post(records::cancel))
        .route("/api/watched", get(watched::list).post(watched::begin))
        .route("/api/watched/{id}", get(watched::get).put(watched::tell))
        .route("/api/traces/{id}", get(traces::get))
        .route("/api/traces/{id}/trace", get(traces::trace))
        .route("/api/traces/{id}/findings", get(traces::findings))
        .layer(bodies(MAX_BODY_BYTES))
        .merge(uploads)
        .merge(watched_traces)
        // Admission bounds them.
        .layer(DefaultBodyLimit::disable())
        .fallback(page::serve)
        .method_not_allowed_fallback(crate::api::method_not_allowed)
        .layer(from_fn(errors_as_json))
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
        .with_state(service)
}
