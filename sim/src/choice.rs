//! The choices in which one run of a plan may differ from another, and runs that do it in a chosen way.
//!
//! A plan leaves two things open. Which send a receive from any source takes, when several are
//! there, and on gloo whether it comes before the rank asks for it by name. And, where a device carries out calls of one communicator at a time, which of the calls
//! that several groups have ready it carries out first: PyTorch's documentation says of NCCL that
//! using several groups concurrently "is not safe" without synchronization, since kernels of one
//! communicator can keep those of another from the device.
//!
//! An engine that chooses does neither by itself: when nothing else can happen, it takes the next
//! choice of its [`Order`].

use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// The order in which a device runs calls of several groups on NCCL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Devices {
    /// It carries them out side by side.
    #[default]
    SideBySide,
    /// It carries out a collective at a time, in any order. Point-to-point calls are not held up.
    OneAtATime,
}

impl Devices {
    /// A few words for people on the kind of orders of a plan.
    pub fn words(self, plan: &Plan) -> &'static str {
        match self {
            Devices::SideBySide if !Devices::leave_open(plan) => "The order of its calls",
            Devices::SideBySide if Devices::worth_exploring(plan).len() < 2 => {
                "Which send a receive from any source takes"
            }
            Devices::SideBySide => "Devices that carry out calls of several groups side by side",
            Devices::OneAtATime => "Devices that carry out a collective at a time",
        }
    }

    /// True if a plan leaves an order open: which send a receive takes, or which group's call a device
    /// begins.
    pub fn leave_open(plan: &Plan) -> bool {
        let ops = plan.programs.iter().flat_map(|program| &program.ops);
        let mut calls = ops.flat_map(|op| op.action.calls());
        let any = calls.any(|call| matches!(call, Call::Recv { peer: None, .. }));
        any || Devices::worth_exploring(plan).len() > 1
    }

    /// The device behaviours worth exploring for a plan: how devices share their time matters only
    /// where a rank is in several groups on NCCL.
    pub fn worth_exploring(plan: &Plan) -> Vec<Devices> {
        let on_device = |group: &&ProcessGroup| group.backend() == BackendName::Nccl;
        let several = (0..plan.world_size).map(GlobalRank).any(|rank| {
            let of_rank = plan.groups.iter().filter(on_device);
            of_rank.filter(|group| group.group_rank(rank).is_some()).count() > 1
        });
        match several {
            true => vec![Devices::SideBySide, Devices::OneAtATime],
            false => vec![Devices::SideBySide],
        }
    }
}

/// A choice at a point where nothing else can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// A receive from any source takes a rank's send.
    Take {
        /// The group of both.
        group: GroupId,
        /// The receiver.
        to: GlobalRank,
        /// The tag of both.
        tag: u32,
        /// The sender.
        from: GlobalRank,
    },
    /// A rank's device begins the call that a group has ready.
    Start {
        /// The rank.
        rank: GlobalRank,
        /// The group.
        group: GroupId,
    },
    /// A rank calls a receive that names its source while one from any source waits: on gloo the next
    /// send of that source is its from then on.
    Post {
        /// The rank.
        rank: GlobalRank,
    },
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Take { group, to, tag, from } => {
                write!(f, "take:{}:{to}:{tag}:{from}", group.0)
            }
            Choice::Start { rank, group } => write!(f, "start:{rank}:{}", group.0),
            Choice::Post { rank } => write!(f, "post:{rank}"),
        }
    }
}

impl Choice {
    /// A sentence for people.
    pub fn words(&self, plan: &Plan) -> String {
        let label = |group: &GroupId| plan.group(*group).map_or("?", ProcessGroup::label);
        match self {
            Choice::Take { group, to, tag, from } => format!(
                "rank {to}'s receive from any source in {} (tag {tag}) takes rank {from}'s send",
                label(group)
            ),
            Choice::Start { rank, group } => {
                format!("rank {rank}'s device begins its next collective of {}", label(group))
            }
            Choice::Post { rank } => format!(
                "rank {rank} calls its next receive before anything else comes for its receive from \
                 any source"
            ),
        }
    }
}

/// A text that is no [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no choice: there are start:RANK:GROUP, post:RANK and \
     take:GROUP:RECEIVER:TAG:SENDER, in numbers, as `lockstep explore` writes them"
)]
pub struct NoChoice {
    text: String,
}

impl FromStr for Choice {
    type Err = NoChoice;

    fn from_str(text: &str) -> Result<Choice, NoChoice> {
        let refused = || NoChoice { text: text.chars().take(60).collect() };
        let mut parts = text.split(':');
        let word = parts.next().unwrap_or_default();
        let numbers: Vec<u32> =
            parts.map(str::parse).collect::<Result<_, _>>().map_err(|_| refused())?;
        match (word, numbers.as_slice()) {
            ("take", &[group, to, tag, from]) => Ok(Choice::Take {
                group: GroupId(group),
                to: GlobalRank(to),
                tag,
                from: GlobalRank(from),
            }),
            ("start", &[rank, group]) => {
                Ok(Choice::Start { rank: GlobalRank(rank), group: GroupId(group) })
            }
            ("post", &[rank]) => Ok(Choice::Post { rank: GlobalRank(rank) }),
            _ => Err(refused()),
        }
    }
}

/// A way in which a plan runs, as far as the plan leaves it open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The behaviour of devices.
    pub devices: Devices,
    /// The choices, point by point. After the end of the list, or if a choice is impossible, the first
    /// possible one is taken.
    pub choices: Vec<Choice>,
}

/// An engine's choosing.
#[derive(Clone, Debug)]
pub(crate) struct Choosing {
    pub(crate) devices: Devices,
    pub(crate) planned: VecDeque<Choice>,
    /// By rank, whether its device carries out a collective.
    pub(crate) busy: Vec<bool>,
}

impl Choosing {
    pub(crate) fn new(order: &Order, world_size: u32) -> Choosing {
        Choosing {
            devices: order.devices,
            planned: order.choices.iter().copied().collect(),
            busy: vec![false; world_size as usize],
        }
    }
}
