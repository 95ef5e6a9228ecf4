//! The machine under the ranks: links, every pair alike or faster inside nodes than between them; or
//! a named cluster, whose calls take what NCCL takes there.

use super::asked::Asked;
use super::known_clusters::{cluster_choices, use_known_clusters};
use crate::route::Route;
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_sim::{Link, Topology};
use lockstep_web_protocol::{ClusterName, KnownCluster, Machine};
use yew::prelude::*;

const PS_PER_NS: u64 = 1000;
const BYTES_PER_GB: u64 = 1_000_000_000;

/// Latencies that a form takes, in nanoseconds.
const LATENCY_NS: (u64, u64) = (0, 10_000_000);
/// Bandwidths that a form takes, in GB/s.
const GB_PER_SECOND: (u64, u64) = (1, 10_000);

/// Ranks of a node that a form takes; 0 for no nodes.
const NODE: (u64, u64) = (0, 65_536);

/// The cluster of a form that has just been asked for one.
const FIRST_CLUSTER: &str = "h100x8";
/// GPUs of its nodes.
const FIRST_GPUS: u32 = 8;
/// GPUs that a node has at most.
const MOST_GPUS: u64 = 1024;

/// The machine in words of an address: `node=8&latency=2000`, `cluster=h100x8`.
///
/// # Errors
/// With what is wrong in them.
pub(crate) fn written(words: &str) -> Result<Machine, String> {
    let route = Route::parse(&format!("#/?{words}"));
    let mut reading = Asked::new(&route);
    let machine = asked(&mut reading);
    match reading.unmet.first() {
        Some(unmet) => Err(format!("{}: {}", unmet.asked, unmet.why)),
        None => Ok(machine),
    }
}

