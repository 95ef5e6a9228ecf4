//! Faults of a cluster's fabric: what is slower there than it should be, and where.
//!
//! NCCL chooses for the machine that it finds when it starts. A NIC that is down is missing then, so
//! the choice is another one; a link or a spine that is slow looks like any other.

use lockstep_core::words::counted;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Something that is slow or down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FabricFault {
    /// The links inside a node carry less: of all its GPUs.
    Node {
        /// The node, counted from 0 in rank order.
        node: u32,
        /// The part of the rate that is left.
        rate: f64,
    },
    /// The links of one rank's GPU to the others of its node carry less.
    Link {
        /// The rank.
        rank: u32,
        /// The part of the rate that is left.
        rate: f64,
    },
    /// NICs of a node are down.
    Nic {
        /// The node, counted from 0 in rank order.
        node: u32,
        /// The number of NICs that are down.
        down: u32,
    },
    /// A rank's GPU computes slowly.
    Gpu {
        /// The rank.
        rank: u32,
        /// The part of the rate that is left.
        rate: f64,
    },
    /// A plane of the network carries less, or nothing.
    Plane {
        /// The plane, counted from 0.
        plane: u32,
        /// The part of the rate that is left; 0 where the plane is down.
        rate: f64,
    },
    /// The network between nodes carries less, as where others use it too.
    Spine {
        /// The part of the rate that is left.
        rate: f64,
    },
}

/// A fault that is not understood, or that the job has no place for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricFaultError {
    /// The text is none.
    #[error(
        "{text:?} is no fault of a cluster: {why}; say for example link:node=3,rate=0.5, \
         link:rank=5,rate=0.5, nic:node=3,down=1, gpu:rank=5,rate=0.7, plane:plane=1, plane:plane=1,rate=0.5 or spine:rate=0.25"
    )]
    Text {
        /// As it was given.
        text: String,
        /// The problem, in words.
        why: String,
    },
    /// The job has no such node or rank.
    #[error("{fault}: the job has {}, numbered from 0", counted(u64::from(*count), what))]
    Nowhere {
        /// The fault.
        fault: String,
        /// `node`, `rank` or `plane`.
        what: &'static str,
        /// The number of nodes, ranks or planes.
        count: u32,
    },
    /// No plane would be left.
    #[error("{fault}: the network has {}, and none would be left", counted(u64::from(*planes), "plane"))]
    NoPlaneLeft {
        /// The fault.
        fault: String,
        /// Planes of the network.
        planes: u32,
    },
    /// No NIC would be left.
    #[error("{fault}: a node has {nics} NICs, and none would be left to reach the others")]
    NoNicLeft {
        /// The fault.
        fault: String,
        /// NICs of a node.
        nics: u32,
    },
}

impl FromStr for FabricFault {
    type Err = FabricFaultError;

    fn from_str(text: &str) -> Result<Self, FabricFaultError> {
        let shown: String = text.chars().take(100).collect();
        let wrong = |why: &str| FabricFaultError::Text { text: shown.clone(), why: why.to_owned() };
        let (kind, rest) = text.trim().split_once(':').ok_or_else(|| wrong("it has no colon"))?;
        let mut given = BTreeMap::new();
        for part in rest.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| wrong("its parts are NAME=NUMBER"))?;
            if given.insert(key.trim(), value.trim()).is_some() {
                return Err(wrong("a part is there twice"));
            }
        }
        let whole =
            |value: &str| value.parse::<u32>().map_err(|_| wrong("a part has no whole number"));
        let share = |value: &str| {
            let rate = value.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0);
            rate.ok_or_else(|| wrong("a rate is the part that is left, above 0 and up to 1"))
        };
        let mut take = |key: &str| given.remove(key);
        let fault = match kind.trim() {
            "link" => {
                let rate = share(take("rate").ok_or_else(|| wrong("it has no rate"))?)?;
                match (take("node"), take("rank")) {
                    (Some(node), None) => Self::Node { node: whole(node)?, rate },
                    (None, Some(rank)) => Self::Link { rank: whole(rank)?, rate },
                    _ => return Err(wrong("it names one of node and rank")),
                }
            }
            "nic" => {
                let node = whole(take("node").ok_or_else(|| wrong("it has no node"))?)?;
                let down = take("down").map_or(Ok(1), whole)?;
                Self::Nic { node, down }
            }
            "gpu" => {
                let rank = whole(take("rank").ok_or_else(|| wrong("it has no rank"))?)?;
                let rate = share(take("rate").ok_or_else(|| wrong("it has no rate"))?)?;
                Self::Gpu { rank, rate }
            }
            "plane" => {
                let plane = whole(take("plane").ok_or_else(|| wrong("it has no plane"))?)?;
                Self::Plane { plane, rate: take("rate").map_or(Ok(0.0), share)? }
            }
            "spine" => {
                Self::Spine { rate: share(take("rate").ok_or_else(|| wrong("it has no rate"))?)? }
            }
            _ => return Err(wrong("no such kind: there are link, nic, gpu, plane and spine")),
        };
        match given.keys().next() {
            Some(more) => Err(wrong(&format!("it has no use for {more}"))),
            None => Ok(fault),
        }
    }
}

impl fmt::Display for FabricFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node, rate } => write!(f, "link:node={node},rate={rate}"),
            Self::Link { rank, rate } => write!(f, "link:rank={rank},rate={rate}"),
            Self::Nic { node, down } => write!(f, "nic:node={node},down={down}"),
            Self::Gpu { rank, rate } => write!(f, "gpu:rank={rank},rate={rate}"),
            Self::Plane { plane, rate } if *rate > 0.0 => {
                write!(f, "plane:plane={plane},rate={rate}")
            }
            Self::Plane { plane, .. } => write!(f, "plane:plane={plane}"),
            Self::Spine { rate } => write!(f, "spine:rate={rate}"),
        }
    }
}

impl FabricFault {
    /// True if a job of so many ranks and nodes, with so many NICs on each and planes of its network, has a place
    /// for it.
    pub(crate) fn check(
        self,
        (ranks, nodes): (u32, u32),
        nics: u32,
        planes: u32,
    ) -> Result<(), FabricFaultError> {
        let (what, number, count) = match self {
            Self::Node { node, .. } | Self::Nic { node, .. } => ("node", node, nodes),
            Self::Link { rank, .. } | Self::Gpu { rank, .. } => ("rank", rank, ranks),
            Self::Plane { plane, .. } => ("plane", plane, planes),
            Self::Spine { .. } => return Ok(()),
        };
        let fault = self.to_string();
        match self {
            _ if number >= count => Err(FabricFaultError::Nowhere { fault, what, count }),
            Self::Nic { down, .. } if down >= nics && nodes > 1 => {
                Err(FabricFaultError::NoNicLeft { fault, nics })
            }
            _ => Ok(()),
        }
    }
}
