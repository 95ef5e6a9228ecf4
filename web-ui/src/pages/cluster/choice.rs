//! The state of the view of clusters: the choice that its address carries, and the form that
//! changes it.

use crate::explain;
use crate::pages::asked::{Asked, Unmet};
use crate::pages::fabric_fault::{FABRIC, fabric_fault_fields, fabric_fault_words, with_fault};
use crate::pages::known_clusters::{cluster_choices, use_known_clusters};
use crate::route::{Route, View};
use crate::ui::{Choice, NumberField, SelectField, SizeField};
use lockstep_web_protocol::{AskedRanks, ClusterQuestion};
use yew::prelude::*;

/// The collectives of nccl-tests.
const COLLECTIVES: [&str; 7] =
    ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv"];

/// Nodes and ranks on each that can be asked for.
const NODES: (u64, u64) = (1, 65_536);
const PER_NODE: (u64, u64) = (1, 1024);
const WHY: &str = "The model goes to 65,536 nodes.";
const PER_NODE_WHY: &str = "A node has at most 1,024 GPUs.";

/// The largest size, as a power of two: 16 GiB.
const MAX_LOG2: u32 = 34;

/// A collective on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClusterChoice {
    pub(super) cluster: String,
    pub(super) collective: &'static str,
    pub(super) nodes: u32,
    /// Ranks on each node; all GPUs if it is not said.
    pub(super) per_node: Option<u32>,
    /// The slow or broken part of its fabric; empty for none.
    pub(super) fault: String,
    pub(super) bytes: u64,
}

impl ClusterChoice {
    /// The choice in an address, what it does not say being the default, and what of it cannot be.
    /// The worker says if there is such a cluster.
    pub(super) fn read(route: &Route) -> (ClusterChoice, Vec<Unmet>) {
        let mut asked = Asked::new(route);
        let cluster = asked.text("cluster").unwrap_or("h100x8");
        let cluster: String = cluster.chars().take(60).collect();
        let collective = asked.one_of("collective", &COLLECTIVES, str::to_owned, "collective");
        let collective = collective.unwrap_or(COLLECTIVES[0]);
        let nodes = asked.number("nodes", NODES, 1, WHY) as u32;
        let per_node = route.get("per_node").is_some();
        let per_node = per_node.then(|| asked.number("per_node", PER_NODE, 8, PER_NODE_WHY) as u32);
        let fault = asked.text(FABRIC).unwrap_or_default().chars().take(60).collect();
        let most = 1 << MAX_LOG2;
        let bytes = asked.number("bytes", (1, most), 64 << 20, "Up to 2^34 bytes: 16 GiB.");
        (ClusterChoice { cluster, collective, nodes, per_node, fault, bytes }, asked.unmet)
    }

    /// The address of the choice.
    pub(super) fn route(&self) -> Route {
        let route = Route::to(View::Cluster)
            .with("cluster", &self.cluster)
            .with("collective", self.collective)
            .with("nodes", self.nodes)
            .with("bytes", self.bytes);
        let route = with_fault(route, &self.fault);
        match self.per_node {
            Some(per_node) => route.with("per_node", per_node),
            None => route,
        }
    }

    /// The question to the worker.
    pub(super) fn question(&self) -> ClusterQuestion {
        ClusterQuestion {
            cluster: self.cluster.clone(),
            collective: self.collective.to_owned(),
            ranks: AskedRanks::Nodes(self.nodes),
            per_node: self.per_node,
            fault: self.fault.clone(),
            bytes: self.bytes,
        }
    }

    /// The choice, in a few words.
    pub(super) fn words(&self) -> String {
        let nodes = lockstep_core::words::counted(u64::from(self.nodes), "node");
        let bytes = explain::bytes(self.bytes);
        format!("{} · {} · {nodes} · {bytes}{}", self.collective, self.cluster, self.fault_words())
    }

