//! The call that is looked at: everything known of it, and the same call on the other ranks.

use super::notes::{Note, Place, WriteNote};
use crate::dom;
use crate::explain;
use crate::ui::dropped::Texts;
use crate::ui::{Go, facts_list, stack, use_in_sight};
use lockstep_web_protocol::{CallDetails, CallMark, Member, Which};
use std::rc::Rc;
use web_sys::KeyboardEvent;
use yew::prelude::*;

/// More members than this are told in numbers only.
const MAX_MEMBERS: usize = 128;

/// Properties of [`Details`].
#[derive(Properties, PartialEq)]
pub(super) struct DetailsProps {
    pub(super) details: Rc<CallDetails>,
    /// True if its rank is kept at the top.
    pub(super) pinned: bool,
    /// The reader's notes, of all calls.
    pub(super) notes: Rc<Vec<Note>>,
    pub(super) on_call: Callback<CallMark>,
    pub(super) on_go: Callback<Go>,
    pub(super) on_pin: Callback<u32>,
    pub(super) on_note: Callback<Note>,
    pub(super) on_close: Callback<()>,
}

/// Gives the pane the focus, so that its buttons are reached by the keyboard.
pub(super) fn focus() {
    dom::focus(".details");
}

/// Brings the focus back to the timeline.
fn back_to_timeline() {
    dom::focus("main:not([hidden]) .lanes .timeline .stage");
}

/// The call that is looked at.
#[component(Details)]
pub(super) fn details(props: &DetailsProps) -> Html {
    let texts = use_context::<Texts>();
    let told = &props.details;
    let mark = &told.mark;
    let rank = mark.id.rank;
    let took = match told.knows_end || mark.to_ps.is_none() {
        true => explain::took(mark.from_ps, mark.to_ps),
        false => "not recorded".to_owned(),
    };
    let mut facts =
        vec![("called at".to_owned(), explain::time(mark.from_ps)), ("took".to_owned(), took)];
    facts.extend(told.facts.iter().cloned());
    let key = Callback::from(|event: KeyboardEvent| {
        if event.key() == "Escape" {
            // The call stays selected: Escape in the timeline leaves it.
            event.stop_propagation();
            back_to_timeline();
        }
    });
    let pane = use_in_sight(Some(mark.id));
    let to = |mark: &Option<CallMark>, words: &str, test: &'static str| {
        let (there, on_call) = (mark.clone(), props.on_call.clone());
        let go = Callback::from(move |_: MouseEvent| {
            there.iter().for_each(|mark| on_call.emit(mark.clone()))
        });
        let title = mark.as_ref().map(|mark| mark.title.clone());
        html! { <button class="quiet" onclick={go} disabled={mark.is_none()} {title} data-test={test}>{ words.to_owned() }</button> }
    };
    let pin = props.on_pin.reform(move |_: MouseEvent| rank);
    let close = props.on_close.reform(|_: MouseEvent| ());
    html! {
        <section ref={pane} class="details" tabindex="-1" aria-label="The selected call" onkeydown={key} data-test="details" data-rank={rank.to_string()} data-call={mark.title.clone()}>
            <header>
                <span class="chip">{ rank }</span>
                <h2>{ format!("{} on rank {rank}", mark.title) }</h2>
                <span class="grow" />
                { to(&told.previous, "← previous call", "call-before") }
                { to(&told.next, "next call →", "call-after") }
                <button class="quiet" onclick={pin} aria-pressed={props.pinned.to_string()} data-test="pin-rank">{ if props.pinned { "Unpin rank" } else { "Pin rank" } }</button>
                <button class="quiet" onclick={close} aria-label="Close" data-test="details-close">{ "×" }</button>
            </header>
            { own_notes(props) }
            <WriteNote place={Place { rank, work: Some(mark.id.work), time_ps: mark.from_ps, title: mark.title.clone() }} on_note={props.on_note.clone()} />
            <div class="columns">
                <div>
                    { facts_list(&facts) }
                    { waits(told, &props.on_go) }
                </div>
                if !told.members.is_empty() { <div>{ members(told, props) }</div> }
                if !told.stack.is_empty() {
                    <div><h3>{ "Stack" }</h3>{ stack(&told.stack, texts.as_ref()) }</div>
                }
            </div>
        </section>
    }
}

