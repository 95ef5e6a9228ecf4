//! The links between the ranks: every pair alike, or nodes with faster links inside than between them.

use super::asked::Asked;
use crate::route::Route;
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_sim::{Link, Topology};
use yew::prelude::*;

const PS_PER_NS: u64 = 1000;
const BYTES_PER_GB: u64 = 1_000_000_000;

/// Latencies that a form takes, in nanoseconds.
const LATENCY_NS: (u64, u64) = (0, 10_000_000);
/// Bandwidths that a form takes, in GB/s.
const GB_PER_SECOND: (u64, u64) = (1, 10_000);

/// Ranks of a node that a form takes; 0 for no nodes.
const NODE: (u64, u64) = (0, 65_536);

/// The topology in words of an address: `node=8&latency=2000`.
///
/// # Errors
/// With what is wrong in them.
pub(crate) fn written(words: &str) -> Result<Topology, String> {
    let route = Route::parse(&format!("#/?{words}"));
    let mut reading = Asked::new(&route);
    let topology = asked(&mut reading);
    match reading.unmet.first() {
        Some(unmet) => Err(format!("{}: {}", unmet.asked, unmet.why)),
        None => Ok(topology),
    }
}

/// The topology in an address; what it does not say is the default, and what it says wrongly is
/// refused.
pub(super) fn asked(asked: &mut Asked<'_>) -> Topology {
    let across = link(asked, ["latency", "bandwidth"], Link::DEFAULT);
    let why = "A node has up to 65,536 ranks; 0 means that every pair of ranks is alike.";
    match asked.number("node", NODE, 0, why) {
        0 => Topology::Uniform(across),
        ranks => Topology::Nodes {
            ranks_per_node: ranks as u32,
            inside: link(asked, ["latency_in", "bandwidth_in"], Link::NVLINK),
            across,
        },
    }
}

fn link(asked: &mut Asked<'_>, [latency, bandwidth]: [&str; 2], default: Link) -> Link {
    let (ns, gb) = (default.latency_ps / PS_PER_NS, default.bytes_per_second / BYTES_PER_GB);
    let ns = match asked.text(latency) {
        None => default.latency_ps,
        Some(_) => {
            let why = "A latency has up to 10 ms, in nanoseconds.";
            asked.number(latency, LATENCY_NS, ns, why) * PS_PER_NS
        }
    };
    let bytes_per_second = match asked.text(bandwidth) {
        None => default.bytes_per_second,
        Some(_) => {
            let why = "A link carries 1 to 10,000 GB/s.";
            asked.number(bandwidth, GB_PER_SECOND, gb, why) * BYTES_PER_GB
        }
    };
    Link { latency_ps: ns, bytes_per_second }
}

/// `route` with the topology in it; a default link needs no words.
pub(super) fn write(route: Route, topology: Topology) -> Route {
    let link = |route: Route, latency: &str, bandwidth: &str, link: Link, default: Link| {
        if link == default {
            return route;
        }
        route
            .with(latency, link.latency_ps / PS_PER_NS)
            .with(bandwidth, link.bytes_per_second / BYTES_PER_GB)
    };
    let pair = |route, pair| link(route, "latency", "bandwidth", pair, Link::DEFAULT);
    match topology {
        Topology::Uniform(every) => pair(route, every),
        // No page makes one: it is measured, on the command line.
        Topology::SharedMemory(machine) => pair(route, machine.as_link()),
        Topology::Nodes { ranks_per_node, inside, across } => {
            let route = pair(route, across);
            link(route, "latency_in", "bandwidth_in", inside, Link::NVLINK)
                .with("node", ranks_per_node)
        }
    }
}

/// Properties of [`TopologyFields`].
#[derive(Properties, PartialEq)]
pub(super) struct TopologyFieldsProps {
    pub(super) topology: Topology,
    /// The address of the whole choice.
    pub(super) route: Route,
    pub(super) world_size: u32,
    pub(super) on_route: Callback<Route>,
    /// Whether there must be nodes.
    #[prop_or_default]
    pub(super) nodes_only: bool,
    /// The place of the links' numbers.
    #[prop_or_default]
    pub(super) links: Links,
}

/// The place of the links' numbers in a form.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Links {
    /// Among the other fields.
    #[default]
    Open,
    /// Folded away under what they are.
    Folded,
    /// Nowhere: only who shares a node is chosen.
    Absent,
}

