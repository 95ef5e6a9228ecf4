//! The reason that one of two algorithms is faster, in a sentence and as two bars.

use super::choice::GalleryChoice;
use crate::explain;
use lockstep_sim::Path;
use lockstep_web_protocol::Account;
use yew::prelude::*;

/// The account of the two.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) sentence: String,
    bars: [Bar; 2],
    /// 0 or 1; `None` when both take as long.
    pub(super) faster: Option<usize>,
}

/// One algorithm's time and what it is made of.
#[derive(Clone, Debug, PartialEq)]
struct Bar {
    name: &'static str,
    path: Path,
    words: String,
}

/// The difference between the two of `choice`.
pub(super) fn difference(choice: &GalleryChoice, accounts: [&Account; 2]) -> Told {
    let names = choice.pair.map(|algorithm| algorithm.name());
    let costs = accounts.map(|account| &account.cost);
    let nodes = choice.machine.ranks_per_node() > 0;
    let (sentence, faster) = match choice.pair {
        [a, b] if a == b => (alone(choice), None),
        _ => explain::difference(names, costs, nodes),
    };
    let bars = [0, 1].map(|side| Bar {
        name: names[side],
        path: costs[side].path,
        words: made_of(&costs[side].path, nodes),
    });
    Told { sentence, bars, faster }
}

/// The sentence for one algorithm on both sides.
fn alone(choice: &GalleryChoice) -> String {
    let name = choice.pair[0].name();
    match choice.algorithms().len() {
        1 => format!("{} has one algorithm here, {name}.", choice.collective),
        _ => format!("Both sides are {name}: choose another algorithm for one of them."),
    }
}

/// `77.3 µs = 70 µs latency (14 × 5 µs) + 7.34 µs bytes (179 KiB)`.
fn made_of(path: &Path, nodes: bool) -> String {
    let time = explain::time;
    let mut parts =
        vec![format!("{} latency ({})", time(path.latency_ps()), explain::latencies(path, nodes))];
    if path.transmit_ps() > 0 {
        let volumes = explain::volumes(path, nodes);
        parts.push(format!("{} bytes ({volumes})", time(path.transmit_ps())));
    }
    if path.waiting_ps > 0 {
        parts.push(format!("{} waiting for ports", time(path.waiting_ps)));
    }
    format!("{} = {}", time(path.time_ps()), parts.join(" + "))
}

/// The sentence, and both times as bars of one scale.
pub(super) fn difference_card(Told { sentence, bars, faster }: &Told) -> Html {
    let most = bars.iter().map(|bar| bar.path.time_ps()).max().unwrap_or(1).max(1);
    let share = |ps: u64| format!("width:{:.2}%", 100.0 * ps as f64 / most as f64);
    let faster = faster.map(|side| bars[side].name).unwrap_or_default();
    html! {
        <div class="difference" data-test="difference" data-faster={faster}>
            <p class="why">{ sentence }</p>
            <dl class="bars">
                { for bars.iter().enumerate().map(|(side, bar)| html! {
                    <>
                    <dt>{ bar.name }</dt>
                    <dd data-test={format!("bar-{}", ["a", "b"][side])} data-latency-ps={bar.path.latency_ps().to_string()}
                        data-bytes-ps={bar.path.transmit_ps().to_string()} data-waiting-ps={bar.path.waiting_ps.to_string()}>
                        <span class="bar"><i class="latency" style={share(bar.path.latency_ps())} /><i class="bandwidth" style={share(bar.path.transmit_ps())} /><i class="waiting" style={share(bar.path.waiting_ps)} /></span>
                        <small class="muted">{ bar.words.clone() }</small>
                    </dd>
                    </>
                }) }
            </dl>
            <p class="hint muted">{ "The chain of messages that ends last: " }<i class="key latency" />{ " latency " }<i class="key bandwidth" />{ " bytes on their way " }<i class="key waiting" />{ " waiting for ports that carry other messages" }</p>
        </div>
    }
}
