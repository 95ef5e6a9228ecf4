//! Ranks on a ring, or as a tree where their messages go along one, and the messages between them: for as
//! many as can be told apart there.

use super::canvas::use_size;
use super::messages::MessagesProps;
use super::{Parents, tree};
use crate::dom::when;
use crate::explain;
use crate::palette::{piece_fill, piece_ink};
use lockstep_core::schedule::{Buffer, Slice};
use lockstep_core::words::counted;
use lockstep_sim::view::{Doing, MessageView};
use std::f64::consts::TAU;
use yew::prelude::*;

/// The shorter side of the drawing, in its own units.
const SIDE: f64 = 400.0;

/// The longer side is at most so many times the shorter one.
const LONGEST: f64 = 2.2;

/// Ranks on a ring or as a tree, and the messages between them, in all of the room that there is.
#[component(Ring)]
pub(crate) fn ring(props: &MessagesProps) -> Html {
    let view = &props.view;
    let n = view.ranks.len();
    let svg = use_node_ref();
    let (width, height) = use_size(&svg);
    let aspect = match width > 0.0 && height > 0.0 {
        true => (width / height).clamp(1.0 / LONGEST, LONGEST),
        false => 1.0,
    };
    let (wide, high) = (SIDE * aspect.max(1.0), SIDE * (1.0 / aspect).max(1.0));
    let of_all = |trees: &&Vec<Parents>| trees.iter().all(|parents| parents.len() == n);
    let trees = props.trees.as_deref().filter(of_all).map_or(&[][..], Vec::as_slice);
    // Two trees share their ranks' places: those of the first.
    let spots = trees.first().map(|parents| tree::places(parents));
    let all = Places {
        ranks: n,
        switches: props.switches as usize,
        per_node: props.ranks_per_node as usize,
        wide,
        high,
        spots: spots.as_deref(),
    };
    let node = node_radius(n);
    let ranks = match all.nodes() {
        1 => counted(n, "rank"),
        nodes => format!("{n} ranks in {nodes} nodes"),
    };
    let words = format!("{ranks}, {} on the way", counted(view.messages.len(), "message"));
    html! {
        <svg ref={svg} class="ring" viewBox={format!("0 0 {wide:.0} {high:.0}")} role="group" aria-label={words}
             data-test="ring" data-messages={view.messages.len().to_string()} data-nodes={all.nodes().to_string()} data-trees={trees.len().to_string()}>
            <defs>
                <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                    <path d="M0 0L8 4L0 8z" class="tip" />
                </marker>
            </defs>
            if trees.is_empty() {
                { orbit(all) }
            } else {
                { for trees.iter().enumerate().map(|(at, parents)| branches(parents, at, all)) }
            }
            if all.nodes() > 1 && trees.is_empty() {
                { for (0..all.nodes()).map(|each| node_at(all, each, node)) }
            }
            { for (0..all.switches).map(|switch| trunks(all, switch)) }
            { for view.messages.iter().map(|message| way(message, all, node)) }
            { for (0..all.switches).map(|switch| switch_at(all, switch, node)) }
            { for (0..n).map(|rank| place(props, rank, all, node)) }
            // Above the ranks, and beside them: what a message carries is never hidden.
            { for view.messages.iter().map(|message| packet(message, all, node, props.time_ps, view.messages.len())) }
        </svg>
    }
}

fn node_radius(n: usize) -> f64 {
    if n <= 8 { 24.0 } else { 17.0 }
}

/// The numbers of ranks and switches to be placed, and the room.
#[derive(Clone, Copy)]
struct Places<'p> {
    ranks: usize,
    switches: usize,
    /// Ranks of a node; 0 when there are no nodes.
    per_node: usize,
    wide: f64,
    high: f64,
    /// Of a tree: the ranks' places, in shares of the room.
    spots: Option<&'p [(f64, f64)]>,
}

/// The ring on which the ranks stand.
fn orbit(all: Places<'_>) -> Html {
    let (rx, ry) = all.radii();
    html! { <ellipse class="orbit" cx={format!("{:.1}", all.wide / 2.0)} cy={format!("{:.1}", all.high / 2.0)} rx={format!("{rx:.1}")} ry={format!("{ry:.1}")} /> }
}

/// The edges of a tree; those of a second one are dashed.
fn branches(parents: &[Option<u32>], at: usize, all: Places<'_>) -> Html {
    let ways = parents.iter().enumerate().filter_map(|(child, parent)| {
        let (ax, ay) = centre(child, all);
        let (bx, by) = centre((*parent)? as usize, all);
        Some(format!("M{ax:.1} {ay:.1}L{bx:.1} {by:.1}"))
    });
    html! { <path class={classes!("trunk", (at > 0).then_some("second"))} d={ways.collect::<String>()} data-test="branches" /> }
}

