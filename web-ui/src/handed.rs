//! Files that were dropped on a view that has no place for them, on their way to the one that has:
//! the browser would leave the page to show them.

use crate::dom::{self, Listener};
use crate::pages::recording::files::dropped;
use crate::pages::recording::samples::PARAMETER as SAMPLE;
use crate::route::{Route, View};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{DragEvent, File};
use yew::prelude::*;

/// Files on their way to a view.
struct OnTheirWay<F>(RefCell<Option<(Route, Vec<F>)>>);

impl<F> OnTheirWay<F> {
    fn put(&self, to: Route, files: Vec<F>) {
        *self.0.borrow_mut() = Some((to, files));
    }

    /// The files, if they are meant for that view.
    fn take(&self, view: &Route) -> Vec<F> {
        let mut held = self.0.borrow_mut();
        let meant = held.take_if(|(to, _)| to == view);
        meant.map(|(_, files)| files).unwrap_or_default()
    }
}

/// Files on their way. It differs from the one before when more have come: a view that is shown
/// already takes them, too.
#[derive(Clone)]
pub(crate) struct Handed {
    files: Rc<OnTheirWay<File>>,
    come: u32,
    bring: Callback<Vec<File>>,
}

impl PartialEq for Handed {
    fn eq(&self, other: &Handed) -> bool {
        Rc::ptr_eq(&self.files, &other.files) && self.come == other.come
    }
}

impl Handed {
    /// Brings files to the view that reads them.
    pub(crate) fn bring(&self, files: Vec<File>) {
        self.bring.emit(files);
    }

    /// Files for a view inside of another one; `come` differs from the files before.
    pub(crate) fn holding(to: Route, files: Vec<File>, come: u32) -> Handed {
        let files = Rc::new(OnTheirWay(RefCell::new(Some((to, files)))));
        Handed { files, come, bring: Callback::noop() }
    }

    /// Takes the files that are meant for the view that asks, if there are any.
    pub(crate) fn take(&self, view: &Route) -> Vec<File> {
        self.files.take(view)
    }
}

/// Brings files to their view.
fn hand(on_their_way: &OnTheirWay<File>, files: Vec<File>, come: &UseReducerDispatcher<Come>) {
    if files.is_empty() {
        return;
    }
    let names: Vec<String> = files.iter().map(File::name).collect();
    let to = view_for(names.iter().map(String::as_str));
    let hash = to.to_hash();
    on_their_way.put(to, files);
    // The address changes, and with it the view, unless it is shown already.
    come.dispatch(());
    let _ = dom::window().location().set_hash(&hash);
}

/// The same for files that came before the program. A page that was saved brings its recording so,
/// and its address says where in it to look.
fn hand_early(on_their_way: &OnTheirWay<File>, come: &UseReducerDispatcher<Come>) {
    let address = dom::window().location().hash().unwrap_or_default();
    let files = dropped_early();
    let names: Vec<String> = files.iter().map(File::name).collect();
    let to = view_for(names.iter().map(String::as_str));
    if !files.is_empty() && leads_into(&address, &to) {
        on_their_way.put(to, files);
        come.dispatch(());
    } else {
        hand(on_their_way, files, come);
    }
}

/// True if an address is of a view, and of nothing that the view would open by itself.
fn leads_into(address: &str, view: &Route) -> bool {
    let asked = Route::parse(address);
    asked.path == view.path && asked.get(SAMPLE).is_none()
}

/// The number of times files have come.
#[derive(Default)]
struct Come(u32);

impl Reducible for Come {
    type Action = ();

    fn reduce(self: Rc<Come>, (): ()) -> Rc<Come> {
        Rc::new(Come(self.0.wrapping_add(1)))
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

/// The view for files by their names: a schedule is XML, a program Python or Starlark, everything else a recording.
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
    let files = use_memo((), |()| OnTheirWay(RefCell::default()));
    let come = use_reducer(Come::default);
    let (held, dispatch) = (files.clone(), come.dispatcher());
    use_effect_with((), move |()| {
        hand_early(&held, &dispatch);
        let window = dom::window();
        let over = Listener::on(&window, "dragover", |event: DragEvent| event.prevent_default());
        let drop = Listener::on(&window, "drop", move |event: DragEvent| {
            if event.default_prevented() {
                return;
            }
            event.prevent_default();
            let (files, held, dispatch) = (dropped(&event), held.clone(), dispatch.clone());
            wasm_bindgen_futures::spawn_local(async move {
                hand(&held, files.await, &dispatch);
            });
        });
        move || {
            std::mem::drop(over);
            std::mem::drop(drop);
        }
    });
    let bring = {
        let (files, dispatch) = (files.clone(), come.dispatcher());
        Callback::from(move |come: Vec<File>| hand(&files, come, &dispatch))
    };
    Handed { files, come: come.0, bring }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_wait_for_the_view_that_they_are_meant_for() {
        let (recording, program) = (Route::to(View::Recording), Route::to(View::Program));
        let on_their_way = OnTheirWay(RefCell::default());
        assert!(on_their_way.take(&recording).is_empty());
        on_their_way.put(program.clone(), vec!["train.py"]);
        assert!(on_their_way.take(&recording).is_empty());
        assert_eq!(on_their_way.take(&program), ["train.py"]);
        assert!(on_their_way.take(&program).is_empty());
        on_their_way.put(program.clone(), vec!["old.py"]);
        on_their_way.put(program.clone(), vec!["new.py"]);
        assert_eq!(on_their_way.take(&program), ["new.py"]);
    }

    #[test]
    fn an_address_into_a_recording_stays() {
        let recording = Route::to(View::Recording);
        assert!(leads_into("#/recording?call=10.57", &recording));
        assert!(!leads_into("#/recording?sample=hang", &recording));
        assert!(!leads_into("#/", &recording));
    }

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