/// The fields of a form that choose the topology.
#[component(TopologyFields)]
pub(super) fn topology_fields(props: &TopologyFieldsProps) -> Html {
    let number = |name: &'static str| {
        let route = props.route.clone();
        props.on_route.reform(move |value: u64| route.clone().with(name, value))
    };
    let shape = {
        let (route, topology) = (props.route.clone(), props.topology);
        let half = (props.world_size / 2).clamp(1, 8);
        props.on_route.reform(move |shape: String| match (shape.as_str(), topology) {
            ("nodes", Topology::Uniform(across)) => {
                let nodes = Topology::Nodes { ranks_per_node: half, inside: Link::NVLINK, across };
                write(route.clone(), nodes)
            }
            ("uniform", _) => route.clone().without("node"),
            _ => route.clone(),
        })
    };
    // A program may name its machines itself.
    let alike = if props.links == Links::Absent { "as it says" } else { "every pair alike" };
    let shapes = [("uniform", alike), ("nodes", "nodes")];
    let shapes = shapes.map(|(value, label)| Choice::new(value, label)).to_vec();
    let ns = |link: Link| link.latency_ps / PS_PER_NS;
    let gb = |link: Link| link.bytes_per_second / BYTES_PER_GB;
    let (value, inside, across) = match props.topology {
        Topology::Uniform(link) => ("uniform", None, link),
        Topology::SharedMemory(machine) => ("uniform", None, machine.as_link()),
        Topology::Nodes { inside, across, .. } => ("nodes", Some(inside), across),
    };
    let (latency, bandwidth) = match inside {
        None => ("Latency (ns)", "Bandwidth (GB/s)"),
        Some(_) => ("Latency across (ns)", "Bandwidth across (GB/s)"),
    };
    let numbers = html! {
        <>
        if let Some(inside) = inside {
            <NumberField name="latency_in" label="Latency inside (ns)" value={ns(inside)} min={LATENCY_NS.0} max={LATENCY_NS.1} on_choose={number("latency_in")} />
            <NumberField name="bandwidth_in" label="Bandwidth inside (GB/s)" value={gb(inside)} min={GB_PER_SECOND.0} max={GB_PER_SECOND.1} on_choose={number("bandwidth_in")} />
        }
        <NumberField name="latency" label={latency} value={ns(across)} min={LATENCY_NS.0} max={LATENCY_NS.1} on_choose={number("latency")} />
        <NumberField name="bandwidth" label={bandwidth} value={gb(across)} min={GB_PER_SECOND.0} max={GB_PER_SECOND.1} on_choose={number("bandwidth")} />
        </>
    };
    html! {
        <>
        if !props.nodes_only {
            <SelectField name="topology" label="Network" {value} choices={shapes} on_choose={shape} />
        }
        if inside.is_some() {
            <NumberField name="node" label="Ranks a node" value={u64::from(props.topology.ranks_per_node())}
                         min={1} max={u64::from(props.world_size)} on_choose={number("node")} />
        }
        { match props.links {
            Links::Open => numbers,
            Links::Absent => html! {},
            Links::Folded => html! {
                <details class="links" data-test="links">
                    <summary>{ "Links: " }{ props.topology.to_string() }</summary>
                    <div>{ numbers }</div>
                </details>
            },
        } }
        </>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::View;

    /// The topology in an address; what it does not say, or says wrongly, is the default.
    fn read(route: &Route) -> Topology {
        asked(&mut Asked::new(route))
    }

    #[test]
    fn an_address_holds_the_whole_topology() {
        let here = || Route::to(View::Gallery);
        assert_eq!(read(&here()), Topology::default());
        let inside = Link { latency_ps: 7_000, bytes_per_second: 900 * BYTES_PER_GB };
        let across = Link { latency_ps: 9_000_000, bytes_per_second: 50 * BYTES_PER_GB };
        for topology in
            [Topology::Uniform(across), Topology::Nodes { ranks_per_node: 4, inside, across }]
        {
            assert_eq!(read(&write(here(), topology)), topology);
        }
    }

    #[test]
    fn nonsense_in_an_address_becomes_a_network() {
        let route =
            Route::to(View::Gallery).with("node", 0).with("bandwidth", 0).with("latency", "x");
        let Topology::Uniform(link) = read(&route) else { panic!("no nodes were asked for") };
        assert_eq!(link.bytes_per_second, BYTES_PER_GB);
    }
}