/// The gap between two nodes, in distances between two of their ranks.
const GAP: f64 = 0.7;

impl Places<'_> {
    /// The nodes; one when there are none.
    fn nodes(self) -> usize {
        match self.per_node {
            0 => 1,
            ranks => self.ranks.div_ceil(ranks).max(1),
        }
    }

    /// The radii of the ring.
    fn radii(self) -> (f64, f64) {
        let around = node_radius(self.ranks) + if self.nodes() > 1 { 44.0 } else { 14.0 };
        // Two ranks side by side need no more than the way between them.
        let most = if self.ranks <= 2 { 150.0 } else { f64::MAX };
        // Names of nodes are wider than high.
        let beside = if self.nodes() > 1 { around + 16.0 } else { around };
        ((self.wide / 2.0 - beside).min(most), self.high / 2.0 - around)
    }

    /// A place at an angle, on the ring or beside it: `out` units outside of it.
    fn on_ring(self, angle: f64, out: f64) -> (f64, f64) {
        let (rx, ry) = self.radii();
        (self.wide / 2.0 + (rx + out) * angle.cos(), self.high / 2.0 + (ry + out) * angle.sin())
    }

    /// At which angle a rank stands, or what is between two of them.
    fn angle(self, rank: f64) -> f64 {
        // Two ranks stand side by side; more begin at the top and go clockwise.
        let begin = if self.ranks == 2 { 0.5 } else { 0.75 };
        let gaps = if self.nodes() > 1 { GAP } else { 0.0 };
        let node = (rank / self.per_node.max(1) as f64).floor();
        let around = self.ranks as f64 + gaps * self.nodes() as f64;
        TAU * (begin + (rank + gaps * node) / around.max(1.0))
    }

    /// The ranks or switches that a switch joins.
    fn reach(self, switch: usize) -> Reach {
        match self.nodes() {
            1 => Reach::Node(0),
            // A tree of switches has a spine above the leaves; NVLink's are in their nodes only.
            nodes if switch == nodes => Reach::Spine,
            _ => Reach::Node(switch),
        }
    }

    /// The ranks of a node: the first and the last.
    fn of_node(self, node: usize) -> (usize, usize) {
        if self.nodes() == 1 {
            return (0, self.ranks.saturating_sub(1));
        }
        let first = node * self.per_node;
        (first, (first + self.per_node).min(self.ranks).saturating_sub(1))
    }
}

/// The things that a switch joins: the ranks of a node, or the switches of all nodes.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    Node(usize),
    Spine,
}

/// The ground on which the ranks of a node stand.
fn node_at(all: Places<'_>, node: usize, radius: f64) -> Html {
    let (first, last) = all.of_node(node);
    let (from, to) = (all.angle(first as f64), all.angle(last as f64));
    let ((ax, ay), (bx, by)) = (all.on_ring(from, 0.0), all.on_ring(to, 0.0));
    let (rx, ry) = all.radii();
    let long = u8::from(to - from > TAU / 2.0);
    // A node of one rank is a dot, which an arc of no length is not.
    let way = match first == last {
        true => format!("M{ax:.1} {ay:.1}h.01"),
        false => format!("M{ax:.1} {ay:.1}A{rx:.1} {ry:.1} 0 {long} 1 {bx:.1} {by:.1}"),
    };
    let words = format!("node {node}: ranks {first} to {last}");
    // Outside of the circle, where no message passes; beside it the name begins or ends there.
    let angle = (from + to) / 2.0;
    let (x, y) = all.on_ring(angle, radius + 16.0);
    let anchor = match angle.cos() {
        right if right > 0.4 => "start",
        left if left < -0.4 => "end",
        _ => "middle",
    };
    html! {
        <g class="ground" data-test={format!("ground-{node}")}>
            <title>{ words }</title>
            <path d={way} stroke-width={format!("{:.0}", 2.0 * radius + 18.0)} />
            if all.nodes() <= MAX_NAMED { <text x={format!("{x:.1}")} y={format!("{:.1}", y + 4.0)} style={format!("text-anchor:{anchor}")}>{ format!("node {node}") }</text> }
        </g>
    }
}

/// More nodes than this have no room for their names.
const MAX_NAMED: usize = 8;

/// Switches of nodes stand at this share of the way from the middle to their ranks.
const INNER: f64 = 0.54;

