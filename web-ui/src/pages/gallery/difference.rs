//! Why one of two algorithms is faster, in a sentence and as two bars.

use super::choice::GalleryChoice;
use crate::explain;
use crate::protocol::Account;
use lockstep_sim::Topology;
use yew::prelude::*;

/// What is told of the two.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) sentence: String,
    /// Name, latency and bandwidth of each, in picoseconds.
    bars: [Bar; 2],
    /// 0 or 1; `None` when both take as long.
    pub(super) faster: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct Bar {
    name: &'static str,
    latency_ps: u64,
    bandwidth_ps: u64,
    words: String,
}

/// What makes the difference between the two of `choice`.
pub(super) fn difference(choice: &GalleryChoice, accounts: [&Account; 2]) -> Told {
    let names = choice.pair.map(|algorithm| algorithm.name());
    let costs = accounts.map(|account| account.cost);
    let bars = [0, 1].map(|side| Bar {
        name: names[side],
        latency_ps: costs[side].latency_ps,
        bandwidth_ps: costs[side].bandwidth_ps(),
        words: hops(choice.topology, accounts[side]),
    });
    let faster = match costs[0].time_ps.cmp(&costs[1].time_ps) {
        std::cmp::Ordering::Less => Some(0),
        std::cmp::Ordering::Greater => Some(1),
        std::cmp::Ordering::Equal => None,
    };
    let Some(fast) = faster else {
        let time = explain::time(costs[0].time_ps);
        let same = names[0] == names[1];
        let sentence = match same {
            true => format!("Both sides are {}: choose another one.", names[0]),
            false => format!("{} and {} take the same time here, {time}.", names[0], names[1]),
        };
        return Told { sentence, bars, faster };
    };
    let slow = 1 - fast;
    let (quick, late) = (costs[fast], costs[slow]);
    let ratio = late.time_ps as f64 / quick.time_ps.max(1) as f64;
    let mut sentence = match ratio {
        _ if quick.time_ps == 0 => format!("{} wins", names[fast]),
        _ if ratio < 1.1 => format!("{} wins by {:.1}%", names[fast], (ratio - 1.0) * 100.0),
        _ => format!("{} is {ratio:.1} times as fast", names[fast]),
    };
    let latency = late.latency_ps as i128 - quick.latency_ps as i128;
    let bandwidth = late.bandwidth_ps() as i128 - quick.bandwidth_ps() as i128;
    let time = |ps: i128| explain::time(ps.unsigned_abs() as u64);
    let count = |side: usize| costs[side].hops_inside + costs[side].hops_across;
    let hops = format!("{} messages follow one another instead of {}", count(fast), count(slow));
    let sent = accounts.map(|account| {
        explain::bytes(account.tally.most_sent.saturating_mul(choice.element_bytes()))
    });
    let (most_fast, most_slow) = (accounts[fast].tally.most_sent, accounts[slow].tally.most_sent);
    let sends = format!("its busiest rank sends {} instead of {}", sent[fast], sent[slow]);
    let bytes = match most_fast < most_slow {
        true => sends.clone(),
        false => "its bytes wait less for ports and slow links".to_owned(),
    };
    let more = match most_fast > most_slow {
        true => sends,
        false => "its bytes wait more for ports and slow links".to_owned(),
    };
    sentence += &match (latency > 0, bandwidth > 0) {
        (true, true) => format!(
            ": {hops}, which saves {}, and {bytes}, which saves {}.",
            time(latency),
            time(bandwidth)
        ),
        (true, false) if bandwidth == 0 => format!(": {hops}, which saves {}.", time(latency)),
        (true, false) => format!(
            ": {hops}, which saves {}; {more}, which costs {} of that.",
            time(latency),
            time(bandwidth)
        ),
        (false, true) if latency == 0 => format!(": {bytes}, which saves {}.", time(bandwidth)),
        (false, true) => format!(
            ": {bytes}, which saves {}; {} messages follow one another instead of {}, which costs {} of that.",
            time(bandwidth),
            count(fast),
            count(slow),
            time(latency)
        ),
        (false, false) => ".".to_owned(),
    };
    Told { sentence, bars, faster }
}

