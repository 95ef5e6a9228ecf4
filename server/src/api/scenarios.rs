//! `/api/scenarios`.

use axum::Json;
use serde::Serialize;

/// A scenario as the list has it.
#[derive(Serialize)]
pub(crate) struct Listed {
    id: &'static str,
    title: &'static str,
    story: &'static str,
    repair: &'static str,
    min_world_size: u32,
}

/// The scenarios that ship, in the order of the gallery.
pub(crate) async fn list() -> Json<Vec<Listed>> {
    let listed = lockstep_scenarios::all().iter().map(|scenario| Listed {
        id: scenario.id,
        title: scenario.title,
        story: scenario.story,
        repair: scenario.repair,
        min_world_size: scenario.min_world_size,
    });
    Json(listed.collect())
}