/// The place of a rank, or of a switch behind the ranks.
fn centre(index: usize, all: Places<'_>) -> (f64, f64) {
    let n = all.ranks;
    let middle = (all.wide / 2.0, all.high / 2.0);
    if index < n {
        let Some((x, y)) = all.spots.and_then(|spots| spots.get(index)) else {
            return all.on_ring(all.angle(index as f64), 0.0);
        };
        let around = node_radius(n) + 14.0;
        return (x * all.wide, around + y * (all.high - 2.0 * around));
    }
    match all.reach(index - n) {
        // In front of its ranks; in the middle of them if they are all there are.
        Reach::Node(node) if all.nodes() > 1 => {
            let (first, last) = all.of_node(node);
            let angle = (all.angle(first as f64) + all.angle(last as f64)) / 2.0;
            let (x, y) = all.on_ring(angle, 0.0);
            (middle.0 + (x - middle.0) * INNER, middle.1 + (y - middle.1) * INNER)
        }
        Reach::Node(_) | Reach::Spine => middle,
    }
}

/// The cables of a switch: to the ranks of its node, or from the spine to the others.
fn trunks(all: Places<'_>, switch: usize) -> Html {
    let (x, y) = centre(all.ranks + switch, all);
    let ends: Vec<usize> = match all.reach(switch) {
        Reach::Node(node) => {
            let (first, last) = all.of_node(node);
            (first..=last).collect()
        }
        Reach::Spine => (all.ranks..all.ranks + switch).collect(),
    };
    let ways = ends.into_iter().map(|end| {
        let (to_x, to_y) = centre(end, all);
        format!("M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}")
    });
    html! { <path class="trunk" d={ways.collect::<String>()} /> }
}

fn switch_at(all: Places<'_>, switch: usize, node: f64) -> Html {
    let (x, y) = centre(all.ranks + switch, all);
    let (label, words) = match all.reach(switch) {
        Reach::Spine => ("spine", "the spine: the switch above the nodes' switches".to_owned()),
        Reach::Node(_) if all.nodes() == 1 => {
            ("switch", "the switch that joins all ranks".to_owned())
        }
        Reach::Node(node) => ("switch", format!("the switch of node {node}")),
    };
    let (wide, high) = (if node > 20.0 { 56.0 } else { 50.0 }, 22.0);
    html! {
        <g class="switch" transform={format!("translate({x:.1} {y:.1})")} data-test={format!("switch-{switch}")}
           data-x={format!("{x:.0}")} data-y={format!("{y:.0}")}>
            <title>{ words }</title>
            <rect x={format!("{:.1}", -wide / 2.0)} y={format!("{:.1}", -high / 2.0)} width={wide.to_string()} height={high.to_string()} rx="4" />
            <text y="4">{ label }</text>
        </g>
    }
}

/// The way of a message: from the edge of one node to that of the other, bent to its left so that
/// messages in opposite directions do not lie on each other. What is `tag` wide and high stays beside both.
fn bend(message: &MessageView, all: Places<'_>, node: f64, tag: (f64, f64)) -> [(f64, f64); 3] {
    let from = centre(message.from.index(), all);
    let to = centre(message.to.index(), all);
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    // Between ranks, around the switches that stand in the way.
    let ranks = message.from.index().max(message.to.index()) < all.ranks;
    let bow = match all.switches > 0 && ranks {
        true => length * 0.3,
        false => (length * 0.12).min(28.0),
    };
    let middle =
        ((from.0 + to.0) / 2.0 + dy / length * bow, (from.1 + to.1) / 2.0 - dx / length * bow);
    let edge = |at: (f64, f64), distance: f64| {
        let (x, y) = (middle.0 - at.0, middle.1 - at.1);
        let long = x.hypot(y).max(1.0);
        let (x, y) = (x / long, y / long);
        // No further than half of the way.
        let beside = (tag.0 * x.abs() + tag.1 * y.abs()) / 2.0;
        let out = (distance + beside).min(long * 0.95);
        (at.0 + x * out, at.1 + y * out)
    };
    [edge(from, node + 2.0), middle, edge(to, node + 4.0)]
}

fn way(message: &MessageView, all: Places<'_>, node: f64) -> Html {
    let [(ax, ay), (bx, by), (cx, cy)] = bend(message, all, node, (0.0, 0.0));
    html! { <path class="way" d={format!("M{ax:.1} {ay:.1}Q{bx:.1} {by:.1} {cx:.1} {cy:.1}")} marker-end="url(#tip)" /> }
}

