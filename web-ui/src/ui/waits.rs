//! The wait-for relation: ranks in a circle for few, a map of all ranks for many, and the waits by their
//! cause for both.

use super::fold::use_asking;
use super::go::{Go, goes};
use crate::explain;
use crate::sets::set;
use lockstep_core::words::counted;
use lockstep_diagnosis::{Wait, WaitGroup, WaitedCall};
use lockstep_web_protocol::Which;
use std::collections::BTreeSet;
use std::f64::consts::TAU;
use yew::prelude::*;

/// More ranks than this, or more waits, are no graph that can be read, but squares.
const MAX_DRAWN: usize = 16;
const MAX_EDGES: usize = 20;

/// More ranks than this are a map of squares without numbers.
const MAX_NUMBERED: u32 = 64;

/// More ranks than this are told, not drawn.
const MAX_MAPPED: u32 = 4096;

/// More groups than this are counted.
const MAX_GROUPS: usize = 48;

/// Properties of [`WaitGraph`].
#[derive(Properties, PartialEq)]
pub(crate) struct WaitGraphProps {
    pub(crate) waits: Vec<Wait>,
    /// The same by their cause.
    pub(crate) causes: Vec<WaitGroup>,
    pub(crate) world_size: u32,
    /// Ranks of a node; 0 when there are no nodes.
    #[prop_or_default]
    pub(crate) ranks_per_node: u32,
    /// True if it is a moment of many, not the end.
    #[prop_or_default]
    pub(crate) now: bool,
    /// A rank goes to its place in the timeline.
    #[prop_or_default]
    pub(crate) on_go: Option<Callback<Go>>,
}

/// The wait-for graph by cause; culprits and ranks that wait for each other in a circle are red.
#[component(WaitGraph)]
pub(crate) fn wait_graph(props: &WaitGraphProps) -> Html {
    let lit = use_state(|| None::<usize>);
    if use_asking() && !props.now {
        return html! { <p class="muted" data-test="waits">{ "Shown when you have answered." }</p> };
    }
    if props.waits.is_empty() {
        let nobody = if props.now { "Nobody waits." } else { "No recorded call waits at the end." };
        return html! { <p class="muted" data-test="waits">{ nobody }</p> };
    }
    let causes = &props.causes;
    let ranks_that = |is: fn(&WaitGroup) -> bool| -> BTreeSet<u32> {
        let those = causes.iter().filter(|group| is(group));
        set(those.flat_map(|group| &group.ranks).map(|rank| rank.0))
    };
    let circle = ranks_that(|group| group.in_circle);
    let culprits = ranks_that(|group| group.culprits);
    let edges: usize = props.waits.iter().map(|wait| wait.waits_for.len()).sum();
    let ground = Ground { ranks: props.world_size.max(1), per_node: props.ranks_per_node };
    let on_light = {
        let lit = lit.setter();
        Callback::from(move |at: Option<usize>| lit.set(at))
    };
    html! {
        <div class="waits" data-test="waits" data-circle={explain::ranks(circle.iter().copied())} data-groups={causes.len().to_string()}>
            if props.world_size as usize <= MAX_DRAWN && edges <= MAX_EDGES {
                { graph(&props.waits, ground, &Marked { circle: &circle, culprits: &culprits }, props.on_go.as_ref()) }
            } else if props.world_size <= MAX_NUMBERED {
                { numbered(causes, props.world_size, *lit, props.on_go.as_ref()) }
            } else if props.world_size <= MAX_MAPPED {
                { rank_map(causes, props.world_size, *lit, props.on_go.as_ref()) }
            }
            { summary(causes) }
            <ul class="causes">
                { for causes.iter().enumerate().take(MAX_GROUPS).map(|(at, group)| cause(at, group, props, &on_light)) }
            </ul>
            if causes.len() > MAX_GROUPS { <p class="muted">{ format!("{} more groups of ranks wait", causes.len() - MAX_GROUPS) }</p> }
            if !circle.is_empty() {
                <p class="circle">{ format!("Ranks {} wait for each other in a circle: none of them can go on.", few_ranks(&circle.iter().copied().collect::<Vec<_>>())) }</p>
            }
        </div>
    }
}

/// The number of ranks behind each kind of wait, in a sentence.
fn summary(causes: &[WaitGroup]) -> Html {
    let count = |is: &dyn Fn(&WaitGroup) -> bool| -> usize {
        causes.iter().filter(|group| is(group)).map(|group| group.ranks.len()).sum()
    };
    let (direct, queued) = (count(&|group| group.depth == 1), count(&|group| group.depth > 1));
    let roots: Vec<u32> = causes
        .iter()
        .filter(|group| group.depth == 0)
        .flat_map(|group| &group.ranks)
        .map(|rank| rank.0)
        .collect();
    if direct == 0 {
        return html! {};
    }
    let hold = if roots.len() == 1 { "holds" } else { "hold" };
    let queue = match queued {
        0 => String::new(),
        1 => " 1 more rank queues behind those: it waits for a rank that itself cannot go on, and is released with it.".to_owned(),
        n => format!(" {n} more queue behind those: they wait for ranks that themselves cannot go on, and are released with them."),
    };
    let roots = capital(&named(&roots));
    html! { <p class="why" data-test="waits-summary">{ format!("{roots} {hold} up {}.{queue}", counted(direct as u64, "rank")) }</p> }
}

fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

/// A group of ranks that wait alike, below the group that it waits for.
fn cause(
    at: usize,
    group: &WaitGroup,
    props: &WaitGraphProps,
    on_light: &Callback<Option<usize>>,
) -> Html {
    let ranks: Vec<u32> = group.ranks.iter().map(|rank| rank.0).collect();
    let one = ranks.len() == 1;
    let class = class_of(group);
    let go = Go { rank: ranks.first().copied().unwrap_or(0), which: Which::Last };
    let light = |lit: Option<usize>| {
        let on_light = on_light.clone();
        Callback::from(move |_: MouseEvent| on_light.emit(lit))
    };
    let state = match (&group.call, &group.last) {
        (Some(call), _) => {
            let waits = if one { "waits in " } else { "wait in " };
            html! { <>{ waits }{ waited_in(call) }{ match call.all_came {
                true if props.now => "; every member has come",
                true => "; every member has come, and it does not complete",
                false => "",
            } }</> }
        }
        (None, Some(last)) => {
            let does = if one {
                "does not wait; its last call is "
            } else {
                "do not wait; their last call is "
            };
            html! { <>{ does }<code>{ last }</code></> }
        }
        (None, None) if one => html! { "does not wait" },
        (None, None) => html! { "do not wait" },
    };
    let queued = group.cause.filter(|_| group.depth > 1).and_then(|cause| props.causes.get(cause));
    html! {
        <li class={class} style={format!("--depth:{}", group.depth.min(6))} onmouseenter={light(Some(at))} onmouseleave={light(None)}
            data-test="wait-group" data-depth={group.depth.to_string()} data-count={ranks.len().to_string()}>
            <span class="who">
                { goes(capital(&named(&ranks)), go, props.on_go.as_ref()) }
                if ranks.len() > 2 { <span class="count">{ ranks.len() }</span> }
                if group.culprits { <span class="tag">{ if one { "culprit" } else { "culprits" } }</span> }
            </span>
            <span>{ state }</span>
            if let Some(ahead) = queued { <span class="muted">{ format!("queued behind {}", named(&ahead.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>())) }</span> }
        </li>
    }
}

/// `all_reduce #7 of dp at train.py:88`.
fn waited_in(call: &WaitedCall) -> Html {
    let seq = call.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
    let group = match call.groups {
        0 | 1 => format!(" of {}", call.group),
        n => format!(" of {n} groups like {}", call.group),
    };
    html! { <><code>{ format!("{}{seq}", call.op) }</code>{ group }if let Some(line) = &call.line { { " at " }<code>{ line }</code> }</> }
}

fn named(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, few_ranks(ranks))
}

/// Ranks for people; of many that do not follow each other, the first.
fn few_ranks(ranks: &[u32]) -> String {
    const FEW: usize = 8;
    let all = explain::ranks(ranks.iter().copied());
    match all.match_indices(", ").nth(FEW - 1) {
        Some((at, _)) => format!("{}, …", &all[..at]),
        None => all,
    }
}

/// The class of a group's ranks: by whom they wait for.
fn class_of(group: &WaitGroup) -> &'static str {
    match group.depth {
        _ if group.culprits => "culprit",
        0 => "root",
        1 => "direct",
        _ => "queued",
    }
}

/// The classes that are there, as a legend.
fn classes_there(causes: &[WaitGroup]) -> Html {
    let all = [
        ("culprit", "culprits"),
        ("root", "waited for"),
        ("direct", "wait for them"),
        ("queued", "queued behind"),
    ];
    let there = all.into_iter().filter(|(class, _)| causes.iter().any(|of| class_of(of) == *class));
    there.map(|(class, words)| html! { <span><i class={class} />{ words }</span> }).collect()
}

/// All ranks as squares with their numbers: each in the colour of its group's depth.
fn numbered(
    causes: &[WaitGroup],
    world_size: u32,
    lit: Option<usize>,
    on_go: Option<&Callback<Go>>,
) -> Html {
    let of = |rank: u32| {
        causes.iter().position(|group| group.ranks.iter().any(|member| member.0 == rank))
    };
    let cell = |rank: u32| {
        let at = of(rank);
        let class = at.map_or("idle", |at| class_of(&causes[at]));
        let class = classes!("cell", class, (at.is_some() && lit == at).then_some("lit"));
        match on_go {
            None => html! { <li {class}>{ rank }</li> },
            Some(on_go) => {
                let go = on_go.reform(move |_: MouseEvent| Go { rank, which: Which::Last });
                html! { <li><button {class} onclick={go} title={format!("Show rank {rank} in the timeline")} data-test="waits-rank">{ rank }</button></li> }
            }
        }
    };
    html! {
        <figure class="rank-map">
            <ol class="cells" aria-label="The ranks; the list below says the same">{ for (0..world_size).map(cell) }</ol>
            <figcaption class="small-print muted">{ classes_there(causes) }</figcaption>
        </figure>
    }
}

