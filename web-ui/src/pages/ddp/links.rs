//! The network that is chosen, as the closed form takes it.

use lockstep_sim::{Link, Topology};
use lockstep_torch::ddp::{Links, RingLink};

/// The topology as the closed form takes it.
pub(super) fn links_of(topology: Topology) -> Links {
    let link = |link: Link| RingLink {
        latency_ps: link.latency_ps,
        bytes_per_second: link.bytes_per_second,
    };
    match topology {
        Topology::Uniform(of) => Links::Uniform(link(of)),
        Topology::SharedMemory(machine) => Links::Uniform(link(machine.as_link())),
        Topology::Nodes { ranks_per_node, inside, across } => {
            Links::Nodes { ranks_per_node, inside: link(inside), across: link(across) }
        }
    }
}
