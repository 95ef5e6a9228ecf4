//! The places to stop at: as chips, as a form that adds one, and the buttons that go there.

use super::search::{Search, words};
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::stop::{Direction, Stop};
use yew::prelude::*;

/// More stops than this are more than a reader can hold in mind.
const MAX_STOPS: usize = 24;

/// The stops of an address, and what in it is none.
pub(super) fn read(text: &str) -> (Vec<Stop>, Option<String>) {
    let (mut stops, mut wrong) = (Vec::new(), None);
    for part in text.split(',').filter(|part| !part.is_empty()).take(MAX_STOPS) {
        match part.parse::<Stop>() {
            Ok(stop) if !stops.contains(&stop) => stops.push(stop),
            Ok(_) => {}
            Err(error) => wrong = Some(error.to_string()),
        }
    }
    (stops, wrong)
}

/// The stops as an address has them.
pub(super) fn write(stops: &[Stop]) -> String {
    stops.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The same with one added, or without it if it was there.
pub(super) fn toggled(stops: &[Stop], stop: Stop) -> Vec<Stop> {
    let mut others: Vec<Stop> = stops.iter().filter(|other| **other != stop).copied().collect();
    if others.len() == stops.len() && stops.len() < MAX_STOPS {
        others.push(stop);
    }
    others
}

/// Properties of [`Stops`].
#[derive(Properties, PartialEq)]
pub(super) struct StopsProps {
    pub(super) stops: Vec<Stop>,
    pub(super) groups: Vec<ProcessGroup>,
    pub(super) world_size: u32,
    /// The rank that is looked at.
    pub(super) rank: u32,
    pub(super) search: Search,
    pub(super) on_stops: Callback<Vec<Stop>>,
}

/// The stops, and how to get to them.
#[component(Stops)]
pub(super) fn stops(props: &StopsProps) -> Html {
    let kind = use_state(|| "differ".to_owned());
    let (line, seq) = (use_state(|| 1u64), use_state(|| 1u64));
    let (group, rank) = (use_state(|| 0u32), use_state(|| None::<u64>));
    let open = use_state(|| false);
    let rank_of = rank.unwrap_or(u64::from(props.rank));
    let chosen = match kind.as_str() {
        "line" => Stop::Line { line: *line as u32, rank: Some(GlobalRank(rank_of as u32)) },
        "rank" => Stop::Rank(GlobalRank(rank_of as u32)),
        "call" => Stop::Call { group: GroupId(*group), seq: *seq },
        _ => Stop::Differ,
    };
    let add = {
        let (on_stops, stops, open) = (props.on_stops.clone(), props.stops.clone(), open.clone());
        Callback::from(move |_: MouseEvent| {
            if !stops.contains(&chosen) {
                on_stops.emit(toggled(&stops, chosen));
            }
            open.set(false);
        })
    };
    let show = {
        let open = open.clone();
        Callback::from(move |_: MouseEvent| open.set(!*open))
    };
    let kinds = vec![
        Choice::new("differ", "ranks first disagree"),
        Choice::new("call", "a collective has number …"),
        Choice::new("rank", "a rank goes on"),
        Choice::new("line", "a rank reaches line …"),
    ];
    let go = |direction| {
        let search = props.search.clone();
        let stops = props.stops.clone();
        Callback::from(move |_: MouseEvent| search.go(stops.clone(), direction))
    };
    let step = |direction| {
        let search = props.search.clone();
        let stop = Stop::Rank(GlobalRank(props.rank));
        Callback::from(move |_: MouseEvent| search.go(vec![stop], direction))
    };
    let set_number = |state: &UseStateHandle<u64>| {
        let state = state.setter();
        Callback::from(move |value: u64| state.set(value))
    };
    let groups: Vec<Choice> = (0..)
        .zip(&props.groups)
        .map(|(id, group): (u32, _)| Choice::new(&id.to_string(), group.label()))
        .collect();
    let most = u64::from(props.world_size.saturating_sub(1));
    html! {
        <div class="stops" role="group" aria-label="Where to stop" data-test="stops" data-stops={write(&props.stops)}>
            <button onclick={go(Direction::Back)} title="Back to the stop before (Shift+C)" data-test="stop-back">{ "◀ Back" }</button>
            <button class="primary" onclick={go(Direction::Forward)} title="On to the next stop; without one, to where the ranks first disagree, then to the end (C)" data-test="stop-on">{ "Continue ▶" }</button>
            <span class="pair">
                <button onclick={step(Direction::Back)} title="To this rank's call before (P)" data-test="rank-back">{ "‹" }</button>
                <span>{ format!("rank {}", props.rank) }</span>
                <button onclick={step(Direction::Forward)} title="To this rank's next call (N)" data-test="rank-on">{ "›" }</button>
            </span>
            <ul class="chips">
                { for props.stops.iter().map(|stop| {
                    let (on_stops, stops, stop) = (props.on_stops.clone(), props.stops.clone(), *stop);
                    let remove = Callback::from(move |_: MouseEvent| on_stops.emit(toggled(&stops, stop)));
                    let words = words(&stop, &props.groups);
                    html! {
                        <li data-test={format!("stop-{stop}")}><span>{ &words }</span>
                            <button class="quiet" onclick={remove} aria-label={format!("Do not stop at {words}")}>{ "×" }</button></li>
                    }
                }) }
                <li class="add"><button class="quiet" onclick={show} aria-expanded={(*open).to_string()} data-test="add-stop">{ "+ stop" }<span class="more-words">{ " when…" }</span></button></li>
            </ul>
            if *open {
                <div class="row form" data-test="stop-form">
                    <SelectField name="stop-kind" label="Stop when" value={(*kind).clone()} choices={kinds} on_choose={
                        let kind = kind.setter();
                        Callback::from(move |value: String| kind.set(value))
                    } />
                    if *kind == "line" {
                        <NumberField name="stop-line" label="Line" value={*line} min={1} max={100_000} on_choose={set_number(&line)} />
                    }
                    if *kind == "line" || *kind == "rank" {
                        <NumberField name="stop-rank" label="Rank" value={rank_of} min={0} max={most} on_choose={
                            let rank = rank.setter();
                            Callback::from(move |value: u64| rank.set(Some(value)))
                        } />
                    }
                    if *kind == "call" {
                        <SelectField name="stop-group" label="Of group" value={group.to_string()} choices={groups} on_choose={
                            let group = group.setter();
                            Callback::from(move |value: String| group.set(value.parse().unwrap_or_default()))
                        } />
                        <NumberField name="stop-seq" label="Sequence number" value={*seq} min={0} max={10_000_000} on_choose={set_number(&seq)} />
                    }
                    <button onclick={add} data-test="stop-add">{ "Add" }</button>
                </div>
            }
            <output class="muted" aria-live="polite" data-test="stopped">{ props.search.said() }</output>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_stops_and_says_what_is_none() {
        let text = "line:9,call:0:5,differ,rank:2";
        let (stops, wrong) = read(text);
        assert_eq!((write(&stops).as_str(), wrong), (text, None));
        let (stops, wrong) = read("line:9,lime:3,line:9");
        assert_eq!(stops.len(), 1);
        assert!(wrong.unwrap().contains("lime:3"));
        let without = toggled(&stops, stops[0]);
        assert_eq!(without, []);
        assert_eq!(toggled(&without, stops[0]), stops);
    }
}
