//! A view of the page inside of a lesson: the same component, with an address of its own.

use super::super::ddp::Ddp;
use super::super::debugger::code;
use super::super::gallery::Gallery;
use super::super::hangs::Hangs;
use super::super::mesh::Mesh;
use super::super::program::Program;
use super::super::recording::Recording;
use super::super::step::Step;
use super::fetched::files;
use crate::app::{Shared, use_shared};
use crate::handed::Handed;
use crate::nav::Nav;
use crate::route::{Route, View};
use crate::ui::Beside;
use lockstep_lessons::Show;
use yew::prelude::*;

/// The address that is shown; a program is written into it.
pub(super) fn address_of(show: &Show) -> Route {
    let route = Route::parse(&show.address);
    match &show.program {
        Some(text) => route.with("code", code::write(text)),
        None => route,
    }
}

/// The simulation of an address: the moment, and who is looked at, are not part of it.
fn subject(route: &Route) -> String {
    let places = ["moment", "rank", "stop", "param", "pass"];
    let route = places.into_iter().fold(route.clone(), |route, place| route.without(place));
    route.to_hash()
}

/// Properties of [`Live`].
#[derive(Properties, PartialEq)]
pub(super) struct LiveProps {
    pub(super) show: Show,
    /// The step of the lesson: a step begins at what it shows, wherever the one before was left.
    pub(super) step: usize,
    /// True if a question is open that what the diagnosis says would answer.
    pub(super) asking: bool,
}

/// A view that can be stepped and changed.
#[component(Live)]
pub(super) fn live(props: &LiveProps) -> Html {
    let shared = use_shared();
    let wanted = address_of(&props.show);
    let route = use_state(|| wanted.clone());
    {
        let route = route.setter();
        use_effect_with((wanted.clone(), props.step), move |(wanted, _)| {
            route.set(wanted.clone());
        });
    }
    let handed = use_state(|| Handed::holding(Route::default(), Vec::new(), 0));
    let missing = use_state(|| None::<String>);
    {
        let (handed, missing) = (handed.setter(), missing.setter());
        use_effect_with(props.show.files.clone(), move |names| {
            let names = names.clone();
            missing.set(None);
            if !names.is_empty() {
                wasm_bindgen_futures::spawn_local(async move {
                    match files(&names).await {
                        Ok(files) => {
                            let to = Route::to(View::Recording);
                            handed.set(Handed::holding(to, files, 1));
                        }
                        Err(why) => missing.set(Some(why)),
                    }
                });
            }
        });
    }
    let set = {
        let route = route.setter();
        Callback::from(move |to: Route| route.set(to))
    };
    let latest = use_mut_ref(|| wanted.clone());
    let nav = Nav::inside((*route).clone(), latest, set);
    let shared = Shared { nav, handed: (*handed).clone(), ..shared };
    let again = {
        let (route, wanted) = (route.setter(), wanted.clone());
        Callback::from(move |_: MouseEvent| route.set(wanted.clone()))
    };
    let view = route.view();
    // Another simulation begins anew; another moment of the same one is only gone to.
    let key = format!("{}{}", subject(&wanted), props.show.files.len());
    html! {
        <section class={classes!("learn-live", view.word(), props.asking.then_some("asking"))} aria-label="Simulation"
                 data-test="live" data-view={view.word()} data-address={route.to_hash()}>
            <header>
                <b>{ view.title() }</b>
                <span class="muted hint">{ "Live: step it, change it." }</span>
                <span class="grow" />
                <button class="quiet" onclick={again} title="Back to what the lesson shows" data-test="as-in-lesson">{ "↺ Reset" }</button>
                if props.show.files.is_empty() {
                    <a href={route.to_hash()} title="Leaves the lesson" data-test="open-view">{ "Open in full →" }</a>
                }
            </header>
            if let Some(why) = &*missing { <p class="banner bad" role="alert">{ why }</p> }
            <ContextProvider<Beside> context={Beside { asking: props.asking }}>
                <ContextProvider<Shared> context={shared}>
                    <div {key} class="stage">
                        { match view {
                            View::Step => html! { <Step /> },
                            View::Gallery => html! { <Gallery /> },
                            View::Mesh => html! { <Mesh /> },
                            View::Ddp => html! { <Ddp /> },
                            View::Hangs => html! { <Hangs /> },
                            View::Program => html! { <Program /> },
                            View::Recording => html! { <Recording /> },
                            // Nothing of a lesson's is there: a test sees to it.
                            _ => html! {},
                        } }
                    </div>
                </ContextProvider<Shared>>
            </ContextProvider<Beside>>
        </section>
    }
}
