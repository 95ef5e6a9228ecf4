//! The page: a yew app.
//!
//! Started by `assets/page.js`. It draws and listens; it never simulates, parses or diagnoses. What
//! it wants to know it asks its worker (`web-ui/engine`) in the messages of `web-ui/protocol`, so
//! that no input can freeze it.

mod app;
mod dom;
mod explain;
mod handed;
mod kept;
mod live;
mod nav;
mod pages;
mod palette;
mod playback;
mod programs;
mod route;
mod server;
mod sets;
mod turns;
mod ui;

use app::Workers;
use lockstep_web_protocol::browser::report_panics;
use wasm_bindgen::prelude::wasm_bindgen;

/// Draws the page into `#page`. `engine` and `program` are the addresses of the scripts of its two
/// workers.
#[wasm_bindgen]
pub fn start_page(engine: String, program: String) {
    report_panics();
    let Some(root) = dom::document().get_element_by_id("page") else { return };
    root.set_inner_html("");
    let workers = Workers { engine: engine.into(), program: program.into() };
    yew::Renderer::<app::App>::with_root_and_props(root, workers).render();
}
