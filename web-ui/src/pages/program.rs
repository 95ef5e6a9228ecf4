//! Program: a text that says what each rank does, written or pasted here, and debugged.

mod files;
mod record;

use super::asked::Asked;
use super::debugger::{Debugger, code};
use super::machine_choice;
use super::machine_fields::{Links, MachineFields};
use crate::app::use_shared;
use crate::route::{Route, View};
use crate::ui::NumberField;
use lockstep_scenarios::program::Options;
use record::RecordIt;
use std::rc::Rc;
use yew::prelude::*;

/// The largest world that the page steps through.
const MAX_WORLD: u64 = 512;

/// The program that is there before anybody has written anything.
const FIRST: &str = include_str!("program/first.py");

/// A program of the user's own.
#[component(Program)]
pub(crate) fn program() -> Html {
    let shared = use_shared();
    let nav = shared.nav.clone();
    let problem = use_state(|| None::<String>);
    // Files that were dropped with the program; its address does not hold them.
    let beside = use_state(Vec::<(String, String)>::new);
    let name = use_state(|| "train.py".to_owned());
    let set_text = {
        let (nav, problem) = (nav.clone(), problem.setter());
        Callback::from(move |text: String| {
            problem.set(None);
            nav.change(|route| {
                let route = route.without("moment").without("stop");
                let route = route.without("order").without("rank");
                route.with("code", code::write(&text))
            });
        })
    };
    {
        let (set_text, problem, beside) = (set_text.clone(), problem.setter(), beside.setter());
        let name = name.setter();
        use_effect_with((shared.handed.clone(), nav.route.clone()), move |(handed, _)| {
            let dropped = handed.take(&Route::to(View::Program));
            if !dropped.is_empty() {
                wasm_bindgen_futures::spawn_local(async move {
                    match files::read(dropped).await {
                        Ok(dropped) => {
                            beside.set(dropped.files);
                            name.set(dropped.name);
                            set_text.emit(dropped.text);
                        }
                        Err(why) => problem.set(Some(why)),
                    }
                });
            }
        });
    }
    // Not anew on every frame of what is played.
    let written = use_memo(nav.route.get("code").map(str::to_owned), |code| {
        let (text, unread) = match code.as_deref().map(code::read) {
            None => (FIRST.to_owned(), None),
            Some(Ok(text)) => (text, None),
            Some(Err(why)) => (FIRST.to_owned(), Some(why)),
        };
        (Rc::<str>::from(text), unread)
    });
    let (text, unread) = &*written;
    let mut asked = Asked::new(&nav.route);
    let why = format!("The page steps through 1 to {MAX_WORLD} ranks.");
    let world = asked.number("world", (0, MAX_WORLD), 0, &why) as u32;
    let machine = machine_choice::asked(&mut asked);
    let mut base = machine_choice::write(Route::to(View::Program), machine);
    if world > 0 {
        base = base.with("world", world);
    }
    if let Some(code) = nav.route.get("code") {
        base = base.with("code", code);
    }
    let options = Options {
        world_size: (world > 0).then_some(world),
        files: (*beside).clone(),
        ..Options::default()
    };
    let choose_world = {
        let nav = nav.clone();
        Callback::from(move |world: u64| {
            let route = nav.route.clone().without("moment");
            nav.replace(match world {
                0 => route.without("world"),
                world => route.with("world", world),
            });
        })
    };
    let go = {
        let nav = nav.clone();
        Callback::from(move |route: Route| nav.replace(route))
    };
    if !asked.unmet.is_empty() {
        return super::asked::unmet_list(&asked.unmet);
    }
    html! {
        <Debugger text={text.clone()} {options} {machine} base={base.clone()} name="program" writing=true on_text={set_text}>
            <h1>{ "What each rank does, in Python's words" }</h1>
            <p>{ "Write or paste a program with torch.distributed's calls: every rank runs main(), each with its own cursor. The address holds the program and the moment, so that it can be sent to somebody. " }
                <a href={Route::to(View::Hangs).to_hash()}>{ "Jobs that hang" }</a>{ " have been written already." }</p>
            <div class="row">
                <NumberField name="world" label="Ranks (0: as it says)" value={u64::from(world)} min={0} max={MAX_WORLD} on_choose={choose_world} />
                <MachineFields {machine} route={base.clone()} world_size={world.max(1)} links={Links::Absent} on_route={go} />
            </div>
            <RecordIt name={(*name).clone()} text={text.clone()} files={(*beside).clone()} world_size={world} />
            { for [unread.clone(), (*problem).clone()].into_iter().flatten().map(|why| html! { <p class="banner bad" role="alert" data-test="unread">{ why }</p> }) }
        </Debugger>
    }
}
