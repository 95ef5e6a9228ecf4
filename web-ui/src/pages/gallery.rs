//! The gallery of algorithms: every way to carry out a collective as a card, and two of them side
//! by side.

mod answers;
mod card;
mod choice;
mod difference;
mod on_cluster;
mod side;

use crate::app::use_shared;
use crate::explain;
use crate::pages::asked::{Unmet, Way, cannot};
use crate::pages::nccl_choice::{KnownChoice, use_nccl_choice};
use crate::pages::schedule_file::SchedulePage;
use crate::route::{Route, View};
use crate::ui::{Chart, Curve, Fold};
use answers::{Answers, COUNTS, use_accounts, use_sweeps};
use card::AlgorithmCard;
use choice::{GalleryChoice, GalleryForm};
use lockstep_core::schedule::Algorithm;
use lockstep_core::words::nearest;
use on_cluster::{ChoiceBySize, OnCluster, on_cluster, question};
use side::SideBySide;
use std::rc::Rc;
use yew::prelude::*;

/// The cards, or two of them side by side.
#[component(Gallery)]
pub(crate) fn gallery() -> Html {
    let nav = use_shared().nav;
    let (choice, mut unmet) = GalleryChoice::read(&nav.route);
    let name = nav.route.name();
    if let Some(wrong) = name.filter(|name| !PLACES.contains(name)) {
        unmet.push(no_such_place(&nav.route, wrong));
    }
    match name {
        Some("file") => html! { <SchedulePage /> },
        _ if !unmet.is_empty() => {
            let route = if name == Some("side") { choice.side_route() } else { choice.route() };
            let go = Callback::from(move |route: Route| nav.replace(route));
            cannot(
                TITLE,
                unmet,
                choice.words(),
                html! { <GalleryForm {choice} {route} on_route={go} /> },
            )
        }
        Some("side") => html! { <SideBySide {choice} /> },
        _ => html! { <Cards {choice} /> },
    }
}

const TITLE: &str = "Algorithms, and which one wins";

/// The parts below the gallery in an address.
const PLACES: [&str; 2] = ["side", "file"];

/// An address below the gallery that leads nowhere.
fn no_such_place(route: &Route, wrong: &str) -> Unmet {
    let near = nearest(wrong, PLACES, 1);
    let near = near.into_iter().map(|name| Way {
        words: format!("algorithms/{name}"),
        route: Route { path: Route::below(View::Gallery, name).path, ..route.clone() },
    });
    let all = Route { path: Route::to(View::Gallery).path, ..route.clone() };
    let all = Way { words: "all algorithms".to_owned(), route: all };
    Unmet {
        asked: format!("algorithms/{}", wrong.chars().take(60).collect::<String>()),
        why: "There is no such page.".to_owned(),
        ways: near.chain([all]).collect(),
    }
}

/// Properties of [`Cards`] and [`SideBySide`].
#[derive(Properties, PartialEq)]
struct ChosenProps {
    choice: GalleryChoice,
}

#[component(Cards)]
fn cards(props: &ChosenProps) -> Html {
    let nav = use_shared().nav;
    let choice = props.choice;
    let accounts = use_accounts(choice, choice.algorithms().to_vec());
    let sweeps = use_sweeps(choice);
    let KnownChoice { account: nccl, wrong, ready: known } = use_nccl_choice(question(&choice));
    let asks_nccl = question(&choice).is_some();
    let algorithms = choice.algorithms();
    let go = {
        let nav = nav.clone();
        Callback::from(move |route: Route| nav.replace(route))
    };
    // On a cluster, the times are those of NCCL's own algorithms.
    let of_cluster = |algorithm: Algorithm| {
        let account = nccl.as_ref().filter(|_| asks_nccl)?;
        Some(on_cluster(account, algorithm, choice.collective))
    };
    let times: Vec<Option<u64>> = (0..algorithms.len())
        .map(|index| match (asks_nccl, of_cluster(algorithms[index]), accounts.of(index)) {
            (_, Some(OnCluster::Takes { ps, .. }), _) => Some(ps),
            (false, _, Some(Ok(account))) => Some(account.cost.time_ps),
            _ => None,
        })
        .collect();
    let ready = accounts.ready() && (known || !asks_nccl);
    let fastest = times.iter().flatten().min().copied().filter(|_| ready);
    let pick = {
        let go = go.clone();
        Callback::from(move |algorithm: Algorithm| {
            let [_, last] = choice.pair;
            let pair = if last == algorithm { choice.pair } else { [last, algorithm] };
            go.emit(GalleryChoice { pair, ..choice }.route());
        })
    };
    let curves = use_memo((choice, (*sweeps).clone()), |(choice, sweeps)| curves(choice, sweeps));
    let winners = winners(&choice, &sweeps);
    let what = format!("{} of {} ranks", choice.collective, choice.world_size);
    html! {
        <div class="algorithms-grid" data-ready={(ready && sweeps.ready()).to_string()} data-test="algorithms">
            <aside class="panel side">
                <h1>{ TITLE }</h1>
                <p class="muted hint">{ "Each card is one way to carry out the collective: drawn, counted and timed from its own schedule." }</p>
                <Fold words={choice.words()}><GalleryForm {choice} route={choice.route()} on_route={go.clone()} /></Fold>
                <div class="against" data-test="against">
                    // One algorithm is not held against itself.
                    if choice.pair[0] != choice.pair[1] {
                        <p>{ versus(choice.pair) }</p>
                        <a class="button primary" href={choice.side_route().to_hash()} data-test="side-by-side">{ "Side by side" }</a>
                    } else if algorithms.len() > 1 {
                        <p>{ "Pick a card to see it beside " }<b>{ choice.pair[0].name() }</b></p>
                    }
                    <a href={Route::below(View::Gallery, "file").to_hash()} data-test="own-schedule">{ "Check a schedule of your own (MSCCL XML)" }</a>
                </div>
                <p class="muted small-print">{ "n ranks · S bytes of the tensor, or of one rank's part · k segments of a pipeline · α the latency of a message · β the bandwidth of a link. A rank sends one message at a time and receives one at a time." }</p>
            </aside>
            <div class="main">
                if let Some(wrong) = &wrong {
                    <p class="sentence bad" role="alert" data-test="cluster-wrong">{ wrong }</p>
                }
                if let (true, Some(account)) = (asks_nccl, &nccl) {
                    <ChoiceBySize {choice} account={account.clone()} />
                } else if choice.machine.cluster().is_some() && !asks_nccl {
                    <p class="sentence" data-test="no-nccl">{ format!("NCCL has no {} of its own: these are the schedules by messages over usual links. A simulation on the cluster counts it as what NCCL does instead (Step).", choice.collective) }</p>
                } else if choice.machine.cluster().is_none() && !choice.collective.is_barrier() {
                    <section class="panel sweep">
                        <header><h2>{ "Time by size" }</h2><span class="muted hint">{ format!("{what}; the dashed line is the size that is chosen") }</span></header>
                        <Chart curves={curves} at={choice.bytes()} words={format!("time of each algorithm by size, {what}")} />
                        <p data-test="winners">{ winners }</p>
                    </section>
                }
                <ul class="cards">
                    { for algorithms.iter().enumerate().map(|(index, &algorithm)| html! {
                        <li key={algorithm.name()}>
                            <AlgorithmCard {choice} {algorithm} account={accounts.of(index).cloned()} on_cluster={of_cluster(algorithm)}
                                           fresh={ready} fastest={fastest.is_some() && times[index] == fastest}
                                           on_pick={pick.clone()} />
                        </li>
                    }) }
                </ul>
            </div>
        </div>
    }
}

