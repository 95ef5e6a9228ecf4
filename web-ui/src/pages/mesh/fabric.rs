//! The fabric under a mesh: GPUs, their switch, NICs and the network, each link as dark as it is busy
//! in the stretch of time that is chosen.

use crate::explain;
use lockstep_core::words::counted;
use lockstep_web_protocol::{FabricAccount, FabricPart, LoadStretch, MeshAccount};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`FabricView`].
#[derive(Properties, PartialEq)]
pub(super) struct FabricViewProps {
    pub(super) account: Rc<MeshAccount>,
    /// The dimension that the view is about.
    pub(super) dim: usize,
    pub(super) collective: &'static str,
}

/// True of the parts of one kind.
type IsOfKind = fn(FabricPart) -> bool;

/// The kinds of links by name.
const KINDS: [(&str, IsOfKind); 3] = [
    ("GPU links", |part| matches!(part, FabricPart::Gpu { .. })),
    ("NICs", |part| matches!(part, FabricPart::Nic { .. })),
    ("leaf uplinks", |part| matches!(part, FabricPart::Leaf { .. })),
];

/// The fabric, and its loads over a step.
#[component(FabricView)]
pub(super) fn fabric_view(props: &FabricViewProps) -> Html {
    let chosen = use_state(|| None::<usize>);
    let name = |dim: u32| props.account.dims.get(dim as usize).map_or("", |dim| dim.name.as_str());
    {
        let chosen = chosen.setter();
        use_effect_with(props.dim, move |_| chosen.set(None));
    }
    let Some(fabric) = &props.account.fabric else { return html! {} };
    // Without a choice, the stretch of the view's dimension in which links are busiest.
    let busiest = || {
        let busy =
            |stretch: &LoadStretch| stretch.loads.iter().map(|load| u64::from(*load)).sum::<u64>();
        let key = |(at, stretch): &(usize, &LoadStretch)| {
            (stretch.dim as usize == props.dim, busy(stretch), std::cmp::Reverse(*at))
        };
        fabric.stretches.iter().enumerate().max_by_key(key).map(|it| it.0)
    };
    let at = chosen.filter(|at| *at < fabric.stretches.len()).or_else(busiest);
    let shown = at.and_then(|at| fabric.stretches.get(at));
    let end = fabric.stretches.last().map_or(1, |last| last.to_ps.max(1));
    let stretch = |(index, stretch): (usize, &LoadStretch)| {
        let chosen = chosen.setter();
        let onclick = Callback::from(move |_: MouseEvent| chosen.set(Some(index)));
        let long = stretch.to_ps - stretch.from_ps;
        let style = format!("flex-grow:{:.4}", long as f64 / end as f64);
        let words = format!(
            "along {}, {} to {}: {}",
            name(stretch.dim),
            explain::time(stretch.from_ps),
            explain::time(stretch.to_ps),
            loads_in_words(fabric, stretch)
        );
        html! {
            <button {onclick} {style} title={words} aria-pressed={(at == Some(index)).to_string()} data-test={format!("stretch-{index}")}>
                <b>{ name(stretch.dim) }</b><small>{ explain::time(long) }</small>
                { for KINDS.iter().filter(|(_, of)| fabric.links.iter().any(|part| of(*part))).map(|(_, of)| html! {
                    <i style={load_style(most(fabric, stretch, *of).unwrap_or(0))} />
                }) }
            </button>
        }
    };
    let order: Vec<&str> = props.account.dims.iter().rev().map(|dim| dim.name.as_str()).collect();
    html! {
        <section class="panel fabric" aria-label="The fabric" data-test="fabric" data-nodes={fabric.nodes.to_string()}
                 data-links={fabric.links.len().to_string()} data-stretches={fabric.stretches.len().to_string()}>
            <header><h2>{ "The fabric and its loads" }</h2><span class="muted hint">{ format!("{}; {} along {}, one after the other", fabric.title, props.collective, order.join(", then ")) }</span></header>
            <div class="stretches" role="group" aria-label="Stretches of the step">{ for fabric.stretches.iter().enumerate().map(stretch) }</div>
            if let Some(shown) = shown {
                <p data-test="fabric-told">{ format!("Along {}: {}.", name(shown.dim), loads_in_words(fabric, shown)) }</p>
                { drawing(fabric, shown) }
                { numbers(fabric, shown) }
            }
            <p class="muted small-print">{ "The darker a link, the busier; a full one holds up the calls that share it. No public measurement of concurrent collectives backs these loads: they are extrapolations." }</p>
        </section>
    }
}

