//! The ranks' time and collectives in the marked area.

use super::notes::{Note, Place, WriteNote};
use crate::app::use_shared;
use crate::explain;
use crate::turns::use_turns;
use lockstep_core::words::counted;
use lockstep_web_protocol::{
    Area, CallShare, Measured, RankShare, Response, SessionId, SessionQuestion,
};
use std::rc::Rc;
use yew::prelude::*;

/// More ranks than this are told together.
const MAX_RANKS: usize = 24;

/// The area that is marked, and whether it was let go.
pub(super) type Marked = Option<(Area, bool)>;

/// Properties of [`MeasuredArea`].
#[derive(Properties, PartialEq)]
pub(super) struct MeasuredAreaProps {
    pub(super) session: SessionId,
    /// Changes when a live trace has more calls.
    pub(super) account: (u64, u64),
    pub(super) area: Area,
    pub(super) on_note: Callback<Note>,
    pub(super) on_close: Callback<()>,
}

/// Shows how each rank spent the time in the area, and the area's collectives.
#[component(MeasuredArea)]
pub(super) fn measured_area(props: &MeasuredAreaProps) -> Html {
    let measured = use_measured((props.session, props.account), &props.area);
    let Some(measured) = measured else { return html! {} };
    let long = props.area.to_ps.saturating_sub(props.area.from_ps).max(1);
    let close = props.on_close.reform(|_: MouseEvent| ());
    let share = |ps: u64| format!("{:.0}%", ps as f64 * 100.0 / long as f64);
    let row = |of: &RankShare| {
        html! {
            <tr>
                <th scope="row">{ format!("rank {}", of.rank) }</th>
                <td class="n">{ share(of.compute_ps) }</td><td class="n">{ share(of.calls_ps) }</td>
                <td class="n">{ share(of.exposed_ps) }</td><td class="n">{ share(of.waiting_ps) }</td><td class="n">{ share(of.idle_ps) }</td>
                <td class="n">{ of.calls }</td><td class="n">{ explain::bytes(of.bytes) }</td>
            </tr>
        }
    };
    let call = |of: &CallShare| {
        html! {
            <tr>
                <th scope="row">{ &of.op }</th><td>{ &of.group }</td>
                <td class="n">{ of.count }</td><td class="n">{ explain::bytes(of.bytes) }</td>
                <td class="n">{ explain::time(of.time_ps) }</td><td class="n">{ explain::time(of.skew_ps) }</td>
                <td class="n">{ of.busbw.map(bandwidth).unwrap_or_default() }</td>
            </tr>
        }
    };
    html! {
        <section class="details measured" aria-label="The marked area" data-test="measured" data-ranks={measured.ranks.len().to_string()}>
            <header>
                <h2>{ format!("{} of {}", explain::time(long), counted(measured.ranks.len() as u64, "rank")) }</h2>
                <span class="grow" />
                <button class="quiet" onclick={close} aria-label="Close" data-test="measured-close">{ "×" }</button>
            </header>
            if let Some(rank) = props.area.ranks.first() {
                <WriteNote place={Place { rank: *rank, work: None, time_ps: props.area.from_ps, title: place_title(&props.area) }} on_note={props.on_note.clone()} />
            }
            <div class="scroll" tabindex="0"><table class="figures-table">
                <thead><tr><td />{ for ["computes", "in calls", "in calls alone", "waits for others", "neither", "calls made", "bytes given"].map(|name| html! { <th class="n">{ name }</th> }) }</tr></thead>
                <tbody>
                    { for measured.ranks.iter().take(MAX_RANKS).map(row) }
                    if measured.ranks.len() > MAX_RANKS { <tr><th scope="row">{ format!("{} more", measured.ranks.len() - MAX_RANKS) }</th></tr> }
                </tbody>
            </table></div>
            if !measured.calls.is_empty() {
                <div class="scroll" tabindex="0"><table class="figures-table">
                    <thead><tr><th>{ "collective" }</th><th>{ "group" }</th>{ for ["count", "bytes", "since the last came", "waited for the last", "bus bandwidth"].map(|name| html! { <th class="n">{ name }</th> }) }</tr></thead>
                    <tbody>{ for measured.calls.iter().map(call) }</tbody>
                </table></div>
            }
        </section>
    }
}

/// `a stretch of 1.2 s of 4 ranks`.
fn place_title(area: &Area) -> String {
    let long = explain::time(area.to_ps.saturating_sub(area.from_ps));
    format!("a stretch of {long} of {}", counted(area.ranks.len() as u64, "rank"))
}

/// A bandwidth for people, from bytes a second: `1.25 GB/s`.
pub(super) fn bandwidth(rate: f64) -> String {
    match rate {
        _ if rate >= 1e9 => format!("{:.2} GB/s", rate / 1e9),
        _ if rate >= 1e6 => format!("{:.2} MB/s", rate / 1e6),
        _ => format!("{:.2} kB/s", rate / 1e3),
    }
}

#[hook]
fn use_measured(of: (SessionId, (u64, u64)), area: &Area) -> Option<Rc<Measured>> {
    let client = use_shared().client;
    let measured = use_state(|| None::<Rc<Measured>>);
    let turns = use_turns();
    {
        let measured = measured.setter();
        use_effect_with((of, area.clone()), move |((session, _), area)| {
            let turn = turns.next();
            let request = SessionQuestion::Measure { area: area.clone() }.about(*session);
            wasm_bindgen_futures::spawn_local(async move {
                let answered = client.ask(request).await.map(|answered| answered.response);
                if let Ok(Response::Measured(found)) = answered
                    && turn.counts()
                {
                    measured.set(Some(Rc::new(*found)));
                }
            });
        });
    }
    (*measured).clone()
}