/// All ranks as squares, row by row: each in the colour of its group's depth.
fn rank_map(
    causes: &[WaitGroup],
    world_size: u32,
    lit: Option<usize>,
    on_go: Option<&Callback<Go>>,
) -> Html {
    let across = match world_size {
        0..=64 => 16,
        65..=1024 => 32,
        _ => 64,
    };
    let rows = world_size.div_ceil(across);
    // A stretch of a row, one square a rank.
    let squares = |ranks: &[u32]| -> String {
        ranks
            .iter()
            .map(|rank| format!("M{} {}h.86v.86h-.86z", rank % across, rank / across))
            .collect()
    };
    let all: Vec<u32> = (0..world_size).collect();
    let press = on_go.map(|on_go| {
        let on_go = on_go.clone();
        Callback::from(move |event: MouseEvent| {
            let Some(map) = event
                .target_dyn_into::<web_sys::Element>()
                .and_then(|hit| hit.closest("svg").ok().flatten())
            else {
                return;
            };
            let area = map.get_bounding_client_rect();
            let cell =
                |at: f64, size: f64, count: u32| (at / size.max(1.0) * f64::from(count)) as u32;
            let column = cell(f64::from(event.client_x()) - area.left(), area.width(), across);
            let row = cell(f64::from(event.client_y()) - area.top(), area.height(), rows);
            let rank = row * across + column;
            if column < across && rank < world_size {
                on_go.emit(Go { rank, which: Which::Last });
            }
        })
    });
    html! {
        <figure class="rank-map">
            <svg viewBox={format!("0 0 {across} {rows}")} preserveAspectRatio="none" role="img" aria-label={format!("{world_size} ranks as squares, {across} a row; the list below says the same")} onclick={press} data-test="rank-map">
                <path class="idle" d={squares(&all)} />
                { for causes.iter().enumerate().map(|(at, group)| {
                    let ranks: Vec<u32> = group.ranks.iter().map(|rank| rank.0).collect();
                    let class = class_of(group);
                    html! { <path class={classes!(class, (lit == Some(at)).then_some("lit"))} d={squares(&ranks)}><title>{ capital(&named(&ranks)) }</title></path> }
                }) }
            </svg>
            <figcaption class="small-print muted">{ classes_there(causes) }<span>{ format!("{across} ranks a row") }</span></figcaption>
        </figure>
    }
}

/// Ranks that are drawn red.
struct Marked<'m> {
    circle: &'m BTreeSet<u32>,
    culprits: &'m BTreeSet<u32>,
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
    Marked { circle, culprits }: &Marked<'_>,
    on_go: Option<&Callback<Go>>,
) -> Html {
    let n = ground.ranks;
    let place = |rank: u32| ground.place(f64::from(rank), 0.0);
    let radius = if n <= 8 { 18.0 } else { 14.0 };
    let edges = waits.iter().flat_map(|wait| wait.waits_for.iter().map(move |to| (wait, to.0)));
    html! {
        <svg viewBox={if ground.nodes() > 1 { "-24 -20 368 320" } else { "0 0 320 280" }} role="img" aria-label="The waits between ranks, as a graph; the list below says the same">
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
                let closed = closed || culprits.contains(&to);
                let (class, tip) = if closed { ("edge bad", "url(#circle-tip)") } else { ("edge", "url(#waits-tip)") };
                html! { <path {class} {d} marker-end={tip}><title>{ format!("rank {} waits for rank {to}", wait.rank) }</title></path> }
            }) }
            { for (0..n).map(|rank| {
                let (x, y) = place(rank);
                let waits = waits.iter().any(|wait| wait.rank.0 == rank);
                let go = on_go.map(|on_go| on_go.reform(move |_: MouseEvent| Go { rank, which: Which::Last }));
                let goes = go.is_some().then_some("goes");
                html! {
                    <g class={classes!("node", waits.then_some("waiting"), circle.contains(&rank).then_some("bad"), culprits.contains(&rank).then_some("culprit"), goes)}
                       transform={format!("translate({x:.1} {y:.1})")} onclick={go} data-test="waits-rank">
                        <circle class="disc" r={radius.to_string()} />
                        <text class="number" y="5">{ rank }</text>
                    </g>
                }
            }) }
        </svg>
    }
}
