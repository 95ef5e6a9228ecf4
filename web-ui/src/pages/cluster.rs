//! Clusters: how long a collective takes on a named system, what NCCL picks there, and where it
//! switches.

mod choice;

use crate::app::use_shared;
use crate::dom;
use crate::explain;
use crate::pages::asked::cannot;
use crate::route::Route;
use crate::ui::{Chart, Curve, Fold, Measure};
use choice::{ClusterChoice, ClusterForm};
use lockstep_core::words::counted;
use lockstep_web_protocol::{
    CANCELLED, ClusterAccount, ClusterPoint, ClusterQuestion, Request, Response,
};
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
    let form = html! { <ClusterForm {choice} known={Vec::new()} gpus={1024} on_route={go} /> };
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
    let (account, wrong, ready) = use_cluster(choice.question());
    let go = Callback::from(move |route: Route| nav.replace(route));
    let curves = use_memo(account.clone(), |account| account.as_deref().map(curves));
    let (known, gpus) = account
        .as_ref()
        .map_or((Vec::new(), 8), |account| (account.known.clone(), account.gpus_per_node));
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
                <Fold words={choice.words()}><ClusterForm choice={choice.clone()} {known} {gpus} on_route={go} /></Fold>
                <button class="quiet" onclick={save} disabled={account.is_none()} title="Every size with its time, bandwidths, algorithm, protocol and channels" data-test="cluster-csv">{ "Save as CSV" }</button>
                <p class="muted small-print">{ "On the command line: lockstep time. A plan on a cluster: lockstep sim --cluster. docs/clusters.md says what is modelled and how far off it is." }</p>
            </aside>
            <div class="main">
                if let Some(wrong) = wrong {
                    <p class="sentence bad" role="alert" data-test="cluster-wrong">{ wrong }</p>
                } else if let (Some(account), Some((times, rates))) = (&account, &*curves) {
                    <section class="panel sweep">
                        <header><h2>{ "Time by size" }</h2><span class="muted hint">{ format!("{} among {} ranks on {}", choice.collective, account.ranks, account.title) }</span></header>
                        if account.extrapolated {
                            <p class="notice" data-test="extrapolated">{ "Extrapolated: no measured table of such a machine backs these times." }</p>
                        }
                        <Chart curves={times.clone()} at={choice.bytes} words="time by size, NCCL's choice and each algorithm" />
                        <p data-test="switches">{ switches(&account.points) }</p>
                    </section>
                    <section class="panel sweep">
                        <header><h2>{ "Bus bandwidth by size" }</h2><span class="muted hint">{ "as nccl-tests defines it" }</span></header>
                        <Chart curves={rates.clone()} at={choice.bytes} measure={Measure::Rate} words="bus bandwidth by size" />
                    </section>
                    <section class="panel">
                        <header><h2>{ format!("Why, at {}", explain::bytes(choice.bytes)) }</h2></header>
                        { why(account) }
                    </section>
                } else {
                    <p class="sentence">{ "Working it out…" }</p>
                }
            </div>
        </div>
    }
}

/// The last answer, what is wrong with the question, and whether the answer is of what is asked now.
#[hook]
fn use_cluster(question: ClusterQuestion) -> (Option<Rc<ClusterAccount>>, Option<String>, bool) {
    let client = use_shared().client;
    type Found = Result<Rc<ClusterAccount>, String>;
    let known = use_state(|| None::<(ClusterQuestion, Found)>);
    {
        let known = known.setter();
        use_effect_with(question.clone(), move |question| {
            let request = Request::Cluster(Box::new(question.clone()));
            let (asked, answer) = client.ask_with(request, &[], None);
            let question = question.clone();
            wasm_bindgen_futures::spawn_local(async move {
                let found = match answer.await.map(|answered| answered.response) {
                    Ok(Response::Clustered(found)) => Ok(Rc::new(*found)),
                    Ok(_) => return,
                    Err(why) if why == CANCELLED => return,
                    Err(why) => Err(why),
                };
                known.set(Some((question, found)));
            });
            move || drop(asked)
        });
    }
    match &*known {
        None => (None, None, false),
        Some((of, Ok(account))) => (Some(account.clone()), None, *of == question),
        Some((of, Err(why))) => (None, Some(why.clone()), *of == question),
    }
}

