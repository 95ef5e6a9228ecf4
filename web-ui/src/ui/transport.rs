//! Play, pause, step, scrub.

use super::keys;
use crate::dom::{self, Listener};
use crate::explain;
use crate::playback::{Act, Playback, SPEEDS};
use web_sys::{HtmlInputElement, HtmlSelectElement, KeyboardEvent};
use yew::prelude::*;

/// Properties of [`Transport`].
#[derive(Properties, PartialEq)]
pub(crate) struct TransportProps {
    pub(crate) playback: UseReducerHandle<Playback>,
    /// The virtual time that is shown.
    pub(crate) time_ps: u64,
    /// The counter instead of moments, with the words instead of that time.
    #[prop_or_default]
    pub(crate) counter: Option<Counter>,
}

/// The position, counted in something else than moments.
#[derive(Clone, PartialEq)]
pub(crate) struct Counter {
    pub(crate) at: usize,
    pub(crate) of: usize,
    pub(crate) words: String,
}

/// The controls of a simulation that is stepped through; they hear the keyboard, too.
#[component(Transport)]
pub(crate) fn transport(props: &TransportProps) -> Html {
    let playback = &props.playback;
    let dispatch = playback.dispatcher();
    let act = |act: Act| {
        let dispatch = dispatch.clone();
        Callback::from(move |_: MouseEvent| dispatch.dispatch(act))
    };
    {
        let dispatch = dispatch.clone();
        use_effect_with(playback.last, move |last| {
            let last = *last;
            let heard = Listener::on(&dom::window(), "keydown", move |event: KeyboardEvent| {
                if keys::typing(&event) || event.default_prevented() {
                    return;
                }
                let act = match event.key().as_str() {
                    " " => Act::Toggle,
                    "ArrowRight" => Act::Forward,
                    "ArrowLeft" => Act::Back,
                    "Home" => Act::To(0),
                    "End" => Act::To(last),
                    "+" | "=" => Act::Faster,
                    "-" | "_" => Act::Slower,
                    _ => return,
                };
                event.prevent_default();
                dispatch.dispatch(act);
            });
            move || drop(heard)
        });
    }
    let scrub = {
        let dispatch = dispatch.clone();
        Callback::from(move |event: InputEvent| {
            let input: HtmlInputElement = event.target_unchecked_into();
            dispatch.dispatch(Act::To(input.value_as_number() as usize));
        })
    };
    let speed = {
        let dispatch = dispatch.clone();
        Callback::from(move |event: Event| {
            let select: HtmlSelectElement = event.target_unchecked_into();
            dispatch.dispatch(Act::Speed(select.selected_index().max(0) as usize));
        })
    };
    let (at_start, at_end) = (playback.moment == 0, playback.moment >= playback.last);
    let (unit, counter) = match &props.counter {
        Some(counter) => ("step ", counter.clone()),
        None => {
            let (at, of) = (playback.moment, playback.last);
            ("moment ", Counter { at, of, words: explain::time(props.time_ps) })
        }
    };
    let Counter { at, of, words } = counter;
    let place = format!("{unit}{at} of {of} {words}");
    html! {
        <div class="transport" role="group" aria-label="Playback" data-test="transport"
             data-moment={playback.moment.to_string()} data-last={playback.last.to_string()} data-time-ps={props.time_ps.to_string()}
             data-playing={playback.playing.to_string()} data-moving={playback.moving().to_string()}>
            <button class="icon" onclick={act(Act::To(0))} disabled={at_start} aria-label="To the start"
                    title="To the start (Home)" data-test="start">{ icon("M6 5v14M19 5v14l-10-7z") }</button>
            <button class="icon" onclick={act(Act::Back)} disabled={at_start && playback.fraction == 0.0}
                    aria-label="Back" title="Back (←)" data-test="back">
                { icon("M18 5v14L9 12zM6 9v6") }</button>
            <button class="icon play" onclick={act(Act::Toggle)} data-test="play"
                    aria-label={if playback.playing { "Pause" } else { "Play" }} title="Play or pause (Space)">
                { icon(if playback.playing { "M8 5v14M16 5v14" } else { "M7 4v16l13-8z" }) }</button>
            <button class="icon" onclick={act(Act::Forward)} disabled={at_end} aria-label="Forward"
                    title="Forward (→)" data-test="forward">{ icon("M6 5v14l9-7zM18 9v6") }</button>
            <button class="icon" onclick={act(Act::To(playback.last))} disabled={at_end} aria-label="To the end"
                    title="To the end (End)" data-test="end">{ icon("M18 5v14M5 5v14l10-7z") }</button>
            <input class="scrub" type="range" min="0" max={playback.last.to_string()} step="1"
                   value={playback.moment.to_string()} oninput={scrub} aria-label="Moment"
                   aria-valuetext={place.clone()} data-test="scrub" />
            <output class="place mono" data-test="place">
                <i><span class="unit">{ unit }</span><b>{ at }</b>{ format!(" / {of}") }</i>
                <span>{ words }</span>
            </output>
            <label class="speed"><span class="hidden">{ "Speed" }</span>
                <select onchange={speed} data-test="speed" title="Speed (+ −)">
                    { for SPEEDS.iter().enumerate().map(|(index, speed)| html! {
                        <option selected={index == playback.speed}>{ format!("{speed}×") }</option>
                    }) }
                </select>
            </label>
        </div>
    }
}

fn icon(path: &'static str) -> Html {
    html! {
        <svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">
            <path d={path} fill="currentColor" stroke="currentColor" stroke-width="2.5"
                  stroke-linejoin="round" stroke-linecap="round" />
        </svg>
    }
}