/// The nodes with their links, under their leaves and the network.
fn drawing(fabric: &FabricAccount, stretch: &LoadStretch) -> Html {
    let link = |part: FabricPart, words: String, class: &'static str, text: String| {
        let load = load_of(fabric, stretch, part);
        let words = format!("{words}: {}", percent(load));
        html! {
            <span class={classes!("link", class, (load > 550).then_some("busy"))} style={load_style(load)} title={words.clone()} aria-label={words} role="img">{ text }</span>
        }
    };
    let nics = |node: u32| {
        fabric.links.iter().filter_map(move |part| match *part {
            FabricPart::Nic { node: of, rail } if of == node => Some(rail),
            _ => None,
        })
    };
    let gpus = |node: u32| {
        fabric.links.iter().filter_map(move |part| match *part {
            FabricPart::Gpu { rank } if rank / fabric.ranks_per_node.max(1) == node => Some(rank),
            _ => None,
        })
    };
    let node = |node: u32| {
        html! {
            <div class="machine" key={node}>
                <small class="muted">{ format!("node {node}") }</small>
                if fabric.network.is_some() {
                    <div class="row-of-links">{ for nics(node).map(|rail| link(FabricPart::Nic { node, rail }, format!("NIC {rail} of node {node}"), "nic", String::new())) }</div>
                }
                <div class="row-of-links">{ for gpus(node).map(|rank| link(FabricPart::Gpu { rank }, format!("links of rank {rank}'s GPU"), "gpu", rank.to_string())) }</div>
                <small class="switch">{ &fabric.inside }</small>
            </div>
        }
    };
    let each = fabric.nodes_per_leaf.unwrap_or(fabric.nodes).max(1);
    let leaves = fabric.nodes.div_ceil(each);
    html! {
        <div class="fabric-drawing">
            if let Some(network) = &fabric.network {
                <div class="spine">{ match fabric.nodes_per_leaf {
                    Some(each) if fabric.planes > 1 => format!(
                        "{} planes, each a spine with leaves of {}; {network}",
                        fabric.planes,
                        counted(each, "node")
                    ),
                    Some(each) => format!("spine; leaves of {}; {network}", counted(each, "node")),
                    None if fabric.planes > 1 => format!("{} planes; {network}", fabric.planes),
                    None => network.clone(),
                } }</div>
            }
            { for (0..leaves).map(|leaf| html! {
                <div class={classes!("leaf", fabric.nodes_per_leaf.is_some().then_some("marked"))} key={leaf}>
                    if fabric.nodes_per_leaf.is_some() {
                        { for (0..fabric.planes).map(|plane| {
                            let words = leaf_words(fabric.planes, leaf, plane);
                            link(FabricPart::Leaf { leaf, plane }, format!("uplinks of {words}"), "uplink", words)
                        }) }
                    }
                    <div class="machines">{ for (leaf * each..((leaf + 1) * each).min(fabric.nodes)).map(node) }</div>
                </div>
            }) }
        </div>
    }
}

/// `leaf 3`, and its plane where there are several.
fn leaf_words(planes: u32, leaf: u32, plane: u32) -> String {
    match planes {
        0 | 1 => format!("leaf {leaf}"),
        _ => format!("leaf {leaf}, plane {plane}"),
    }
}

/// More links than this have no room for their numbers.
const MAX_NUMBERS: usize = 512;

/// The load of each link as a number.
fn numbers(fabric: &FabricAccount, stretch: &LoadStretch) -> Html {
    let name = |part: FabricPart| match part {
        FabricPart::Gpu { rank } => format!("GPU of rank {rank}"),
        FabricPart::Nic { node, rail } => format!("NIC {rail} of node {node}"),
        FabricPart::Leaf { leaf, plane } => {
            format!("uplinks of {}", leaf_words(fabric.planes, leaf, plane))
        }
    };
    let links = fabric.links.iter().zip(&stretch.loads);
    let line = |(part, load): (&FabricPart, &u16)| html! { <li>{ name(*part) }<b>{ format!("{}%", f64::from(*load) / 10.0) }</b></li> };
    html! {
        if fabric.links.len() <= MAX_NUMBERS {
            <details class="link-numbers"><summary>{ "Each link in numbers" }</summary><ul>{ for links.map(line) }</ul></details>
        }
    }
}

fn load_of(fabric: &FabricAccount, stretch: &LoadStretch, part: FabricPart) -> u16 {
    let place = fabric.links.iter().position(|it| *it == part);
    place.and_then(|place| stretch.loads.get(place)).copied().unwrap_or(0)
}

/// The load of the busiest link of a kind; none where there is no such link.
fn most(fabric: &FabricAccount, stretch: &LoadStretch, of: fn(FabricPart) -> bool) -> Option<u16> {
    let links = fabric.links.iter().zip(&stretch.loads);
    links.filter(|(part, _)| of(**part)).map(|(_, load)| *load).max()
}

fn percent(load: u16) -> String {
    match load {
        1..10 => "under 1%".to_owned(),
        _ => format!("{}% busy", load / 10),
    }
}

fn load_style(load: u16) -> String {
    format!("--load:{}%", load / 10)
}

/// `GPU links up to 84% busy, NICs idle`.
fn loads_in_words(fabric: &FabricAccount, stretch: &LoadStretch) -> String {
    let words = KINDS.iter().filter_map(|(name, of)| {
        Some(match most(fabric, stretch, *of)? {
            0 => format!("{name} idle"),
            1000.. => format!("{name} full"),
            load => format!("{name} up to {}", percent(load)),
        })
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_told_by_kind() {
        let fabric = FabricAccount {
            title: String::new(),
            ranks_per_node: 2,
            nodes: 1,
            inside: String::new(),
            network: None,
            nodes_per_leaf: None,
            planes: 1,
            links: vec![
                FabricPart::Gpu { rank: 0 },
                FabricPart::Gpu { rank: 1 },
                FabricPart::Nic { node: 0, rail: 0 },
            ],
            stretches: Vec::new(),
        };
        let told = |loads: &[u16]| {
            let loads = loads.to_vec();
            loads_in_words(&fabric, &LoadStretch { dim: 0, from_ps: 0, to_ps: 1, loads })
        };
        assert_eq!(told(&[120, 845, 0]), "GPU links up to 84% busy, NICs idle");
        assert_eq!(told(&[0, 5, 1000]), "GPU links up to under 1%, NICs full");
        assert_eq!(leaf_words(1, 2, 0), "leaf 2");
        assert_eq!(leaf_words(4, 2, 3), "leaf 2, plane 3");
    }
}