/// The reader's notes on the call.
fn own_notes(props: &DetailsProps) -> Html {
    let id = props.details.mark.id;
    let own = |note: &&Note| note.place.rank == id.rank && note.place.work == Some(id.work);
    let shown = |note: &Note| html! { <p class="own-note" data-test="own-note">{ &note.text }</p> };
    props.notes.iter().filter(own).map(shown).collect()
}

/// For whom the call waits.
fn waits(told: &CallDetails, on_go: &Callback<Go>) -> Html {
    if told.waits_for.is_empty() {
        return html! {};
    }
    let chips = told.waits_for.iter().take(MAX_MEMBERS).map(|rank| {
        let rank = *rank;
        let go = on_go.reform(move |_: MouseEvent| Go { rank, which: Which::Last });
        html! { <button class="chip" onclick={go} title={format!("Where rank {rank} is")}>{ rank }</button> }
    });
    html! { <p class="waits-for"><b>{ "Waits for " }</b>{ for chips }</p> }
}

/// The same call on the members of its group: who did not make it, who came last.
fn members(told: &CallDetails, props: &DetailsProps) -> Html {
    let made = || {
        told.members.iter().filter_map(|member| Some((member.rank, member.call.as_ref()?.from_ps)))
    };
    let missing = told.members.iter().filter(|member| member.call.is_none() && member.recorded);
    let missing: Vec<u32> = missing.map(|member| member.rank).collect();
    let unknown = told.members.iter().filter(|member| !member.recorded);
    let unknown: Vec<u32> = unknown.map(|member| member.rank).collect();
    let elsewhere = told.members.iter().filter(|member| member.elsewhere);
    let elsewhere: Vec<u32> = elsewhere.map(|member| member.rank).collect();
    let first = made().map(|(_, at)| at).min().unwrap_or(0);
    let last = made().max_by_key(|(_, at)| *at).filter(|(_, at)| *at > first);
    let member = |member: &Member| {
        let Member { rank, call, recorded, differs, .. } = member;
        let rank = *rank;
        let state = match call {
            None if *recorded => "missing",
            None => "unknown",
            Some(_) if *differs => "differs",
            Some(mark) if mark.to_ps.is_none() => "open",
            Some(_) => "ended",
        };
        let title = match call {
            None if *recorded => format!("Rank {rank} did not make this call"),
            None => format!("Nothing was recorded of rank {rank}"),
            Some(mark) => {
                let after = explain::time(mark.from_ps.saturating_sub(first));
                let end = if mark.to_ps.is_some() { "" } else { ", has not ended" };
                format!("{} on rank {rank}: {after} after the first{end}", mark.title)
            }
        };
        let click = {
            let (call, on_call, on_go) = (call.clone(), props.on_call.clone(), props.on_go.clone());
            Callback::from(move |_: MouseEvent| match &call {
                Some(mark) => on_call.emit(mark.clone()),
                None => on_go.emit(Go { rank, which: Which::Last }),
            })
        };
        html! { <button class={classes!("member", state)} onclick={click} aria-label={title.clone()} {title} data-test="member" data-state={state}>{ rank }</button> }
    };
    let named = |ranks: &[u32]| {
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {}", explain::ranks(ranks.iter().copied()))
    };
    html! {
        <>
            <h3>{ "The same call on its group" }</h3>
            if !missing.is_empty() { <p class="bad" data-test="members-missing">{ format!("Not made by {}.", named(&missing)) }</p> }
            if !unknown.is_empty() { <p class="muted">{ format!("Nothing recorded of {}.", named(&unknown)) }</p> }
            if !elsewhere.is_empty() { <p data-test="members-elsewhere">{ format!("Other lines of the program led to this number on {}.", named(&elsewhere)) }</p> }
            if let Some((rank, at)) = last { <p>{ format!("Last to come: rank {rank}, {} after the first.", explain::time(at - first)) }</p> }
            <div class="members">{ for told.members.iter().take(MAX_MEMBERS).map(member) }</div>
            if told.members.len() > MAX_MEMBERS { <p class="muted">{ format!("{} more", told.members.len() - MAX_MEMBERS) }</p> }
        </>
    }
}
