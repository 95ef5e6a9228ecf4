//! The machine under the ranks: links, every pair alike or faster inside nodes than between them; or
//! a named cluster, whose calls take what NCCL takes there.

use super::asked::Asked;
use super::fabric_fault::FABRIC;
use crate::route::Route;
use lockstep_sim::{Link, Topology};
use lockstep_web_protocol::{ClusterName, FabricFaultText, Machine};

pub(super) const PS_PER_NS: u64 = 1000;
pub(super) const BYTES_PER_GB: u64 = 1_000_000_000;

/// Latencies that a form takes, in nanoseconds.
pub(super) const LATENCY_NS: (u64, u64) = (0, 10_000_000);
/// Bandwidths that a form takes, in GB/s.
pub(super) const GB_PER_SECOND: (u64, u64) = (1, 10_000);

/// Ranks of a node that a form takes; 0 for no nodes.
const NODE: (u64, u64) = (0, 65_536);

/// The cluster of a form that has just been asked for one.
pub(super) const FIRST_CLUSTER: &str = "h100x8";
/// GPUs of its nodes.
pub(super) const FIRST_GPUS: u32 = 8;
/// GPUs that a node has at most.
pub(super) const MOST_GPUS: u64 = 1024;

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
        // The engine refuses what is cut off.
        let fault = asked.text(FABRIC).unwrap_or_default();
        let fault = fault.get(..fault.len().min(48)).unwrap_or("?");
        let fault = FabricFaultText::from(fault).unwrap_or_default();
        return Machine::Cluster { name, ranks_per_node, fault };
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
        Machine::Cluster { name, ranks_per_node, fault } => {
            let route = route.with("cluster", name);
            let route = match ranks_per_node {
                0 => route,
                each => route.with("node", each),
            };
            return if fault.is_empty() { route } else { route.with(FABRIC, fault) };
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
            for fault in ["", "link:rank=5,rate=0.5"] {
                let fault = FabricFaultText::from(fault).unwrap();
                let machine = Machine::Cluster { name, ranks_per_node, fault };
                assert_eq!(read(&write(here(), machine)), machine);
                let address = write(here(), machine).to_hash();
                assert_eq!(read(&Route::parse(&address)), machine, "{address}");
            }
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
