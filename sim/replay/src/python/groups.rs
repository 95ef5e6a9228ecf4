//! Names for a plan's groups: groups that are alike and share no rank are one name, which means to each rank its own.

use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::Plan;

/// Names that a program has other uses for.
const TAKEN: [&str; 12] = [
    "rank",
    "main",
    "run",
    "dist",
    "torch",
    "compute",
    "sleep",
    "member_of",
    "work",
    "in",
    "is",
    "for",
];

/// Groups of one description that share no rank: the rows of a mesh, or one group.
pub(super) struct Family {
    pub(super) name: String,
    pub(super) groups: Vec<GroupId>,
}

/// True of the communicator of two ranks that NCCL makes at their first send or receive: c10d's plans show its making
/// as a barrier of a group of that key, `low:high`, and make it again when the program is executed.
pub(super) fn is_of_pair(group: &ProcessGroup) -> bool {
    match group.ranks() {
        [low, high] => group.name() == format!("{low}:{high}"),
        _ => false,
    }
}

/// All groups of a plan but the default group.
pub(super) struct Families {
    all: Vec<Family>,
}

impl Families {
    pub(super) fn of(plan: &Plan) -> Families {
        let mut all: Vec<(&ProcessGroup, Family)> = Vec::new();
        for (at, group) in plan.groups.iter().enumerate().skip(1) {
            if is_of_pair(group) {
                continue;
            }
            let id = GroupId(at as u32);
            let apart = |other: &GroupId| {
                let other = plan.group(*other).map(ProcessGroup::ranks).unwrap_or_default();
                !other.iter().any(|rank| group.group_rank(*rank).is_some())
            };
            let like = all.iter_mut().find(|(first, family)| {
                (first.desc(), first.size(), first.timeout_ms())
                    == (group.desc(), group.size(), group.timeout_ms())
                    && family.groups.iter().all(apart)
            });
            if let Some((_, family)) = like {
                family.groups.push(id);
                continue;
            }
            let name = named(group.desc());
            let taken = |name: &str| {
                TAKEN.contains(&name) || all.iter().any(|(_, family)| family.name == name)
            };
            let numbered = (2..).map(|number| format!("{name}_{number}"));
            let name = std::iter::once(name.clone()).chain(numbered).find(|name| !taken(name));
            let name = name.unwrap_or_default();
            all.push((group, Family { name, groups: vec![id] }));
        }
        Families { all: all.into_iter().map(|(_, family)| family).collect() }
    }

    /// The name of the family that a group is of; `None` of the default group.
    pub(super) fn name(&self, group: GroupId) -> Option<&str> {
        let family = self.all.iter().find(|family| family.groups.contains(&group))?;
        Some(&family.name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Family> {
        self.all.iter()
    }
}

/// A description as a name of Python's.
fn named(desc: &str) -> String {
    let letters = desc.chars().map(|letter| match letter.is_ascii_alphanumeric() {
        true => letter.to_ascii_lowercase(),
        false => '_',
    });
    let name: String = letters.collect();
    let name = name.trim_matches('_');
    match name {
        "" | "undefined" => "group".to_owned(),
        name if name.starts_with(|first: char| first.is_ascii_digit()) => format!("group_{name}"),
        name => name.to_owned(),
    }
}
