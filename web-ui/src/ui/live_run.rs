//! A real run while it goes on: its timeline as it grows, and what it can be told.

use super::Timeline;
use crate::dom;
use crate::explain;
use crate::live::{RealRunHandle, Stage};
use crate::turns::use_turns;
use yew::prelude::*;

/// Shorter pauses than this, in seconds, are not told.
const QUIET_S: u64 = 2;

#[derive(Properties, PartialEq)]
struct QuietClockProps {
    /// Events so far.
    events: u64,
}

/// The time since the last event.
#[component(QuietClock)]
fn quiet_clock(props: &QuietClockProps) -> Html {
    let since = use_state(dom::now_ms);
    let now = use_state(dom::now_ms);
    {
        let since = since.setter();
        use_effect_with(props.events, move |_| since.set(dom::now_ms()));
    }
    {
        let now = now.setter();
        let turns = use_turns();
        use_effect_with((), move |()| {
            let turn = turns.next();
            wasm_bindgen_futures::spawn_local(async move {
                while turn.counts() {
                    dom::sleep_ms(500).await;
                    now.set(dom::now_ms());
                }
            });
            move || turns.end()
        });
    }
    let quiet = ((*now - *since).max(0.0) / 1000.0) as u64;
    html! {
        if quiet >= QUIET_S { <b data-test="run-quiet">{ format!(" · nothing has happened for {quiet} s") }</b> }
    }
}

/// Properties of [`LiveRun`].
#[derive(Properties, PartialEq)]
pub(crate) struct LiveRunProps {
    pub(crate) run: RealRunHandle,
    /// True if it stood paused when it was first seen.
    #[prop_or_default]
    pub(crate) paused: bool,
    /// Shown instead of its timeline alone.
    #[prop_or_default]
    pub(crate) children: Children,
}

/// A run that goes on; nothing before that and after.
#[component(LiveRun)]
pub(crate) fn live_run(props: &LiveRunProps) -> Html {
    let paused = use_state(|| props.paused);
    let Stage::Running { id, session, count, lost } = &props.run.stage else {
        return html! {};
    };
    let pause = {
        let run = props.run.clone();
        let stands = *paused;
        let paused = paused.setter();
        Callback::from(move |_: MouseEvent| {
            run.tell(if stands { "resume" } else { "pause" });
            paused.set(!stands);
        })
    };
    let dump = {
        let run = props.run.clone();
        Callback::from(move |_: MouseEvent| run.tell("dump"))
    };
    let cancel = {
        let run = props.run.clone();
        Callback::from(move |_: MouseEvent| run.cancel())
    };
    let so_far = format!("{} events, {}", count.events, explain::time(count.end_ps));
    html! {
        <>
            <header><h2>{ format!("Run {id}, live") }</h2><span class="grow" />
                <button onclick={pause} data-test="run-pause">{ if *paused { "Go on" } else { "Pause it" } }</button>
                <button onclick={dump} data-test="run-dump" title="Every rank writes down its last calls, as PyTorch's Flight Recorder does">{ "Dump it" }</button>
                <button onclick={cancel} data-test="run-cancel">{ "Stop it" }</button></header>
            <p class="muted" data-test="run-events" data-events={count.events.to_string()}>{ so_far }<QuietClock events={count.events} /></p>
            if *lost { <p class="bad" role="status">{ "The connection to the server was lost; trying again…" }</p> }
            if props.children.is_empty() {
                <Timeline session={session.id()} world_size={count.world_size} lanes={count.lanes.max(1)}
                          end_ps={count.end_ps} tick={count.events} follow={true} />
            } else {
                { props.children.clone() }
            }
        </>
    }
}
