//! The network that is chosen, as the closed form takes it.

use lockstep_sim::{Link, Topology};
use lockstep_torch::ddp::{Links, RingLink};
use lockstep_web_protocol::Machine;

/// The links of the machine as the closed form takes them.
pub(super) fn links_of(machine: Machine) -> Links {
    let link = |link: Link| RingLink {
        latency_ps: link.latency_ps,
        bytes_per_second: link.bytes_per_second,
    };
    match machine.links() {
        Topology::Uniform(of) => Links::Uniform(link(of)),
        Topology::SharedMemory(machine) => Links::Uniform(link(machine.as_link())),
        Topology::Nodes { ranks_per_node, inside, across } => {
            Links::Nodes { ranks_per_node, inside: link(inside), across: link(across) }
        }
    }
}
