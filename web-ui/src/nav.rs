//! The address: where the page is, and how it goes elsewhere.

use crate::dom::{self, Listener};
use crate::route::Route;
use crate::turns::{Turns, use_turns};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::JsValue;
use web_sys::Event;
use yew::prelude::*;

/// Time after which a browser that did not take an address is asked again, in milliseconds.
const AGAIN_MS: i32 = 500;

/// The page's address, and the way to another.
#[derive(Clone)]
pub(crate) struct Nav {
    pub(crate) route: Route,
    set: Callback<Route>,
    /// The text in the address while the browser does not take the page's.
    refused: Refused,
    /// The newest address, read or written; `route` catches up at the next drawing.
    latest: Rc<RefCell<Route>>,
    /// True for a view inside of another one, whose address is not the browser's.
    inside: bool,
    /// The number of times that the browser itself has gone elsewhere: back, forward, along a link.
    pub(crate) visits: u32,
}

type Refused = Rc<RefCell<Option<Route>>>;

/// As far as it decides what is drawn.
impl PartialEq for Nav {
    fn eq(&self, other: &Nav) -> bool {
        self.route == other.route && self.set == other.set && self.visits == other.visits
    }
}

impl Nav {
    /// An address for a view inside of another one: `set` hears what it changes to, and `latest` holds the newest.
    pub(crate) fn inside(route: Route, latest: Rc<RefCell<Route>>, set: Callback<Route>) -> Nav {
        *latest.borrow_mut() = route.clone();
        Nav { route, set, refused: Refused::default(), latest, inside: true, visits: 0 }
    }

    /// True for a view inside of another one.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside
    }

    /// Changes a part of the view's address in place; nothing if another view is shown by now.
    pub(crate) fn change(&self, change: impl FnOnce(Route) -> Route) {
        if self.is_here() {
            self.replace(change(self.now()));
        }
    }

    /// True if the view of this address is still the one that is shown, and nobody else has changed the address.
    pub(crate) fn is_here(&self) -> bool {
        self.now().path == self.route.path && !self.is_stale()
    }

    /// Changes the address in place: the back button returns to the view before, not to every
    /// moment of this one.
    pub(crate) fn replace(&self, route: Route) {
        *self.latest.borrow_mut() = route.clone();
        self.set.emit(route);
    }

    /// Goes to an address from which the back button returns to the present one.
    pub(crate) fn push(&self, route: Route) {
        if !self.inside
            && let Ok(history) = dom::window().history()
        {
            // The present address once more, which is then changed in place.
            let _ = history.push_state_with_url(&JsValue::NULL, "", Some(&address().to_hash()));
        }
        self.replace(route);
    }

    /// The newest address, with changes made since the last drawing. A new address is built from this one, so that two
    /// changes in one turn keep each other.
    pub(crate) fn now(&self) -> Route {
        self.latest.borrow().clone()
    }

    /// True if somebody else has changed the address since it was read.
    pub(crate) fn is_stale(&self) -> bool {
        if self.inside {
            return false;
        }
        let stands = address();
        stands != self.now() && self.refused.borrow().as_ref() != Some(&stands)
    }
}

fn address() -> Route {
    crate::server::take_token();
    Route::parse(&dom::window().location().hash().unwrap_or_default())
}

/// Writes an address. Browsers take only so many changes in a time, Chromium 200 in ten seconds,
/// and pass others over in silence; then it is written again a little later, unless the address has
/// been changed by then.
fn write(to: Route, refused: &Refused, turns: &Turns) {
    let turn = turns.next();
    let before = address();
    let written = move || {
        if let Ok(history) = dom::window().history() {
            let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&to.to_hash()));
        }
        address() == to
    };
    if written() {
        *refused.borrow_mut() = None;
        return;
    }
    *refused.borrow_mut() = Some(before.clone());
    let refused = refused.clone();
    wasm_bindgen_futures::spawn_local(async move {
        loop {
            dom::sleep_ms(AGAIN_MS).await;
            if !turn.counts() {
                return;
            }
            if address() != before || written() {
                *refused.borrow_mut() = None;
                return;
            }
        }
    });
}

/// The address, and what is done when it changes.
#[hook]
pub(crate) fn use_nav() -> Nav {
    let route = use_state(|| (address(), 0u32));
    let refused = (*use_memo((), |()| Refused::default())).clone();
    let latest = use_mut_ref(address);
    let visits = use_mut_ref(|| 0u32);
    {
        let (route, visits, latest) = (route.clone(), visits.clone(), latest.clone());
        use_effect_with((), move |()| {
            let window = dom::window();
            let heard = ["hashchange", "popstate"].map(|name| {
                let (route, visits, latest) = (route.clone(), visits.clone(), latest.clone());
                Listener::on(&window, name, move |_: Event| {
                    *visits.borrow_mut() += 1;
                    *latest.borrow_mut() = address();
                    route.set((address(), *visits.borrow()));
                })
            });
            move || drop(heard)
        });
    }
    let set = {
        let (route, refused, visits) = (route.clone(), refused.clone(), visits);
        let turns = use_turns();
        Callback::from(move |to: Route| {
            write(to.clone(), &refused, &turns);
            route.set((to, *visits.borrow()));
        })
    };
    let (route, visits) = (*route).clone();
    Nav { route, set, refused, latest, inside: false, visits }
}
