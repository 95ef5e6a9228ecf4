//! Files that were dropped on a view that has no place for them, on their way to the one that has:
//! the browser would leave the page to show them.

use crate::dom::{self, Listener};
use crate::pages::recording::files::dropped;
use crate::route::{Route, View};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{DragEvent, File};
use yew::prelude::*;

/// Files on their way.
#[derive(Clone, Default)]
pub(crate) struct Handed(Rc<RefCell<Vec<File>>>);

impl PartialEq for Handed {
    fn eq(&self, other: &Handed) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Handed {
    /// Brings files to their view.
    fn hand(&self, files: Vec<File>) {
        if files.is_empty() {
            return;
        }
        let names: Vec<String> = files.iter().map(File::name).collect();
        let to = view_for(names.iter().map(String::as_str));
        *self.0.borrow_mut() = files;
        let _ = dom::window().location().set_hash(&to.to_hash());
    }

    /// Takes the files that were meant for the view that asks.
    pub(crate) fn take(&self) -> Vec<File> {
        self.0.take()
    }
}

/// The files that index.html has kept because they came before the program; from now on it keeps
/// none.
fn dropped_early() -> Vec<File> {
    let (window, name) = (dom::window(), JsValue::from_str("lockstep_early"));
    let kept = js_sys::Reflect::get(&window, &name).ok();
    let _ = js_sys::Reflect::set(&window, &name, &JsValue::NULL);
    let kept = kept.and_then(|kept| kept.dyn_into::<js_sys::Array>().ok());
    let files = kept.iter().flat_map(|kept| kept.iter());
    files.filter_map(|file| file.dyn_into::<File>().ok()).collect()
}

/// The view for files by their names: a schedule is XML, a program Python, everything else a recording.
fn view_for<'a>(mut names: impl Iterator<Item = &'a str> + Clone) -> Route {
    let ends = |name: &str, ending: &str| name.to_ascii_lowercase().ends_with(ending);
    if names.clone().all(|name| ends(name, ".xml")) {
        Route::below(View::Gallery, "file")
    } else if names.all(|name| ends(name, ".py") || ends(name, ".star")) {
        Route::to(View::Program)
    } else {
        Route::to(View::Recording)
    }
}

/// Takes what is dropped anywhere on the page and brings it to its view; a view's own place for
/// files comes first.
#[hook]
pub(crate) fn use_handed() -> Handed {
    let handed = use_memo((), |()| Handed::default());
    let held = handed.clone();
    use_effect_with((), move |()| {
        held.hand(dropped_early());
        let window = dom::window();
        let over = Listener::on(&window, "dragover", |event: DragEvent| event.prevent_default());
        let drop = Listener::on(&window, "drop", move |event: DragEvent| {
            if event.default_prevented() {
                return;
            }
            event.prevent_default();
            let (files, held) = (dropped(&event), held.clone());
            wasm_bindgen_futures::spawn_local(async move { held.hand(files.await) });
        });
        move || {
            std::mem::drop(over);
            std::mem::drop(drop);
        }
    });
    (*handed).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_where_they_are_read() {
        let to = |names: &[&str]| view_for(names.iter().copied()).to_hash();
        assert_eq!(to(&["ring.xml"]), "#/algorithms/file");
        assert_eq!(to(&["RING.XML"]), "#/algorithms/file");
        assert_eq!(to(&["rank_0", "rank_1"]), "#/recording");
        assert_eq!(to(&["rank_0", "x.xml"]), "#/recording");
        assert_eq!(to(&["train.py"]), "#/program");
    }
}
