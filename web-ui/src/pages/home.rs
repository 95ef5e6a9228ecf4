//! The first view: what Lockstep is for, and three ways in.

use super::recording::files::picked;
use super::recording::samples::samples;
use super::simulation::{use_simulation, use_view};
use super::step_choice::StepChoice;
use crate::app::{Server, use_shared};
use crate::explain;
use crate::playback::{Act, use_playback};
use crate::route::{Route, View};
use crate::ui::Ring;
use lockstep_core::schedule::Rounds;
use std::rc::Rc;
use web_sys::{Event, HtmlInputElement};
use yew::prelude::*;

/// The address of the simulation that moves on the home page.
const MOVING: &str = "#/step?collective=all_reduce&algorithm=ring&world=6&count=12";

/// The words that `index.html` has, too, to be read before the program is there.
const TITLE: &str = "See why a distributed training job hangs, and what every rank does.";
const LEAD: &str = "Lockstep reads what PyTorch leaves behind, names the rank, the call and the line, and shows any collective step by step. It runs in this tab: nothing is uploaded.";
const HANGS: [&str; 2] = [
    "My job hangs",
    "Drop Flight Recorder dumps, logs, stacks or profiles anywhere on this page, as files, folder or archive.",
];
const LEARN: [&str; 2] =
    ["Teach me", "Every picture is a simulation that you step, change and question."];
const TEST: [&str; 2] = [
    "Test my code or plan",
    "Step a small program here, rank by rank. Real scripts are recorded by your own PyTorch, without GPUs:",
];

/// The first view.
#[component(Home)]
pub(crate) fn home() -> Html {
    let shared = use_shared();
    let pick = {
        let handed = shared.handed.clone();
        Callback::from(move |event: Event| {
            let input: HtmlInputElement = event.target_unchecked_into();
            handed.bring(picked(&input));
            input.set_value("");
        })
    };
    let link = |to: Route, text: &str| html! { <li><a href={to.to_hash()}>{ text }</a></li> };
    let (first, others) = (samples().next(), samples().skip(1));
    html! {
        <div class="home">
            <header>
                <h1>{ TITLE }</h1>
                <p class="lead">{ LEAD }</p>
            </header>
            <div class="doors">
                <section class="panel door" aria-labelledby="door-hang">
                    <h2 id="door-hang">{ HANGS[0] }</h2>
                    <p>{ HANGS[1] }</p>
                    <div class="row">
                        <label class="button primary">{ "Choose files" }
                            <input class="hidden" type="file" multiple={true} onchange={pick.clone()} data-test="home-files" /></label>
                        <label class="button">{ "Choose a folder" }
                            <input class="hidden" type="file" multiple={true} webkitdirectory={true} onchange={pick} data-test="home-folder" /></label>
                    </div>
                    if let Some(first) = first {
                        <p><a class="button try" href={first.route().to_hash()} data-test="try-sample">{ "Try a real 16-rank hang" }</a></p>
                    }
                    <ul>{ for others.map(|sample| link(sample.route(), sample.title)) }</ul>
                </section>
                <section class="panel door" aria-labelledby="door-learn">
                    <h2 id="door-learn">{ LEARN[0] }</h2>
                    <p>{ LEARN[1] }</p>
                    <ul>
                        { link(Route::to(View::Learn), "Lessons: predict, then watch") }
                        { link(Route::to(View::Step), "Step through a collective") }
                        { link(Route::to(View::Gallery), "Compare algorithms: ring, tree, Bruck and others") }
                        { link(Route::to(View::Ddp), "What DDP does with your buckets") }
                        { link(Route::to(View::Mesh), "Process groups and device meshes") }
                        { link(Route::to(View::Cluster), "How long collectives take on real clusters") }
                        { link(Route::to(View::Hangs), "Hangs, and how they are found") }
                    </ul>
                </section>
                <section class="panel door" aria-labelledby="door-test">
                    <h2 id="door-test">{ TEST[0] }</h2>
                    <p>{ TEST[1] }</p>
                    <pre>{ "lockstep record --world-size 8 -- \\\n  train.py\nlockstep sim train.plan.json" }</pre>
                    <ul>
                        { link(Route::to(View::Program), "Open a program or a plan") }
                        { link(Route::to(View::Runs), "Run a plan for real, on processes or GPUs") }
                    </ul>
                </section>
            </div>
            <MovingRing />
            if matches!(shared.server, Server::None { .. }) {
                <p class="muted host" data-test="how-to-host">
                    { "This page is served as static files: everything works here but real runs. " }
                    <code>{ "lockstep serve" }</code>
                    { " opens it with them; to host it yourself, put the folder " }<code>{ "dist/" }</code>
                    { " of " }<code>{ "cargo xtask web" }</code>{ " behind any web server." }
                </p>
            }
        </div>
    }
}

/// A ring all_reduce of six ranks that plays by itself, simulated here.
#[component(MovingRing)]
fn moving_ring() -> Html {
    let choice = use_memo((), |()| StepChoice::read(&Route::parse(MOVING)).0);
    let plan = use_memo((), |()| choice.plan().map(Rc::new));
    let simulated = use_simulation(&plan, choice.machine);
    let playback = use_playback();
    let opened = simulated.ready().cloned();
    {
        let dispatch = playback.dispatcher();
        use_effect_with(opened.clone(), move |opened| {
            if let Some(opened) = opened {
                let (of, last) =
                    (Some(opened.session.0.into()), opened.moments.len().saturating_sub(1));
                dispatch.dispatch(Act::Load { of, moment: 0, last });
                dispatch.dispatch(Act::Toggle);
            }
        });
    }
    let view = use_view(opened.as_ref().map(|opened| opened.session), playback.moment);
    let moments = opened.as_ref().map(|opened| opened.moments.clone()).unwrap_or_default();
    let rounds =
        use_memo((), |()| choice.schedule().map(|schedule| (Rounds::of(&schedule), schedule)));
    let play = {
        let dispatch = playback.dispatcher();
        Callback::from(move |_: MouseEvent| dispatch.dispatch(Act::Toggle))
    };
    let words = match (&view, rounds.as_ref()) {
        (Some(view), Some((rounds, schedule))) => explain::moment(schedule, rounds, view),
        _ => String::new(),
    };
    html! {
        <section class="panel moving" aria-label="A ring all_reduce of six ranks, simulated in this page">
            <div class="picture">
                if let Some(view) = view {
                    <Ring {view} time_ps={playback.time_ps(&moments)} selected={u32::MAX} on_select={Callback::noop()} />
                }
            </div>
            <div class="words">
                <h2>{ "A ring all_reduce, simulated as you watch" }</h2>
                <p class="now">{ words }</p>
                <div class="row">
                    <button onclick={play} data-test="home-play">{ if playback.playing { "Pause" } else { "Play" } }</button>
                    <a class="button" href={MOVING}>{ "Step through it" }</a>
                </div>
            </div>
        </section>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_at_once_is_what_the_page_says() {
        let html = include_str!("../../../index.html");
        for words in [TITLE, LEAD].iter().chain(&HANGS).chain(&LEARN).chain(&TEST) {
            assert!(html.contains(words), "{words}");
        }
        for (group, views) in View::GROUPS {
            assert!(html.contains(&format!(">{group}</span>")), "{group}");
            for view in views {
                let (to, title) = (Route::to(*view).to_hash(), view.title());
                assert!(html.contains(&format!("<a href=\"{to}\">{title}</a>")), "{title}");
            }
        }
    }
}
