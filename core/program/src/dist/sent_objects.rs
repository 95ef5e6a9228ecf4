//! The objects that ranks send each other in object calls, as far as they are known.

use lockstep_core::rank::GlobalRank;
use lockstep_torch::c10d::{Object, PyObject};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of the call: the n-th of its kind among these ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Meeting {
    /// The group's name: another group of the same ranks is another.
    pub(crate) group: Arc<str>,
    pub(crate) members: Arc<[GlobalRank]>,
    pub(crate) call: &'static str,
    pub(crate) nth: usize,
}

/// The objects that one rank sends in a call.
pub(crate) type Objects = Vec<Heard>;

/// An object, which is the same as another if its pickle is. NaN equals nothing.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) object: Arc<PyObject>,
    pub(crate) pickle: Object,
}

impl Heard {
    /// An object as others hear it.
    pub(crate) fn of(object: PyObject) -> Heard {
        Heard { pickle: Object::from(&object), object: Arc::new(object) }
    }
}

impl PartialEq for Heard {
    fn eq(&self, other: &Heard) -> bool {
        self.pickle == other.pickle
    }
}

impl Eq for Heard {}

/// The objects that one rank has sent, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) calls: Vec<(Meeting, Objects)>,
    pub(crate) counts: BTreeMap<Kind, usize>,
}

impl Sent {
    /// True if the rank has made no object call.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// Calls of one kind: their group's name, its ranks, and the function.
type Kind = (Arc<str>, Arc<[GlobalRank]>, &'static str);

/// The objects that all ranks have sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) of: BTreeMap<Meeting, Arc<ByRank>>,
}

pub(crate) type ByRank = BTreeMap<GlobalRank, Objects>;

impl Board {
    /// Gathers the objects that each rank has sent; the ranks come in order.
    pub(crate) fn of<'s>(ranks: impl Iterator<Item = &'s Sent>) -> Board {
        let mut of: BTreeMap<Meeting, ByRank> = BTreeMap::new();
        for (rank, sent) in (0..).map(GlobalRank).zip(ranks) {
            for (meeting, objects) in &sent.calls {
                of.entry(meeting.clone()).or_default().insert(rank, objects.clone());
            }
        }
        Board { of: of.into_iter().map(|(meeting, by)| (meeting, Arc::new(by))).collect() }
    }
}