    /// `, with the network between nodes at 25%`; empty without a fault.
    pub(super) fn fault_words(&self) -> String {
        match self.fault.as_str() {
            "" => String::new(),
            fault => format!(", with {}", fabric_fault_words(fault)),
        }
    }
}

/// Properties of [`ClusterForm`].
#[derive(Properties, PartialEq)]
pub(super) struct ClusterFormProps {
    pub(super) choice: ClusterChoice,
    /// GPUs of a node of the cluster.
    pub(super) gpus: u32,
    pub(super) on_route: Callback<Route>,
}

/// The form that changes the choice.
#[component(ClusterForm)]
pub(super) fn cluster_form(props: &ClusterFormProps) -> Html {
    let choice = props.choice.clone();
    let route = choice.route();
    let number = |name: &'static str| {
        let route = route.clone();
        props.on_route.reform(move |value: u64| route.clone().with(name, value))
    };
    let word = |name: &'static str| {
        let route = route.clone();
        props.on_route.reform(move |value: String| route.clone().with(name, value))
    };
    let cluster = {
        let route = route.clone();
        // Another cluster's nodes have other numbers of GPUs.
        let to = move |value: String| route.clone().without("per_node").with("cluster", value);
        props.on_route.reform(to)
    };
    let fault = {
        let route = route.clone();
        props.on_route.reform(move |fault: String| with_fault(route.clone(), &fault))
    };
    let known = use_known_clusters(true);
    let clusters = cluster_choices(&known, &choice.cluster);
    let collectives = COLLECTIVES.map(Choice::word).to_vec();
    let per_node = u64::from(choice.per_node.unwrap_or(props.gpus));
    html! {
        <form class="choice wide" onsubmit={Callback::from(|event: SubmitEvent| event.prevent_default())} aria-label="What is asked of which cluster">
            <SelectField name="cluster" label="Cluster" value={choice.cluster.clone()} choices={clusters} on_choose={cluster} />
            <SelectField name="collective" label="Collective" value={choice.collective} choices={collectives} on_choose={word("collective")} />
            <NumberField name="nodes" label="Nodes" value={u64::from(choice.nodes)} min={NODES.0} max={NODES.1} on_choose={number("nodes")} />
            <NumberField name="per_node" label="Ranks on each node" value={per_node} min={1} max={u64::from(props.gpus)} on_choose={number("per_node")} />
            { fabric_fault_fields(&choice.fault, &fault) }
            if choice.nodes == 1 && ["nic", "spine"].iter().any(|kind| choice.fault.starts_with(kind)) {
                <p class="muted small-print" data-test="one-node">{ "Calls inside one node use neither its NICs nor the network between nodes: choose more nodes." }</p>
            }
            <SizeField name="bytes" label={format!("Bytes, as nccl-tests counts ({})", explain::bytes(choice.bytes))} value={choice.bytes}
                       max_log2={MAX_LOG2} on_choose={number("bytes")} />
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_the_whole_choice() {
        for collective in COLLECTIVES {
            let route = Route::to(View::Cluster).with("collective", collective).with("nodes", 4);
            let (choice, unmet) = ClusterChoice::read(&route);
            assert_eq!((unmet.len(), choice.collective, choice.nodes), (0, collective, 4));
            assert_eq!(ClusterChoice::read(&choice.route()), (choice.clone(), Vec::new()));
            let some = ClusterChoice { per_node: Some(4), ..choice };
            assert_eq!(ClusterChoice::read(&some.route()), (some, Vec::new()));
        }
    }

    #[test]
    fn what_cannot_be_is_said_with_ways_on() {
        for (name, value, near) in [
            ("nodes", "1000000000", "nodes=65536"),
            ("collective", "allreduce", "collective=all_reduce"),
            ("bytes", "0", "bytes=1"),
            ("per_node", "x", "per_node=8"),
        ] {
            let route = Route::to(View::Cluster).with(name, value);
            let unmet = ClusterChoice::read(&route).1;
            assert_eq!((unmet.len(), unmet[0].ways[0].words.as_str()), (1, near));
        }
    }
}