fn packet(
    message: &MessageView,
    all: Places<'_>,
    node: f64,
    time_ps: u64,
    messages: usize,
) -> Html {
    let chunk = message.slice.map_or(message.from.0, |slice| match slice.buffer {
        // A rank's own input, and sums on their way in scratch, have the colour of who sends them.
        Buffer::Scratch | Buffer::Input => message.from.0,
        Buffer::Output => slice.chunk,
    });
    let told = label(message.slice);
    // Among many ranks a run of chunks is wider than the way between two of them: its colour and
    // its title say what it is.
    let crowded = messages > 40 || (all.ranks > 8 && told.chars().count() > 3);
    let label = if crowded { String::new() } else { told.clone() };
    let (wide, high) =
        if crowded { (8.0, 8.0) } else { (12.0 + 7.0 * label.chars().count() as f64, 18.0) };
    let way = bend(message, all, node, (wide, high));
    let passed = time_ps.saturating_sub(message.departs_ps) as f64;
    let whole = message.arrives_ps.saturating_sub(message.departs_ps).max(1) as f64;
    let t = (passed / whole).clamp(0.0, 1.0);
    let along = |i: fn((f64, f64)) -> f64| {
        let [a, b, c] = way.map(i);
        (1.0 - t) * (1.0 - t) * a + 2.0 * t * (1.0 - t) * b + t * t * c
    };
    let (x, y) = (along(|p| p.0), along(|p| p.1));
    let end = |index: usize| match index.checked_sub(all.ranks).map(|switch| all.reach(switch)) {
        None => format!("rank {index}"),
        Some(Reach::Spine) => "the spine".to_owned(),
        Some(Reach::Node(_)) if all.nodes() == 1 => "the switch".to_owned(),
        Some(Reach::Node(node)) => format!("the switch of node {node}"),
    };
    let title = format!(
        "{} to {}: {}, {}",
        end(message.from.index()),
        end(message.to.index()),
        told,
        explain::bytes(message.bytes)
    );
    html! {
        <g class="packet" transform={format!("translate({x:.1} {y:.1})")}
           data-test="message" data-from={message.from.to_string()} data-to={message.to.to_string()}>
            <title>{ title }</title>
            <rect x={format!("{:.1}", -wide / 2.0)} y={format!("{:.1}", -high / 2.0)} width={format!("{wide:.1}")}
                  height={format!("{high:.1}")} rx="3" fill={piece_fill(chunk)} />
            <text fill={piece_ink(chunk)} y="4">{ label }</text>
        </g>
    }
}

/// `c3`, or `c0–3` for a run of chunks; `s0` for a sum in scratch memory.
fn label(slice: Option<Slice>) -> String {
    match slice {
        Some(Slice { buffer: Buffer::Scratch, chunk, .. }) => format!("s{chunk}"),
        Some(Slice { chunk, chunks, .. }) if chunks > 1 => {
            format!("c{chunk}–{}", chunk + chunks - 1)
        }
        Some(Slice { chunk, .. }) => format!("c{chunk}"),
        None => "msg".to_owned(),
    }
}

fn place(props: &MessagesProps, rank: usize, all: Places<'_>, node: f64) -> Html {
    let (x, y) = centre(rank, all);
    let state = &props.view.ranks[rank];
    let (class, words) = match state.doing {
        Doing::Running => ("running", "running"),
        Doing::Busy => ("busy", "busy"),
        Doing::Stopped => ("died", "stopped"),
        Doing::Waiting { .. } => ("waiting", "in its call"),
        Doing::Synchronizing => ("waiting", "in synchronize"),
        Doing::Draining => ("waiting", "draining"),
        Doing::Finished => ("finished", "finished"),
        Doing::Died => ("died", "dead"),
    };
    // The progress of the rank's call, around its node.
    let call = state.calls.last();
    let share = call.map_or(0.0, |call| {
        f64::from(call.round.passed(call.rounds)) / f64::from(call.rounds.max(1))
    });
    let around = TAU * (node + 4.0);
    let rank = rank as u32;
    let selected = rank == props.selected;
    let select = props.on_select.reform(move |_: MouseEvent| rank);
    let press = when(&props.on_select, move |event: KeyboardEvent| {
        if !matches!(event.key().as_str(), "Enter" | " ") {
            return None;
        }
        // Space would play.
        event.prevent_default();
        Some(rank)
    });
    html! {
        <g class={classes!("node", class, selected.then_some("selected"))} onclick={select} onkeydown={press} tabindex="0" role="button"
           aria-label={format!("rank {rank}, {words}")} transform={format!("translate({x:.1} {y:.1})")}
           data-test={format!("node-{rank}")}>
            <circle class="track" r={format!("{:.1}", node + 4.0)} />
            <circle class="share" r={format!("{:.1}", node + 4.0)} transform="rotate(-90)"
                    stroke-dasharray={format!("{:.1} {around:.1}", around * share)} />
            <circle class="disc" r={node.to_string()} />
            <text class="number" y="5">{ rank }</text>
        </g>
    }
}