fn versus([a, b]: [Algorithm; 2]) -> Html {
    html! { <><b>{ a.name() }</b>{ " against " }<b>{ b.name() }</b></> }
}

fn curves(choice: &GalleryChoice, sweeps: &Answers<Rc<Vec<u64>>>) -> Vec<Curve> {
    let algorithms = choice.algorithms().iter().enumerate();
    let curves = algorithms.filter_map(|(index, algorithm)| {
        let times = sweeps.of(index)?.as_ref().ok()?;
        let bytes = COUNTS.iter().map(|count| count * choice.element_bytes());
        Some(Curve {
            name: algorithm.name().to_owned(),
            points: bytes.zip(times.iter().copied()).collect(),
            dashed: *algorithm == choice.pair[1],
            chosen: choice.pair.contains(algorithm),
            extrapolated: Vec::new(),
        })
    });
    curves.collect()
}

/// The fastest algorithms at a size, with those that take less than a thousandth longer: sizes that
/// do not divide by the ranks make some a few elements slower at one size and not at the next.
fn fastest(times: &[(u64, Algorithm)]) -> Vec<Algorithm> {
    let least = times.iter().map(|(time, _)| *time).min().unwrap_or(0);
    let near = |time: u64| time - least <= least / 1000;
    times.iter().filter(|(time, _)| near(*time)).map(|(_, each)| *each).collect()
}

/// Says in a sentence which algorithm is fastest from which size on.
fn winners(choice: &GalleryChoice, sweeps: &Answers<Rc<Vec<u64>>>) -> String {
    if !sweeps.ready() {
        return "Simulating every size…".to_owned();
    }
    let mut spans: Vec<(u64, u64, Vec<Algorithm>)> = Vec::new();
    for (at, count) in COUNTS.iter().enumerate() {
        let bytes = count * choice.element_bytes();
        let times = choice.algorithms().iter().enumerate().filter_map(|(index, algorithm)| {
            let time = *sweeps.of(index)?.as_ref().ok()?.get(at)?;
            Some((time, *algorithm))
        });
        let best = fastest(&times.collect::<Vec<_>>());
        if best.is_empty() {
            continue;
        }
        match spans.last_mut() {
            Some((_, to, whose)) if *whose == best => *to = bytes,
            _ => spans.push((bytes, bytes, best)),
        }
    }
    let one = spans.len() == 1;
    let words = spans.iter().map(|(from, to, best)| {
        let names: Vec<&str> = best.iter().map(|each| each.name()).collect();
        let names = names.join(", ");
        match (one, from == to) {
            (true, _) => format!("{names} at every size"),
            (_, true) => format!("{names} at {}", explain::bytes(*from)),
            _ => format!("{names} from {} to {}", explain::bytes(*from), explain::bytes(*to)),
        }
    });
    format!("Fastest: {}.", words.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_elements_make_no_winner() {
        use Algorithm::{Direct, Ring};
        assert_eq!(fastest(&[(1_000_900, Ring), (1_000_000, Direct)]), [Ring, Direct]);
        assert_eq!(fastest(&[(1_001_100, Ring), (1_000_000, Direct)]), [Direct]);
        assert!(fastest(&[]).is_empty());
    }
}
