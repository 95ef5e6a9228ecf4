//! Clusters: how long a collective takes on a named system, what NCCL picks there, and where it
//! switches.

mod choice;
mod measured;

use super::nccl_choice::{KnownChoice, bands, curves, switches, use_nccl_choice};
use crate::app::use_shared;
use crate::dom;
use crate::explain;
use crate::pages::asked::cannot;
use crate::route::Route;
use crate::ui::{Chart, Fold, Measure};
use choice::{ClusterChoice, ClusterForm};
use lockstep_core::words::counted;
use lockstep_web_protocol::ClusterAccount;
use measured::{dots, of_account, told, use_measured};
use std::fmt::Write;
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
            (Rc::new(times), Rc::new(rates), Rc::new(bands(account)))
        })
    });
    let tables = use_measured(account.as_ref().map(|account| account.name.as_str()));
    let measured =
        use_memo((tables, account.clone(), choice.collective), |(tables, account, of)| {
            account.as_deref().map(|account| {
                let tables = of_account(tables, of, account);
                let (times, rates) = dots(&tables, account);
                (Rc::new(times), Rc::new(rates), told(&tables, account))
            })
        });
    let (time_dots, rate_dots, told) = (*measured).clone().unwrap_or_default();
    let gpus = account.as_ref().map_or(8, |account| account.gpus_per_node);
    let save = {
        let (account, choice) = (account.clone(), choice.clone());
        Callback::from(move |_: MouseEvent| {
            if let Some(account) = &account {
                let name = format!("{}-{}-{}n.csv", account.name, choice.collective, choice.nodes);
                dom::download(&name, csv(account, &choice).as_bytes());
            }
        })
    };
    html! {
        <div class="algorithms-grid" data-test="cluster" data-ready={ready.to_string()}>
            <aside class="panel side">
                <h1>{ TITLE }</h1>
                <p class="muted hint">{ "What NCCL picks for every size, and the time that it takes: a model fitted on public tables of nccl-tests." }</p>
                <Fold words={choice.words()}><ClusterForm choice={choice.clone()} {gpus} on_route={go} /></Fold>
                <button class="quiet" onclick={save} disabled={account.is_none()} title="Every size with its time, bandwidths, algorithm, protocol and channels" data-test="cluster-csv">{ "Save as CSV" }</button>
                <p class="muted small-print">{ "On the command line: lockstep time. A plan on a cluster: lockstep sim --cluster. docs/clusters.md says what is modelled and how far off it is." }</p>
            </aside>
            <div class="main">
                if let Some(wrong) = wrong {
                    <p class="sentence bad" role="alert" data-test="cluster-wrong">{ wrong }</p>
                } else if let (Some(account), Some((times, rates, bands))) = (&account, &*drawn) {
                    <section class="panel sweep">
                        <header><h2>{ "Time by size" }</h2><span class="muted hint">{ format!("{} among {} ranks on {}", choice.collective, account.ranks, account.title) }</span></header>
                        if let Some(taken_for) = &account.taken_for {
                            <p class="notice" data-test="taken-for">{ format!("{taken_for}.") }</p>
                        }
                        if account.extrapolated {
                            <p class="notice" data-test="extrapolated">{ "Extrapolated: no measured table of such a machine backs these times." }</p>
                        }
                        <Chart curves={times.clone()} bands={bands.clone()} dots={time_dots} at={choice.bytes} words="time by size, NCCL's choice and each algorithm" />
                        <p data-test="switches">{ switches(&account.bands) }</p>
                        { told }
                    </section>
                    <section class="panel sweep">
                        <header><h2>{ "Bus bandwidth by size" }</h2><span class="muted hint">{ "as nccl-tests defines it" }</span></header>
                        <Chart curves={rates.clone()} bands={bands.clone()} dots={rate_dots} at={choice.bytes} measure={Measure::Rate} words="bus bandwidth by size" />
                    </section>
                    <section class="panel">
                        <header><h2>{ format!("Why, at {}", explain::bytes(choice.bytes)) }</h2></header>
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

/// Every size as a line, below what it is of.
fn csv(account: &ClusterAccount, choice: &ClusterChoice) -> String {
    let mut text = format!(
        "# collective: {}\n# gpus: {}\n# nodes: {}\n# kind: {}\n# predicted{}\n\
         bytes,time_us,algbw_GBps,busbw_GBps,algorithm,protocol,channels\n",
        choice.collective,
        account.ranks,
        choice.nodes,
        account.name,
        if account.extrapolated { ", extrapolated" } else { "" }
    );
    for point in &account.points {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{}",
            point.bytes,
            point.ps as f64 / 1e6,
            point.algorithm_rate as f64 / 1e9,
            point.bus_rate as f64 / 1e9,
            point.algorithm,
            point.protocol,
            point.channels
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_web_protocol::ClusterPoint;

    fn point(bytes: u64, algorithm: &str, protocol: &str) -> ClusterPoint {
        ClusterPoint {
            bytes,
            ps: 1_500_000,
            algorithm_rate: 2_000_000_000,
            bus_rate: 3_500_000_000,
            algorithm: algorithm.into(),
            protocol: protocol.into(),
            channels: 16,
            others: vec![(algorithm.to_owned(), 1_500_000)],
        }
    }

    /// The table that is saved is one that `lockstep time --table` reads.
    #[test]
    fn a_saved_table_is_read_again() {
        let account = ClusterAccount {
            name: "h100x8".into(),
            title: String::new(),
            gpus_per_node: 8,
            per_node: 8,
            nodes: 2,
            ranks: 16,
            taken_for: None,
            sources: Vec::new(),
            extrapolated: true,
            points: vec![point(8, "Ring", "LL"), point(1 << 20, "Ring", "LL")],
            bands: Vec::new(),
            at: point(8, "Ring", "LL"),
            weighed: Vec::new(),
        };
        let choice = ClusterChoice::read(&Route::default()).0;
        let choice = ClusterChoice { nodes: 2, ..choice };
        let table = lockstep_clusters::Table::parse(&csv(&account, &choice)).unwrap();
        assert_eq!((table.gpus, table.nodes, table.kind.as_str()), (16, 2, "h100x8"));
        assert_eq!(table.points, [(8, 1.5), (1 << 20, 1.5)]);
    }
}