/// `6 × 5 µs`, by kind of link.
fn hops(topology: Topology, account: &Account) -> String {
    let cost = &account.cost;
    match topology {
        Topology::Uniform(link) => {
            format!("{} × {}", cost.hops_inside, explain::time(link.latency_ps))
        }
        Topology::Nodes { inside, across, .. } => format!(
            "{} × {} inside, {} × {} across",
            cost.hops_inside,
            explain::time(inside.latency_ps),
            cost.hops_across,
            explain::time(across.latency_ps)
        ),
    }
}

/// Properties of [`Difference`].
#[derive(Properties, PartialEq)]
pub(super) struct DifferenceProps {
    pub(super) told: Told,
    pub(super) choice: GalleryChoice,
}

/// The sentence, and both times as bars of one scale.
#[component(Difference)]
pub(super) fn difference_card(props: &DifferenceProps) -> Html {
    let Told { sentence, bars, faster } = &props.told;
    let most = bars.iter().map(|bar| bar.latency_ps + bar.bandwidth_ps).max().unwrap_or(1).max(1);
    let share = |ps: u64| format!("width:{:.2}%", 100.0 * ps as f64 / most as f64);
    let faster = faster.map(|side| bars[side].name).unwrap_or_default();
    html! {
        <div class="difference" data-test="difference" data-faster={faster}>
            <p class="why">{ sentence }</p>
            <dl class="bars">
                { for bars.iter().enumerate().map(|(side, bar)| html! {
                    <>
                    <dt>{ bar.name }</dt>
                    <dd data-test={format!("bar-{}", ["a", "b"][side])} data-latency-ps={bar.latency_ps.to_string()}
                        data-bandwidth-ps={bar.bandwidth_ps.to_string()}>
                        <span class="bar"><i class="latency" style={share(bar.latency_ps)} /><i class="bandwidth" style={share(bar.bandwidth_ps)} /></span>
                        <small class="muted">{ format!("{} = {} latency ({}) + {} bandwidth",
                            explain::time(bar.latency_ps + bar.bandwidth_ps), explain::time(bar.latency_ps), bar.words, explain::time(bar.bandwidth_ps)) }</small>
                    </dd>
                    </>
                }) }
            </dl>
            <p class="hint muted"><i class="key latency" />{ " latency: messages that wait for one another " }<i class="key bandwidth" />{ " bandwidth: bytes through a port, and ports that wait" }</p>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Route, View};
    use lockstep_core::schedule::{Layout, Schedule};
    use lockstep_sim::Cost;

    fn told(count: u64) -> Told {
        let route =
            Route::to(View::Gallery).with("count", count).with("a", "ring").with("b", "tree");
        let choice = GalleryChoice::read(&route);
        let accounts = choice.pair.map(|algorithm| {
            let schedule = Schedule::new(choice.collective, algorithm, choice.world_size).unwrap();
            Account {
                steps: schedule.steps(),
                tally: Layout::new(schedule, count, 4).tally(),
                across_elements: 0,
                cost: Cost::of(&choice.plan(algorithm).unwrap(), choice.topology).unwrap(),
                weave: crate::protocol::Weave::default(),
            }
        });
        difference(&choice, [&accounts[0], &accounts[1]])
    }

    /// Eight ranks, 5 µs, 25 GB/s: 14 latencies against 6, 1.75 tensors against 6.
    #[test]
    fn latency_wins_small_and_bandwidth_large() {
        let small = told(8);
        assert_eq!(small.faster, Some(1));
        assert!(small.sentence.starts_with("tree is 2.3 times as fast: 6 messages"), "{small:?}");
        assert!(small.sentence.contains("instead of 14, which saves 40 µs"), "{small:?}");
        let large = told(1 << 24);
        assert_eq!(large.faster, Some(0));
        assert!(large.sentence.contains("sends 112.0 MiB instead of 192.0 MiB"), "{large:?}");
        assert!(large.sentence.contains("which costs 40"), "{large:?}");
    }
}
