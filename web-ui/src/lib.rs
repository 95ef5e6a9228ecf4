//! The page: a yew app, and the worker in which everything is computed.
//!
//! Both are this one module, started by `assets/page.js` and `assets/worker.js`. The page draws
//! and listens; it never simulates, parses or diagnoses. What it wants to know it asks the worker
//! in the messages of [`protocol`], so that no input can freeze it.

mod app;
mod client;
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
mod protocol;
mod query;
mod route;
mod server;
mod sessions;
mod turns;
mod ui;
mod worker;

use wasm_bindgen::prelude::wasm_bindgen;

/// Draws the page into `#page`.
#[wasm_bindgen]
pub fn start_page() {
    report_panics();
    let Some(root) = dom::document().get_element_by_id("page") else { return };
    root.set_inner_html("");
    yew::Renderer::<app::App>::with_root(root).render();
}

/// Answers the page's messages; called once, inside the worker.
#[wasm_bindgen]
pub fn start_worker() {
    report_panics();
    worker::listen();
}

/// A panic is our bug. In the browser it would say "unreachable executed" and no more.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        web_sys::console::error_1(&format!("Lockstep: {panic}").into());
    }));
}
