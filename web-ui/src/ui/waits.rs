//! The wait-for relation: a graph of ranks for few, sentences for all.

use super::go::{Go, goes};
use crate::explain;
use crate::palette::{rank_fill, rank_ink};
use lockstep_diagnosis::Wait;
use lockstep_web_protocol::Which;
use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;
use yew::prelude::*;

/// More ranks than this are said, not drawn.
const MAX_DRAWN: usize = 16;

/// Properties of [`WaitGraph`].
#[derive(Properties, PartialEq)]
pub(crate) struct WaitGraphProps {
    pub(crate) waits: Vec<Wait>,
    pub(crate) world_size: u32,
    /// Ranks of a node; 0 when there are no nodes.
    #[prop_or_default]
    pub(crate) ranks_per_node: u32,
    /// Whether it is a moment of many, not the end.
    #[prop_or_default]
    pub(crate) now: bool,
    /// A rank goes to its place in the timeline.
    #[prop_or_default]
    pub(crate) on_go: Option<Callback<Go>>,
}

/// The wait-for graph; ranks that wait for each other in a circle are marked.
#[component(WaitGraph)]
pub(crate) fn wait_graph(props: &WaitGraphProps) -> Html {
    if props.waits.is_empty() {
        let nobody = if props.now { "Nobody waits." } else { "Nobody waits at the end." };
        return html! { <p class="muted" data-test="waits">{ nobody }</p> };
    }
    let waits = &props.waits;
    let circle = in_a_circle(waits);
    html! {
        <div class="waits" data-test="waits" data-circle={explain::ranks(circle.iter().copied())}>
            if props.world_size as usize <= MAX_DRAWN { { graph(waits, Ground { ranks: props.world_size.max(1), per_node: props.ranks_per_node }, &circle, props.on_go.as_ref()) } }
            <ul class="sentences">
                { for grouped(waits).into_iter().map(|((call, line, whom), who)| html! {
                    <li>
                        { goes(named(&who), Go { rank: who.first().copied().unwrap_or(0), which: Which::Last }, props.on_go.as_ref()) }
                        { if who.len() == 1 { " waits in " } else { " wait in " } }
                        <code>{ call }</code>
                        if !line.is_empty() { { " at " }<code>{ line }</code> }
                        { match whom.as_slice() {
                            [] if props.now => html! { { "; every member has come" } },
                            [] => html! { { "; every member has come, and it does not complete" } },
                            whom => html! { <>{ " for " }{ goes(named(whom), Go { rank: whom.first().copied().unwrap_or(0), which: Which::Last }, props.on_go.as_ref()) }</> },
                        } }
                    </li>
                }) }
            </ul>
            if !circle.is_empty() {
                <p class="circle">{ format!("Ranks {} wait for each other in a circle: none of them can go on.", explain::ranks(circle.iter().copied())) }</p>
            }
        </div>
    }
}

fn named(ranks: &[u32]) -> String {
    format!(
        "{} {}",
        if ranks.len() == 1 { "rank" } else { "ranks" },
        explain::ranks(ranks.iter().copied())
    )
}

/// The values that ranks share: call, line, and the ranks they wait for.
type Same = (String, String, Vec<u32>);

/// The waits that differ only in who waits.
fn grouped(waits: &[Wait]) -> BTreeMap<Same, Vec<u32>> {
    let mut groups: BTreeMap<Same, Vec<u32>> = BTreeMap::new();
    for wait in waits {
        let seq = wait.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
        let group = if wait.group.desc.is_empty() { &wait.group.name } else { &wait.group.desc };
        let call = format!("{}{seq} of {group}", wait.op);
        let whom = wait.waits_for.iter().map(|rank| rank.0).collect();
        groups
            .entry((call, wait.line.clone().unwrap_or_default(), whom))
            .or_default()
            .push(wait.rank.0);
    }
    groups
}

/// The ranks from which a way through waits leads back to themselves.
fn in_a_circle(waits: &[Wait]) -> BTreeSet<u32> {
    let mut edges: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for wait in waits {
        edges.entry(wait.rank.0).or_default().extend(wait.waits_for.iter().map(|rank| rank.0));
    }
    // A search per rank: worlds are small enough here, and larger ones are cut short.
    let leads_back = |start: u32| {
        let mut seen = BTreeSet::new();
        let mut ahead = vec![start];
        while let Some(rank) = ahead.pop() {
            for next in edges.get(&rank).into_iter().flatten() {
                if *next == start {
                    return true;
                }
                if seen.insert(*next) {
                    ahead.push(*next);
                }
            }
        }
        false
    };
    edges.keys().copied().take(256).filter(|rank| leads_back(*rank)).collect()
}

/// The places of ranks: around, those of a node together.
#[derive(Clone, Copy)]
struct Ground {
    ranks: u32,
    per_node: u32,
}