/// The machine in an address; what it does not say is the default, and what it says wrongly is
/// refused. Whether there is a cluster of the name is the engine's to say.
pub(super) fn asked(asked: &mut Asked<'_>) -> Machine {
    if let Some(named) = asked.text("cluster") {
        let name = ClusterName::from(named).unwrap_or_else(|_| {
            let ways = vec![asked.with("cluster", FIRST_CLUSTER)];
            asked.refuse("cluster", "No cluster has so long a name.", ways);
            ClusterName::from(FIRST_CLUSTER).unwrap_or_default()
        });
        let why = "A node has up to 1,024 GPUs; 0 takes all of a node.";
        let ranks_per_node = asked.number("node", (0, MOST_GPUS), 0, why) as u32;
        return Machine::Cluster { name, ranks_per_node };
    }
    let across = link(asked, ["latency", "bandwidth"], Link::DEFAULT);
    let why = "A node has up to 65,536 ranks; 0 means that every pair of ranks is alike.";
    let topology = match asked.number("node", NODE, 0, why) {
        0 => Topology::Uniform(across),
        ranks => Topology::Nodes {
            ranks_per_node: ranks as u32,
            inside: link(asked, ["latency_in", "bandwidth_in"], Link::NVLINK),
            across,
        },
    };
    topology.into()
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

/// `route` with the machine in it; a default link needs no words.
pub(super) fn write(route: Route, machine: Machine) -> Route {
    let topology = match machine {
        Machine::Links(topology) => topology,
        Machine::Cluster { name, ranks_per_node: 0 } => return route.with("cluster", name),
        Machine::Cluster { name, ranks_per_node } => {
            return route.with("cluster", name).with("node", ranks_per_node);
        }
    };
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

/// Properties of [`MachineFields`].
#[derive(Properties, PartialEq)]
pub(super) struct MachineFieldsProps {
    pub(super) machine: Machine,
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

/// The fields of a form that choose the machine.
#[component(MachineFields)]
pub(super) fn machine_fields(props: &MachineFieldsProps) -> Html {
    let shape = {
        let (route, machine) = (props.route.clone(), props.machine);
        let half = (props.world_size / 2).clamp(1, 8);
        props.on_route.reform(move |shape: String| {
            let plain = LINKS.iter().fold(route.clone(), |route, name| route.without(name));
            match (shape.as_str(), machine) {
                ("cluster", Machine::Links(_)) => {
                    plain.with("cluster", FIRST_CLUSTER).with("node", FIRST_GPUS)
                }
                ("nodes", Machine::Links(Topology::Uniform(across))) => {
                    let nodes =
                        Topology::Nodes { ranks_per_node: half, inside: Link::NVLINK, across };
                    write(route.clone(), nodes.into())
                }
                ("nodes", Machine::Cluster { ranks_per_node, .. }) => {
                    plain.with("node", if ranks_per_node > 0 { ranks_per_node } else { half })
                }
                ("uniform", Machine::Cluster { .. }) => plain,
                ("uniform", _) => route.clone().without("node"),
                _ => route.clone(),
            }
        })
    };
    // A program may name its machines itself.
    let alike = if props.links == Links::Absent { "as it says" } else { "every pair alike" };
    let shapes = [("uniform", alike), ("nodes", "nodes"), ("cluster", "a cluster")];
    let shapes = shapes.into_iter().filter(|(value, _)| !props.nodes_only || *value != "uniform");
    let shapes = shapes.map(|(value, label)| Choice::new(value, label)).collect::<Vec<_>>();
    let value = match props.machine {
        Machine::Links(Topology::Nodes { .. }) => "nodes",
        Machine::Links(_) => "uniform",
        Machine::Cluster { .. } => "cluster",
    };
    let (route, on_route) = (props.route.clone(), props.on_route.clone());
    html! {
        <>
        <SelectField name="topology" label="Network" {value} choices={shapes} on_choose={shape} />
        { match props.machine {
            Machine::Links(topology) => html! {
                <LinkFields {topology} {route} world_size={props.world_size} {on_route} links={props.links} />
            },
            Machine::Cluster { name, ranks_per_node } => html! {
                <ClusterFields {name} {ranks_per_node} {route} {on_route} />
            },
        } }
        </>
    }
}

/// What an address says of links.
const LINKS: [&str; 6] = ["cluster", "node", "latency", "bandwidth", "latency_in", "bandwidth_in"];

/// Properties of [`ClusterFields`].
#[derive(Properties, PartialEq)]
struct ClusterFieldsProps {
    name: ClusterName,
    ranks_per_node: u32,
    route: Route,
    on_route: Callback<Route>,
}

/// The fields that choose a cluster.
#[component(ClusterFields)]
fn cluster_fields(props: &ClusterFieldsProps) -> Html {
    let known = use_known_clusters(true);
    let found = KnownCluster::called(&known, &props.name);
    let own = found.map(|cluster| (cluster.name.clone(), cluster.gpus_per_node));
    {
        // An address that names a cluster alone gets what the views draw: its name and its nodes.
        let (route, on_route) = (props.route.clone(), props.on_route.clone());
        let (name, each) = (props.name, props.ranks_per_node);
        use_effect_with((own.clone(), name, each), move |(own, name, each)| {
            if let Some((own, gpus)) = own
                && (*each == 0 || own.as_str() != name.as_str())
            {
                let each = if *each == 0 { *gpus } else { *each };
                on_route.emit(route.with("cluster", own).with("node", each));
            }
        });
    }
    let choose = {
        let (route, known) = (props.route.clone(), known.clone());
        props.on_route.reform(move |name: String| {
            // Another cluster's nodes have other numbers of GPUs.
            let gpus = known.iter().find(|it| it.name == name).map_or(0, |it| it.gpus_per_node);
            route.clone().with("cluster", name).with("node", gpus)
        })
    };
    let each = {
        let route = props.route.clone();
        props.on_route.reform(move |each: u64| route.clone().with("node", each))
    };
    let gpus = own.map_or(MOST_GPUS, |(_, gpus)| gpus.into());
    html! {
        <>
        <SelectField name="cluster" label="Cluster" value={props.name.to_string()} choices={cluster_choices(&known, &props.name)} on_choose={choose} />
        <NumberField name="node" label="Ranks a node" value={u64::from(props.ranks_per_node)} min={1} max={gpus} on_choose={each} />
        </>
    }
}

/// Properties of [`LinkFields`].
#[derive(Properties, PartialEq)]
struct LinkFieldsProps {
    topology: Topology,
    route: Route,
    world_size: u32,
    on_route: Callback<Route>,
    links: Links,
}

/// The fields that choose nodes and links.
#[component(LinkFields)]
fn link_fields(props: &LinkFieldsProps) -> Html {
    let number = |name: &'static str| {
        let route = props.route.clone();
        props.on_route.reform(move |value: u64| route.clone().with(name, value))
    };
    let ns = |link: Link| link.latency_ps / PS_PER_NS;
    let gb = |link: Link| link.bytes_per_second / BYTES_PER_GB;
    let (inside, across) = match props.topology {
        Topology::Uniform(link) => (None, link),
        Topology::SharedMemory(machine) => (None, machine.as_link()),
        Topology::Nodes { inside, across, .. } => (Some(inside), across),
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

    /// The machine in an address; what it does not say, or says wrongly, is the default.
    fn read(route: &Route) -> Machine {
        asked(&mut Asked::new(route))
    }

    #[test]
    fn an_address_holds_the_whole_machine() {
        let here = || Route::to(View::Gallery);
        assert_eq!(read(&here()), Machine::default());
        let inside = Link { latency_ps: 7_000, bytes_per_second: 900 * BYTES_PER_GB };
        let across = Link { latency_ps: 9_000_000, bytes_per_second: 50 * BYTES_PER_GB };
        for topology in
            [Topology::Uniform(across), Topology::Nodes { ranks_per_node: 4, inside, across }]
        {
            assert_eq!(read(&write(here(), topology.into())), topology.into());
        }
        let name = ClusterName::from("dgx-a100").unwrap();
        for ranks_per_node in [0, 4] {
            let machine = Machine::Cluster { name, ranks_per_node };
            assert_eq!(read(&write(here(), machine)), machine);
        }
    }

    #[test]
    fn a_name_that_no_cluster_has_is_refused_with_a_way_on() {
        let route = Route::to(View::Step).with("cluster", "x".repeat(50)).with("node", 2000);
        let mut reading = Asked::new(&route);
        assert_eq!(asked(&mut reading).cluster().as_deref(), Some(FIRST_CLUSTER));
        let ways: Vec<&str> =
            reading.unmet.iter().map(|unmet| unmet.ways[0].words.as_str()).collect();
        assert_eq!(ways, ["cluster=h100x8", "node=1024"]);
    }

    #[test]
    fn nonsense_in_an_address_becomes_a_network() {
        let route =
            Route::to(View::Gallery).with("node", 0).with("bandwidth", 0).with("latency", "x");
        let Machine::Links(Topology::Uniform(link)) = read(&route) else {
            panic!("no nodes were asked for")
        };
        assert_eq!(link.bytes_per_second, BYTES_PER_GB);
    }
}
