//! Every rank as a cell in its node, coloured by its group.

use crate::palette::{piece_fill, piece_ink};
use lockstep_web_protocol::MeshAccount;
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`Cells`].
#[derive(Properties, PartialEq)]
pub(super) struct CellsProps {
    pub(super) account: Rc<MeshAccount>,
    /// The dimension whose groups give the colours.
    pub(super) dim: usize,
    pub(super) ranks_per_node: u32,
    pub(super) selected: Option<u32>,
    pub(super) on_select: Callback<u32>,
}

/// Nodes, and the ranks in them. Pointing at a rank shows its peers along every dimension.
#[component(Cells)]
pub(super) fn cells(props: &CellsProps) -> Html {
    let account = &props.account;
    let pointed = use_state(|| None::<u32>);
    let shown = pointed.or(props.selected);
    let world = account.coordinates.len() as u32;
    let node = props.ranks_per_node.max(1);
    let leave = {
        let pointed = pointed.clone();
        Callback::from(move |_: PointerEvent| pointed.set(None))
    };
    // Peers of the rank that is shown: along which dimensions.
    let peers: Vec<Option<&[u32]>> = (0..account.dims.len())
        .map(|dim| shown.and_then(|rank| account.group_of(dim, rank)).map(|(_, group)| group))
        .collect();
    let dense = world > 64;
    let columns = node.min(if dense { 8 } else { 4 });
    html! {
        <div class={classes!("nodes", dense.then_some("dense"))} style={format!("--columns:{columns}")} onpointerleave={leave} data-test="cells">
            { for (0..world.div_ceil(node)).map(|index| html! {
                <fieldset class="node-box" key={index}>
                    <legend>{ format!("node {index}") }</legend>
                    { for (index * node..((index + 1) * node).min(world)).map(|rank| {
                        cell(props, rank, shown, &peers, &pointed)
                    }) }
                </fieldset>
            }) }
        </div>
    }
}

fn cell(
    props: &CellsProps,
    rank: u32,
    shown: Option<u32>,
    peers: &[Option<&[u32]>],
    pointed: &UseStateHandle<Option<u32>>,
) -> Html {
    let account = &props.account;
    let group = account.group_of(props.dim, rank).map_or(0, |(index, _)| index as u32);
    let place = account.coordinates.get(rank as usize);
    let place: Vec<String> = account
        .dims
        .iter()
        .zip(place.into_iter().flatten())
        .map(|(dim, at)| format!("{}{at}", dim.name))
        .collect();
    let along: Vec<&str> = peers
        .iter()
        .zip(&account.dims)
        .filter(|(group, _)| {
            shown != Some(rank) && group.is_some_and(|group| group.contains(&rank))
        })
        .map(|(_, dim)| dim.name.as_str())
        .collect();
    let away = shown.is_some() && shown != Some(rank) && along.is_empty();
    let enter = {
        let pointed = pointed.clone();
        Callback::from(move |event: PointerEvent| {
            // A tap chooses; only a mouse points.
            if event.pointer_type() == "mouse" {
                pointed.set(Some(rank));
            }
        })
    };
    let select = props.on_select.reform(move |_: MouseEvent| rank);
    html! {
        <button class={classes!("cell", away.then_some("away"), (shown == Some(rank)).then_some("here"), (!along.is_empty()).then_some("peer"))}
                style={format!("--fill:{};--rank-ink:{}", piece_fill(group), piece_ink(group))}
                onclick={select} onpointerenter={enter} aria-pressed={(props.selected == Some(rank)).to_string()}
                title={format!("rank {rank}: {}", place.join(", "))}
                data-test={format!("cell-{rank}")} data-group={group.to_string()} data-place={place.join(",")} data-peer={along.join(",")}>
            <b>{ rank }</b>
            <small>{ place.join(" ") }</small>
            if !along.is_empty() { <i>{ along.join("+") }</i> }
        </button>
    }
}