/// The gap between two nodes, in distances between two of their ranks.
const GAP: f64 = 0.6;

impl Ground {
    /// The nodes; 1 when there are none.
    fn nodes(self) -> u32 {
        if self.per_node == 0 { 1 } else { self.ranks.div_ceil(self.per_node) }
    }

    fn place(self, rank: f64, out: f64) -> (f64, f64) {
        let gap = if self.nodes() > 1 { GAP } else { 0.0 };
        let node = (rank / f64::from(self.per_node.max(1))).floor();
        let around = f64::from(self.ranks) + gap * f64::from(self.nodes());
        let angle = TAU * (0.75 + (rank + gap * node) / around);
        (160.0 + (115.0 + out) * angle.cos(), 140.0 + (105.0 + out) * angle.sin())
    }

    /// The ground of a node, with its name outside.
    fn node(self, node: u32, radius: f64) -> Html {
        let first = node * self.per_node;
        let last = (first + self.per_node).min(self.ranks) - 1;
        // Short ways from rank to rank, by the places between them.
        let stops = (0..=4 * (last - first)).map(|i| f64::from(first) + f64::from(i) / 4.0);
        let ways = stops.map(|at| self.place(at, 0.0)).map(|(x, y)| format!("L{x:.1} {y:.1}"));
        let d = ways.collect::<String>().replacen('L', "M", 1) + "h.01";
        let (x, y) = self.place(f64::from(first + last) / 2.0, radius + 19.0);
        html! {
            <g class="ground" data-test={format!("waits-node-{node}")}>
                <title>{ format!("node {node}: ranks {}", explain::ranks(first..=last)) }</title>
                <path {d} stroke-width={format!("{:.0}", 2.0 * radius + 14.0)} />
                <text x={format!("{x:.1}")} y={format!("{:.1}", y + 4.0)}>{ format!("node {node}") }</text>
            </g>
        }
    }
}

fn graph(
    waits: &[Wait],
    ground: Ground,
    circle: &BTreeSet<u32>,
    on_go: Option<&Callback<Go>>,
) -> Html {
    let n = ground.ranks;
    let place = |rank: u32| ground.place(f64::from(rank), 0.0);
    let radius = if n <= 8 { 18.0 } else { 14.0 };
    let edges = waits.iter().flat_map(|wait| wait.waits_for.iter().map(move |to| (wait, to.0)));
    html! {
        <svg viewBox={if ground.nodes() > 1 { "-24 -20 368 320" } else { "0 0 320 280" }} role="img" aria-label="Who waits for whom, as a graph; the list below says the same">
            <defs>
                <marker id="waits-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                    <path d="M0 0L8 4L0 8z" class="tip" />
                </marker>
                <marker id="circle-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                    <path d="M0 0L8 4L0 8z" class="tip bad" />
                </marker>
            </defs>
            if ground.nodes() > 1 { { for (0..ground.nodes()).map(|node| ground.node(node, radius)) } }
            { for edges.map(|(wait, to)| {
                let ((ax, ay), (bx, by)) = (place(wait.rank.0), place(to));
                let (dx, dy) = (bx - ax, by - ay);
                let long = dx.hypot(dy).max(1.0);
                let (ux, uy) = (dx / long, dy / long);
                let (mx, my) = ((ax + bx) / 2.0 + uy * 16.0, (ay + by) / 2.0 - ux * 16.0);
                let closed = circle.contains(&wait.rank.0) && circle.contains(&to);
                let d = format!(
                    "M{:.1} {:.1}Q{mx:.1} {my:.1} {:.1} {:.1}",
                    ax + ux * (radius + 2.0), ay + uy * (radius + 2.0),
                    bx - ux * (radius + 4.0), by - uy * (radius + 4.0),
                );
                let (class, tip) = if closed { ("edge bad", "url(#circle-tip)") } else { ("edge", "url(#waits-tip)") };
                html! { <path {class} {d} marker-end={tip}><title>{ format!("rank {} waits for rank {to}", wait.rank) }</title></path> }
            }) }
            { for (0..n).map(|rank| {
                let (x, y) = place(rank);
                let waits = waits.iter().any(|wait| wait.rank.0 == rank);
                let go = on_go.map(|on_go| on_go.reform(move |_: MouseEvent| Go { rank, which: Which::Last }));
                let goes = go.is_some().then_some("goes");
                html! {
                    <g class={classes!("node", waits.then_some("waiting"), circle.contains(&rank).then_some("bad"), goes)}
                       transform={format!("translate({x:.1} {y:.1})")} onclick={go} data-test="waits-rank">
                        <circle class="disc" r={radius.to_string()} fill={rank_fill(rank)} />
                        <text fill={rank_ink(rank)} y="5">{ rank }</text>
                    </g>
                }
            }) }
        </svg>
    }
}
