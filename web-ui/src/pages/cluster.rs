//! Clusters: how long a collective takes on a named system, what NCCL picks there, and where it
//! switches.

mod choice;

use super::nccl_choice::{KnownChoice, bands, curves, use_nccl_choice};
use crate::app::use_shared;
use crate::dom;
use crate::explain;
use crate::pages::asked::cannot;
use crate::route::Route;
use crate::ui::{Chart, Fold, Measure};
use choice::{ClusterChoice, ClusterForm};
use lockstep_core::words::counted;
use lockstep_web_protocol::{ClusterAccount, MeasuredPoints};
use std::rc::Rc;
use yew::prelude::*;

const TITLE: &str = "How long it takes on a cluster";

/// A collective on a cluster.
#[component(Cluster)]
pub(crate) fn cluster() -> Html {
    let nav = use_shared().nav;
    let (choice, unmet) = ClusterChoice::read(&nav.route);
    if unmet.is_empty() {
        return html! { <Timed {choice} /> };
    }
    let words = choice.words();
    let go = Callback::from(move |route: Route| nav.replace(route));
    let form = html! { <ClusterForm {choice} gpus={1024} on_route={go} /> };
    cannot(TITLE, unmet, words, form)
}

#[derive(Properties, PartialEq)]
struct TimedProps {
    choice: ClusterChoice,
}

/// A choice that the worker can be asked about.
#[component(Timed)]
fn timed(props: &TimedProps) -> Html {
    let nav = use_shared().nav;
    let choice = &props.choice;
    let KnownChoice { account, wrong, ready } = use_nccl_choice(Some(choice.question()));
    let go = Callback::from(move |route: Route| nav.replace(route));
    let drawn = use_memo(account.clone(), |account| {
        account.as_deref().map(|account| {
            let (times, rates) = curves(account);
            let dots = [&account.measured.times, &account.measured.rates];
            (
                Rc::new(times),
                Rc::new(rates),
                Rc::new(bands(account)),
                dots.map(|it| Rc::new(it.clone())),
            )
        })
    });
    let gpus = account.as_ref().map_or(8, |account| account.gpus_per_node);
    let save = {
        let (account, choice) = (account.clone(), choice.clone());
        Callback::from(move |_: MouseEvent| {
            if let Some(account) = &account {
                let fault = if choice.fault.is_empty() { "" } else { "-fault" };
                let (cluster, collective) = (&account.name, choice.collective);
                let name = format!("{cluster}-{collective}-{}n{fault}.csv", choice.nodes);
                dom::download(&name, account.csv.as_bytes());
            }
        })
    };
    html! {
        <div class="algorithms-grid" data-test="cluster" data-ready={ready.to_string()}>
            <aside class="panel side">
                <h1>{ TITLE }</h1>
                <p class="muted hint">{ "What NCCL picks for every size, and the time that it takes: a model fitted on public tables of nccl-tests." }</p>
                <Fold words={choice.words()}><ClusterForm choice={choice.clone()} {gpus} on_route={go} /></Fold>
                <button onclick={save} disabled={account.is_none()} title="Every size with its time, bandwidths, algorithm, protocol and channels" data-test="cluster-csv">{ "Save as CSV" }</button>
                <p class="muted small-print">{ "On the command line: lockstep time. A plan on a cluster: lockstep sim --cluster. docs/clusters.md says what is modelled and how far off it is." }</p>
            </aside>
            <div class="main">
                if let Some(wrong) = wrong {
                    <p class="sentence bad" role="alert" data-test="cluster-wrong">{ wrong }</p>
                } else if let (Some(account), Some((times, rates, bands, [time_dots, rate_dots]))) = (&account, &*drawn) {
                    <section class="panel sweep">
                        <header><h2>{ "Time by size" }</h2><span class="muted">{ format!("{} among {} ranks on {}{}", choice.collective, account.ranks, account.title, choice.fault_words()) }</span></header>
                        if let Some(taken_for) = &account.taken_for {
                            <p class="notice" data-test="taken-for">{ format!("{taken_for}.") }</p>
                        }
                        if let Some(not_backed) = &account.not_backed {
                            <p class="notice" data-test="extrapolated">{ not_backed }</p>
                        }
                        <Chart curves={times.clone()} bands={bands.clone()} dots={time_dots.clone()} at={choice.bytes} words="time by size, NCCL's choice and each algorithm" />
                        <p data-test="switches">{ &account.switches }</p>
                        { told(&account.measured) }
                    </section>
                    <section class="panel sweep">
                        <header><h2>{ "Bus bandwidth by size" }</h2><span class="muted hint">{ "as nccl-tests defines it" }</span></header>
                        <Chart curves={rates.clone()} bands={bands.clone()} dots={rate_dots.clone()} at={choice.bytes} measure={Measure::Rate} words="bus bandwidth by size" />
                    </section>
                    <section class="panel">
                        <header><h2>{ format!("Why, at {}", explain::bytes(choice.bytes)) }</h2>
                            if account.at.extrapolated { <span class="muted">{ "extrapolated" }</span> }</header>
                        { why(account) }
                    </section>
                    <section class="panel">
                        <header><h2>{ "Where the numbers come from" }</h2></header>
                        <ul class="small-print" data-test="sources">{ for account.sources.iter().map(|source| html! { <li>{ source }</li> }) }</ul>
                    </section>
                } else {
                    <p class="sentence">{ "Working it out…" }</p>
                }
            </div>
        </div>
    }
}

/// The measured tables with their sources, or the sentence that there are none.
fn told(measured: &MeasuredPoints) -> Html {
    let count = measured.tables.len().to_string();
    if measured.tables.is_empty() {
        return html! { <p class="muted small-print" data-test="measured" data-tables={count}>{ &measured.words }</p> };
    }
    html! {
        <details class="small-print" data-test="measured" data-tables={count}>
            <summary>{ &measured.words }</summary>
            <ul>{ for measured.tables.iter().map(|table| html! {
                <li>{ &table.machine }{ " — " }<span class="mono">{ &table.source }</span></li>
            }) }</ul>
        </details>
    }
}

/// The choices that NCCL's tuner weighs at the size.
fn why(account: &ClusterAccount) -> Html {
    if account.weighed.is_empty() {
        return html! { <p data-test="why">{ "Nothing is weighed." }</p> };
    }
    html! {
        <>
        <p class="muted hint">{ format!("NCCL takes what its tuner expects to be fastest; {} are weighed.", counted(account.weighed.len() as u64, "way")) }</p>
        <div class="scroll" tabindex="0"><table class="figures-table" data-test="why">
            <thead><tr><th scope="col">{ "Algorithm" }</th><th scope="col">{ "Protocol" }</th><th scope="col">{ "NCCL expects" }</th><th scope="col">{ "Predicted" }</th></tr></thead>
            <tbody>
                { for account.weighed.iter().enumerate().map(|(at, one)| html! {
                    <tr class={classes!((at == 0).then_some("whole"))}>
                        <th scope="row">{ &one.algorithm }{ if at == 0 { " (picked)" } else { "" } }</th>
                        <td>{ &one.protocol }</td>
                        <td>{ explain::time(one.expected_ps) }</td>
                        <td>{ explain::time(one.predicted_ps) }</td>
                    </tr>
                }) }
            </tbody>
        </table></div>
        </>
    }
}