type Curves = (Rc<Vec<Curve>>, Rc<Vec<Curve>>);

/// The curves of both charts: NCCL's choice, and beside its time that of each algorithm.
fn curves(account: &ClusterAccount) -> Curves {
    let curve = |name: &str, index: u32, points: Vec<(u64, u64)>| Curve {
        name: name.to_owned(),
        points,
        dashed: index > 0,
        chosen: index == 0,
    };
    let chosen = |of: fn(&ClusterPoint) -> u64| {
        let points = account.points.iter().map(|point| (point.bytes, of(point)));
        curve("NCCL's choice", 0, points.collect())
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in account.points.iter().flat_map(|point| &point.others) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let of_algorithm = |(index, name): (u32, &&str)| {
        let times = account.points.iter().filter_map(|point| {
            let (_, ps) = point.others.iter().find(|(other, _)| other == name)?;
            Some((point.bytes, *ps))
        });
        curve(name, index, times.collect())
    };
    let mut times: Vec<Curve> = (1..).zip(&names).map(of_algorithm).collect();
    // The last is drawn above the others.
    times.push(chosen(|point| point.ps));
    (Rc::new(times), Rc::new(vec![chosen(|point| point.bus_rate)]))
}

/// NCCL's choices by size, in a sentence.
fn switches(points: &[ClusterPoint]) -> String {
    let mut spans: Vec<(u64, u64, String)> = Vec::new();
    for point in points {
        if point.algorithm == "P2P" {
            return "It is made of sends and receives: NCCL has no choice.".to_owned();
        }
        let picked = format!("{} with {}", point.algorithm, point.protocol);
        match spans.last_mut() {
            Some((_, to, whose)) if *whose == picked => *to = point.bytes,
            _ => spans.push((point.bytes, point.bytes, picked)),
        }
    }
    let last = spans.len().saturating_sub(1);
    let words = spans.iter().enumerate().map(|(at, (from, to, picked))| match at {
        0 if last == 0 => format!("{picked} at every size"),
        0 => format!("{picked} up to {}", explain::bytes(*to)),
        at if at == last => format!("{picked} from {}", explain::bytes(*from)),
        _ => format!("{picked} to {}", explain::bytes(*to)),
    });
    format!("NCCL picks {}.", words.collect::<Vec<_>>().join(", then "))
}

/// The choices that NCCL's tuner weighs at the size.
fn why(account: &ClusterAccount) -> Html {
    if account.weighed.is_empty() {
        return html! { <p data-test="why">{ "Nothing is weighed." }</p> };
    }
    html! {
        <>
        <p class="muted hint">{ format!("NCCL takes what its tuner expects to be fastest; {} are weighed.", counted(account.weighed.len() as u64, "way")) }</p>
        <div class="scroll"><table class="figures-table" data-test="why">
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

    #[test]
    fn switching_points_are_told() {
        let points = [
            point(8, "Ring", "LL"),
            point(1 << 20, "Ring", "LL"),
            point(2 << 20, "NVLS", "Simple"),
            point(4 << 20, "NVLS", "Simple"),
        ];
        let told = switches(&points);
        assert_eq!(
            told,
            "NCCL picks Ring with LL up to 1.0 MiB, then NVLS with Simple from 2.0 MiB."
        );
        assert_eq!(switches(&points[2..]), "NCCL picks NVLS with Simple at every size.");
    }

    /// The table that is saved is one that `lockstep time --table` reads.
    #[test]
    fn a_saved_table_is_read_again() {
        let account = ClusterAccount {
            known: Vec::new(),
            name: "h100x8".into(),
            title: String::new(),
            gpus_per_node: 8,
            per_node: 8,
            ranks: 16,
            extrapolated: true,
            points: vec![point(8, "Ring", "LL"), point(1 << 20, "Ring", "LL")],
            weighed: Vec::new(),
        };
        let choice = ClusterChoice::read(&Route::default()).0;
        let choice = ClusterChoice { nodes: 2, ..choice };
        let table = lockstep_clusters::Table::parse(&csv(&account, &choice)).unwrap();
        assert_eq!((table.gpus, table.nodes, table.kind.as_str()), (16, 2, "h100x8"));
        assert_eq!(table.points, [(8, 1.5), (1 << 20, 1.5)]);
    }
}
