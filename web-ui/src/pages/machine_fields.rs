//! The fields of a form that choose the machine under the ranks: links, or a named cluster.

use super::fabric_fault::{FABRIC, fabric_fault_fields, with_fault};
use super::known_clusters::{cluster_choices, use_known_clusters};
use super::machine_choice::{
    BYTES_PER_GB, FIRST_CLUSTER, FIRST_GPUS, GB_PER_SECOND, LATENCY_NS, MOST_GPUS, PS_PER_NS, write,
};
use crate::route::Route;
use crate::ui::{Choice, NumberField, SelectField};
use lockstep_sim::{Link, Topology};
use lockstep_web_protocol::{ClusterName, FabricFaultText, KnownCluster, Machine};
use yew::prelude::*;

/// Properties of [`MachineFields`].
#[derive(Properties, PartialEq)]
pub(super) struct MachineFieldsProps {
    pub(super) machine: Machine,
    /// The address of the whole choice.
    pub(super) route: Route,
    pub(super) world_size: u32,
    pub(super) on_route: Callback<Route>,
    /// True if there must be nodes.
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
            Machine::Links(topology) => link_fields(topology, props),
            Machine::Cluster { name, ranks_per_node, fault } => html! {
                <ClusterFields {name} {ranks_per_node} {fault} {route} {on_route} />
            },
        } }
        </>
    }
}

/// The links that an address names.
const LINKS: [&str; 7] =
    [FABRIC, "cluster", "node", "latency", "bandwidth", "latency_in", "bandwidth_in"];

/// Properties of [`ClusterFields`].
#[derive(Properties, PartialEq)]
struct ClusterFieldsProps {
    name: ClusterName,
    ranks_per_node: u32,
    fault: FabricFaultText,
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
    let fault = {
        let route = props.route.clone();
        props.on_route.reform(move |fault: String| with_fault(route.clone(), &fault))
    };
    let gpus = own.map_or(MOST_GPUS, |(_, gpus)| gpus.into());
    html! {
        <>
        <SelectField name="cluster" label="Cluster" value={props.name.to_string()} choices={cluster_choices(&known, &props.name)} on_choose={choose} />
        <NumberField name="node" label="Ranks a node" value={u64::from(props.ranks_per_node)} min={1} max={gpus} on_choose={each} />
        { fabric_fault_fields(&props.fault, &fault) }
        </>
    }
}

/// The fields that choose nodes and links.
fn link_fields(topology: Topology, props: &MachineFieldsProps) -> Html {
    let number = |name: &'static str| {
        let route = props.route.clone();
        props.on_route.reform(move |value: u64| route.clone().with(name, value))
    };
    let ns = |link: Link| link.latency_ps / PS_PER_NS;
    let gb = |link: Link| link.bytes_per_second / BYTES_PER_GB;
    let (inside, across) = match topology {
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
            <NumberField name="node" label="Ranks a node" value={u64::from(topology.ranks_per_node())}
                         min={1} max={u64::from(props.world_size)} on_choose={number("node")} />
        }
        { match props.links {
            Links::Open => numbers,
            Links::Absent => html! {},
            Links::Folded => html! {
                <details class="links" data-test="links">
                    <summary>{ "Links: " }{ topology.to_string() }</summary>
                    <div>{ numbers }</div>
                </details>
            },
        } }
        </>
    }
}
