//! Roles: the ranks of a job that make the same calls, of which a few are recorded and stand for the others.
//!
//! Two ranks play one role when they have the same place in every process group but those over which gradients
//! are averaged (the same stage, the same coordinates of the mesh but for data parallel), and when every
//! comparison of the rank in the script's own files has the same outcome for both. That is derived from what the
//! recorded ranks noted. Then it is checked: a role's second and last rank are recorded as well, and if their
//! calls differ, or a call cannot be carried over, all ranks of the role are recorded.

use super::event::ScriptEvent;
use std::collections::{BTreeMap, BTreeSet};

/// The notes of the recorded ranks, by rank.
pub type NotesByRank = BTreeMap<u32, Vec<ScriptEvent>>;

/// Roles times this many slices are recorded, if that is not too many: the first, the second and the last.
const SLICES: usize = 3;

/// A process group by its members.
#[derive(Clone, Debug)]
struct Members {
    id: String,
    ranks: Vec<u32>,
}

/// A place in one group of a family: the group's index among all, and the rank in the group.
type PlaceInGroup = (usize, usize);

/// Groups that were made one after the other and share no rank: the groups along one dimension of a mesh.
#[derive(Clone, Debug, Default)]
struct Family {
    groups: Vec<usize>,
    /// By global rank.
    place: Vec<Option<PlaceInGroup>>,
    called: bool,
    /// True if its groups hold all members of a data-parallel group, so that a place in them says nothing of a role.
    wide: bool,
}

/// The roles of a world: for each rank the recorded rank that stands for it.
#[derive(Clone, Debug)]
pub struct Roles {
    plays: Vec<u32>,
    groups: Vec<Members>,
    families: Vec<Family>,
    family_of: BTreeMap<String, usize>,
    /// By rank: the lowest of the ranks with which it averages gradients, through others of them too.
    averages_with: Vec<u32>,
    /// By rank: which part of a replica it is, as an index into `parts`.
    part: Vec<usize>,
    /// By rank: which replica it belongs to.
    slice: Vec<usize>,
    /// By part: its ranks, ascending; the n-th belongs to the n-th replica.
    parts: Vec<Vec<u32>>,
    /// The ranks of each role.
    roles: Vec<Vec<u32>>,
    /// Comparisons of the rank in the script whose outcome for other ranks is not known.
    untold: BTreeSet<String>,
}

impl Roles {
    /// The roles of a world of `world_size` ranks, from the notes of some of them. Ranks in `recorded` stand for
    /// themselves, and so do all that play a role with one of `unproved`. `most` ranks can be recorded.
    #[must_use]
    pub fn derive(
        world_size: u32,
        notes: &NotesByRank,
        recorded: &BTreeSet<u32>,
        unproved: &BTreeSet<u32>,
        most: usize,
    ) -> Roles {
        let mut roles = Roles::places(world_size, notes);
        roles.find_parts(world_size);
        let untold = roles.split_by_comparisons(notes);
        roles.untold = untold;
        roles.choose(recorded, unproved, most);
        roles.record_whole_groups(notes);
        roles
    }

    /// The place of every rank in every family of groups.
    fn places(world_size: u32, notes: &NotesByRank) -> Roles {
        let mut groups: Vec<Members> = Vec::new();
        let mut known = BTreeMap::new();
        let mut called = BTreeSet::new();
        let mut parallel = BTreeSet::new();
        for event in notes.values().flatten() {
            match event {
                ScriptEvent::Group { id, ranks, .. }
                | ScriptEvent::GroupOfOthers { id, ranks, .. } => {
                    known.entry(id.clone()).or_insert_with(|| {
                        groups.push(Members { id: id.clone(), ranks: ranks.clone() });
                        groups.len() - 1
                    });
                }
                ScriptEvent::Call { group, .. } => {
                    called.insert(group.clone());
                }
                ScriptEvent::DataParallel { group } => {
                    parallel.insert(group.clone());
                }
                _ => {}
            }
        }
        let size = world_size as usize;
        let mut families: Vec<Family> = Vec::new();
        let mut family_of = BTreeMap::new();
        for (at, group) in groups.iter().enumerate() {
            let joins = families.last().is_some_and(|family| family.takes(group, &groups));
            if !joins {
                families.push(Family { place: vec![None; size], ..Family::default() });
            }
            let index = families.len() - 1;
            let Some(family) = families.last_mut() else { continue };
            family.groups.push(at);
            family.called |= called.contains(&group.id);
            for (place, rank) in group.ranks.iter().enumerate() {
                if let Some(own) = family.place.get_mut(*rank as usize) {
                    *own = Some((at, place));
                }
            }
            family_of.insert(group.id.clone(), index);
        }
        let parallel: BTreeSet<usize> =
            parallel.iter().filter_map(|id| family_of.get(id).copied()).collect();
        let averaged: Vec<Vec<u32>> = parallel
            .iter()
            .filter_map(|family| families.get(*family))
            .flat_map(|family| &family.groups)
            .filter_map(|group| groups.get(*group))
            .map(|group| group.ranks.clone())
            .filter(|ranks| ranks.len() > 1)
            .collect();
        for family in &mut families {
            family.wide = averaged.iter().any(|ranks| family.holds_all(ranks));
        }
        let averages_with = joined(world_size, &averaged);
        Roles {
            plays: (0..world_size).collect(),
            groups,
            families,
            family_of,
            averages_with,
            part: vec![0; size],
            slice: vec![0; size],
            parts: Vec::new(),
            roles: Vec::new(),
            untold: BTreeSet::new(),
        }
    }

    /// Sorts the ranks into the parts of a replica. Without a data-parallel group every rank is a part.
    fn find_parts(&mut self, world_size: u32) {
        let telling: Vec<usize> = (0..self.families.len())
            .filter(|at| self.families.get(*at).is_some_and(|it| it.called && !it.wide))
            .collect();
        let mut by_place: BTreeMap<(u32, Vec<Option<usize>>), usize> = BTreeMap::new();
        for rank in 0..world_size {
            let places = telling
                .iter()
                .map(|family| self.place(*family, rank).map(|(_, place)| place))
                .collect();
            let with = self.averages_with.get(rank as usize).copied().unwrap_or(rank);
            let key = (with, places);
            let next = self.parts.len();
            let part = *by_place.entry(key).or_insert(next);
            if part == next {
                self.parts.push(Vec::new());
            }
            let Some(members) = self.parts.get_mut(part) else { continue };
            self.slice[rank as usize] = members.len();
            self.part[rank as usize] = part;
            members.push(rank);
        }
    }

    /// Ranks of a part for which a comparison in the script has another outcome play another role. Returns the
    /// comparisons that could not be told.
    fn split_by_comparisons(&mut self, notes: &NotesByRank) -> BTreeSet<String> {
        let mut outcomes: BTreeSet<&[u32]> = BTreeSet::new();
        let mut untold = BTreeSet::new();
        for event in notes.values().flatten() {
            match event {
                ScriptEvent::Compared { yes: Some(ranks), .. } => {
                    outcomes.insert(ranks);
                }
                ScriptEvent::Compared { what, at, .. } => {
                    let at = at
                        .as_ref()
                        .map(|(file, line)| format!("{file}:{line} "))
                        .unwrap_or_default();
                    untold.insert(format!("{at}`{what}`"));
                }
                _ => {}
            }
        }
        let outcomes: Vec<BTreeSet<u32>> =
            outcomes.into_iter().map(|ranks| ranks.iter().copied().collect()).collect();
        let mut roles: BTreeMap<(usize, Vec<bool>), Vec<u32>> = BTreeMap::new();
        for (part, rank) in self.part.iter().zip(0..) {
            let told = outcomes.iter().map(|ranks| ranks.contains(&rank)).collect();
            roles.entry((*part, told)).or_default().push(rank);
        }
        self.roles = roles.into_values().collect();
        untold
    }

    /// Chooses the ranks of each role that are recorded, and the one that stands for the others.
    fn choose(&mut self, recorded: &BTreeSet<u32>, unproved: &BTreeSet<u32>, most: usize) {
        let last = self.slice.iter().copied().max().unwrap_or(0);
        let few = self.parts.len() * SLICES <= most;
        let slices: BTreeSet<usize> = if few { [0, 1, last].into() } else { [0, last].into() };
        for role in self.roles.clone() {
            if role.iter().any(|rank| unproved.contains(rank)) {
                continue;
            }
            let mut chosen: BTreeSet<u32> = role
                .iter()
                .copied()
                .filter(|rank| slices.contains(&self.slice[*rank as usize]))
                .collect();
            if chosen.len() < slices.len() {
                let wanted = if few { 3 } else { 2 };
                chosen.extend(role.iter().take(wanted - 1).chain(role.last()));
            }
            let Some(stands) = self.standing(&chosen) else { continue };
            for rank in role {
                if !chosen.contains(&rank) && !recorded.contains(&rank) {
                    self.plays[rank as usize] = stands;
                }
            }
        }
    }

    /// Of the recorded ranks of a role the one that stands for the others: the second, since the first often does
    /// more than the others (it logs, it saves), or the last if there are only two.
    fn standing(&self, chosen: &BTreeSet<u32>) -> Option<u32> {
        match chosen.len() {
            0..=2 => chosen.last().copied(),
            _ => chosen.iter().nth(1).copied(),
        }
    }

    /// The rank that stands for the others of a role, and those whose calls must equal its own.
    fn witnesses(&self, role: &[u32]) -> Option<(u32, Vec<u32>)> {
        let copied = role.iter().find(|rank| !self.is_recorded(**rank))?;
        let stands = self.plays[*copied as usize];
        let others: Vec<u32> = role
            .iter()
            .copied()
            .filter(|rank| self.is_recorded(*rank) && *rank != stands)
            .collect();
        // With two others the first may do more.
        let from = usize::from(others.len() > 1);
        Some((stands, others.get(from..).unwrap_or_default().to_vec()))
    }

    /// A rank that exchanges values with a recorded one is recorded too, unless a member of the same group stands
    /// for it; so are roots of calls, senders and receivers.
    fn record_whole_groups(&mut self, notes: &NotesByRank) {
        let mut named: Vec<(u32, u32)> = Vec::new();
        for (rank, own) in notes {
            for event in own {
                let ScriptEvent::Call { group, root, peer, .. } = event else { continue };
                let members = self.members(group).map_or(&[][..], |group| &group.ranks);
                let named_here = [*root, *peer].into_iter().flatten();
                named.extend(
                    named_here
                        .filter_map(|at| members.get(at as usize))
                        .map(|named| (*rank, *named)),
                );
            }
        }
        loop {
            let mut wanted: BTreeSet<u32> = BTreeSet::new();
            for (by, rank) in &named {
                if self.is_recorded(*by) {
                    wanted.insert(*rank);
                }
            }
            for family in self.families.iter().filter(|family| family.called) {
                let groups: BTreeSet<usize> = self
                    .recorded()
                    .iter()
                    .filter_map(|rank| family.place.get(*rank as usize).copied().flatten())
                    .map(|(group, _)| group)
                    .collect();
                for (at, group) in groups.iter().filter_map(|at| Some((*at, self.groups.get(*at)?)))
                {
                    wanted.extend(group.ranks.iter().copied().filter(|rank| {
                        let stands = self.plays.get(*rank as usize).copied().unwrap_or(*rank);
                        let place = family.place.get(stands as usize).copied().flatten();
                        place.is_none_or(|(there, _)| there != at)
                    }));
                }
            }
            wanted.retain(|rank| !self.is_recorded(*rank));
            if wanted.is_empty() {
                return;
            }
            for rank in wanted {
                self.plays[rank as usize] = rank;
            }
        }
    }

    /// By rank, the recorded rank whose calls it makes: itself if it is recorded.
    #[must_use]
    pub fn plays(&self) -> &[u32] {
        &self.plays
    }

    /// The ranks that are recorded themselves.
    #[must_use]
    pub fn recorded(&self) -> BTreeSet<u32> {
        self.plays.iter().copied().collect()
    }

    /// Comparisons of the rank in the script whose outcome for the other ranks is not known, with their lines.
    #[must_use]
    pub fn untold(&self) -> &BTreeSet<String> {
        &self.untold
    }

    /// The ranks that a recorded rank stands for, by that rank.
    #[must_use]
    pub fn copies(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut copies: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (stands, rank) in self.plays.iter().zip(0..) {
            if *stands != rank {
                copies.entry(*stands).or_default().push(rank);
            }
        }
        copies
    }

    /// The ranks of roles for which what was recorded is no proof: ranks of a role made other calls than the one
    /// that stands for it, or a call cannot be carried over to another rank.
    #[must_use]
    pub fn unproved(&self, notes: &NotesByRank) -> BTreeSet<u32> {
        let mut unproved = BTreeSet::new();
        for role in &self.roles {
            let Some((stands, witnesses)) = self.witnesses(role) else { continue };
            let calls = |rank: u32| -> Vec<&ScriptEvent> {
                notes.get(&rank).into_iter().flatten().filter(|event| is_compared(event)).collect()
            };
            let own = calls(stands);
            let same = |witness: &u32| {
                let theirs = calls(*witness);
                own.len() == theirs.len()
                    && own.iter().zip(theirs).all(|(own, theirs)| {
                        self.carried(stands, *witness, own).is_some_and(|own| equal(&own, theirs))
                    })
            };
            let mut copies = role.iter().filter(|rank| !self.is_recorded(**rank));
            let carries =
                |rank: &u32| own.iter().all(|own| self.carried(stands, *rank, own).is_some());
            if !witnesses.iter().all(same) || !copies.all(carries) {
                unproved.extend(role);
            }
        }
        unproved
    }

    /// The notes of a rank: its own if it was recorded, else those of the rank that stands for it.
    #[must_use]
    pub fn events_of(&self, rank: u32, notes: &NotesByRank) -> Vec<ScriptEvent> {
        let stands = self.plays.get(rank as usize).copied().unwrap_or(rank);
        let own = notes.get(&stands).map_or(&[][..], Vec::as_slice);
        if stands == rank {
            return own.to_vec();
        }
        let what = format!("the calls are a copy of rank {stands}'s, which plays the same role");
        let remark = ScriptEvent::Assumed { what, at: None };
        std::iter::once(remark)
            .chain(own.iter().filter_map(|event| self.carried(stands, rank, event)))
            .collect()
    }

    /// True if some rank calls in this group.
    #[must_use]
    pub fn is_called(&self, group: &str) -> bool {
        self.family(group).is_some_and(|family| family.called)
    }

    /// An event of one rank as another of its role would have made it; `None` if that cannot be told.
    fn carried(&self, from: u32, to: u32, event: &ScriptEvent) -> Option<ScriptEvent> {
        let mut event = event.clone();
        match &mut event {
            ScriptEvent::Group { .. }
            | ScriptEvent::GroupOfOthers { .. }
            | ScriptEvent::DataParallel { .. }
            | ScriptEvent::Compared { .. } => return None,
            ScriptEvent::Call { group, peer, in_splits, out_splits, .. } => {
                let family = self.family(group)?;
                let (own, place) = family.place.get(from as usize).copied().flatten()?;
                let (other, other_place) = family.place.get(to as usize).copied().flatten()?;
                let members = &self.groups.get(own)?.ranks;
                if own == other {
                    let even = |splits: &Option<Vec<u64>>| {
                        splits
                            .as_ref()
                            .is_none_or(|parts| parts.windows(2).all(|two| two[0] == two[1]))
                    };
                    if !even(in_splits) || !even(out_splits) {
                        return None;
                    }
                    if let Some(peer) = peer {
                        let moved = self.moved(*members.get(*peer as usize)?, from, to)?;
                        *peer = members.iter().position(|rank| *rank == moved)? as u32;
                    }
                } else {
                    let theirs = self.groups.get(other)?;
                    let as_in_own =
                        |(own, other): (&u32, &u32)| self.moved(*own, from, to) == Some(*other);
                    let alike = members.len() == theirs.ranks.len()
                        && members.iter().zip(&theirs.ranks).all(as_in_own);
                    if place != other_place || !alike {
                        return None;
                    }
                    *group = theirs.id.clone();
                }
            }
            _ => {}
        }
        Some(event)
    }

    /// The rank that is to `to` what `rank` is to `from`: the same part of its replica.
    fn moved(&self, rank: u32, from: u32, to: u32) -> Option<u32> {
        let slice = |rank: u32| self.slice.get(rank as usize).copied();
        if slice(rank)? != slice(from)? {
            return None;
        }
        self.parts.get(*self.part.get(rank as usize)?)?.get(slice(to)?).copied()
    }

    fn place(&self, family: usize, rank: u32) -> Option<PlaceInGroup> {
        self.families.get(family)?.place.get(rank as usize).copied().flatten()
    }

    fn family(&self, group: &str) -> Option<&Family> {
        self.families.get(*self.family_of.get(group)?)
    }

    fn members(&self, group: &str) -> Option<&Members> {
        let family = self.family(group)?;
        let mut groups = family.groups.iter().filter_map(|at| self.groups.get(*at));
        groups.find(|known| known.id == group)
    }

    fn is_recorded(&self, rank: u32) -> bool {
        self.plays.get(rank as usize) == Some(&rank)
    }
}

impl Family {
    /// True if a group is a further one of these: as large, with other ranks.
    fn takes(&self, group: &Members, groups: &[Members]) -> bool {
        let first = self.groups.first().and_then(|at| groups.get(*at));
        let free = |rank: &u32| self.place.get(*rank as usize).is_some_and(Option::is_none);
        first.is_some_and(|first| first.ranks.len() == group.ranks.len())
            && group.ranks.iter().all(free)
    }

    /// True if these ranks are all in one group of the family.
    fn holds_all(&self, ranks: &[u32]) -> bool {
        let group = |rank: &u32| self.place.get(*rank as usize).copied().flatten().map(|it| it.0);
        let first = ranks.first().and_then(group);
        first.is_some() && ranks.iter().all(|rank| group(rank) == first)
    }
}

/// By rank the lowest rank that it is joined with by these groups, directly or through others.
fn joined(world_size: u32, groups: &[Vec<u32>]) -> Vec<u32> {
    let mut lowest: Vec<u32> = (0..world_size).collect();
    loop {
        let mut changed = false;
        for group in groups {
            let of = |rank: &u32| lowest.get(*rank as usize).copied();
            let Some(least) = group.iter().filter_map(of).min() else { continue };
            for rank in group {
                if let Some(own) = lowest.get_mut(*rank as usize).filter(|own| **own != least) {
                    *own = least;
                    changed = true;
                }
            }
        }
        if !changed {
            return lowest;
        }
    }
}

/// Events in which ranks of a role must agree: calls, and how the script ended.
fn is_compared(event: &ScriptEvent) -> bool {
    matches!(
        event,
        ScriptEvent::Call { .. }
            | ScriptEvent::Batch
            | ScriptEvent::BatchEnd
            | ScriptEvent::End { .. }
            | ScriptEvent::Step
    )
}

/// True if two events are the same: ranks that raised may have other words in their tracebacks.
fn equal(own: &ScriptEvent, theirs: &ScriptEvent) -> bool {
    match (own, theirs) {
        (
            ScriptEvent::End { status, at, .. },
            ScriptEvent::End { status: other, at: there, .. },
        ) => status == other && at == there,
        _ => own == theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The notes of rank 0 alone on a mesh of replicas times parts, both made as `init_device_mesh` makes them.
    fn mesh(replicas: u32, parts: u32) -> Vec<Value> {
        let size = replicas * parts;
        let world: Vec<u32> = (0..size).collect();
        let mut events = vec![group("world", &world)];
        for part in 0..parts {
            let ranks: Vec<u32> = (0..replicas).map(|replica| replica * parts + part).collect();
            events.push(group(&format!("dp{part}"), &ranks));
        }
        for replica in 0..replicas {
            let ranks: Vec<u32> = (0..parts).map(|part| replica * parts + part).collect();
            events.push(group(&format!("tp{replica}"), &ranks));
        }
        events
    }

    fn group(id: &str, ranks: &[u32]) -> Value {
        json!({"t": "group", "id": id, "name": id, "ranks": ranks, "backend": "nccl"})
    }

    fn call(op: &str, group: &str, size: u64) -> Value {
        json!({"t": "call", "id": 0, "op": op, "group": group, "dtype": "float32", "in": [size], "out": [size]})
    }

    fn events(noted: Vec<Value>) -> Vec<ScriptEvent> {
        noted.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect()
    }

    fn derived(size: u32, notes: &NotesByRank) -> Roles {
        let recorded = notes.keys().copied().filter(|_| notes.len() > 1).collect();
        Roles::derive(size, notes, &recorded, &BTreeSet::new(), 256)
    }

    /// The notes of the ranks that the roles ask for; `extra` gives a rank more calls.
    fn recorded(
        size: u32,
        seen: Vec<Value>,
        own: impl Fn(u32) -> Vec<Value>,
    ) -> (Roles, NotesByRank) {
        let look = [(0, events([seen.clone(), own(0)].concat()))].into();
        let mut ranks = derived(size, &look).recorded();
        loop {
            let notes: NotesByRank = ranks
                .iter()
                .map(|rank| (*rank, events([seen.clone(), own(*rank)].concat())))
                .collect();
            let roles = derived(size, &notes);
            if roles.recorded() == ranks {
                return (roles, notes);
            }
            ranks.extend(roles.recorded());
        }
    }

    #[test]
    fn a_replica_is_recorded_with_all_its_parts() {
        let seen = [mesh(128, 8), vec![json!({"t": "data_parallel", "group": "dp0"})]].concat();
        let (roles, notes) = recorded(1024, seen, |rank| {
            let (replica, part) = (rank / 8, rank % 8);
            vec![
                call("all_reduce", &format!("tp{replica}"), 4 + u64::from(part)),
                call("all_gather", &format!("dp{part}"), 9),
            ]
        });
        let expected: BTreeSet<u32> = (0..16).chain(1016..1024).collect();
        assert_eq!(roles.recorded(), expected);
        assert_eq!(roles.unproved(&notes), BTreeSet::new());
        let carried = roles.events_of(8 * 77 + 3, &notes);
        let calls: Vec<(&str, &[u64])> = carried
            .iter()
            .filter_map(|event| match event {
                ScriptEvent::Call { group, inputs, .. } => {
                    Some((group.as_str(), inputs.as_slice()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(calls, [("tp77", &[7][..]), ("dp3", &[9])]);
    }

    #[test]
    fn ranks_that_a_comparison_tells_apart_are_recorded() {
        let seen = vec![
            group("world", &(0..1024).collect::<Vec<u32>>()),
            json!({"t": "data_parallel", "group": "world"}),
            json!({"t": "compared", "what": "rank == 417", "true": [417]}),
            json!({"t": "compared", "what": "rank == chosen"}),
        ];
        let (roles, notes) = recorded(1024, seen, |rank| {
            vec![call("all_reduce", "world", 4); if rank == 417 { 1 } else { 2 }]
        });
        assert_eq!(roles.recorded(), [0, 1, 417, 1023].into());
        assert_eq!(roles.unproved(&notes), BTreeSet::new());
        assert_eq!(roles.untold().len(), 1);
    }

    #[test]
    fn witnesses_that_disagree_prove_nothing() {
        let world: Vec<u32> = (0..16).collect();
        let seen = vec![group("world", &world), json!({"t": "data_parallel", "group": "world"})];
        let (roles, notes) = recorded(16, seen.clone(), |rank| {
            vec![call("all_reduce", "world", 4); if rank < 5 { 3 } else { 2 }]
        });
        assert_eq!(roles.recorded().len(), 3);
        assert_eq!(roles.unproved(&notes), world.iter().copied().collect());
        let all = Roles::derive(16, &notes, &roles.recorded(), &roles.unproved(&notes), 256);
        assert_eq!(all.recorded().len(), 16);
        // The first rank may do more than the others.
        let (roles, notes) = recorded(16, seen, |rank| {
            vec![call("all_reduce", "world", 4); if rank == 0 { 3 } else { 2 }]
        });
        assert_eq!(roles.unproved(&notes), BTreeSet::new());
        assert_eq!(roles.copies().into_keys().collect::<Vec<u32>>(), [1]);
    }

    #[test]
    fn uneven_parts_and_messages_to_other_replicas_are_not_carried_over() {
        let world: Vec<u32> = (0..16).collect();
        let seen = vec![group("world", &world), json!({"t": "data_parallel", "group": "world"})];
        let (mut uneven, mut sent) = (call("all_to_all", "world", 17), call("send", "world", 4));
        uneven["in_splits"] = json!([2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        sent["peer"] = json!(1);
        for own in [uneven, sent] {
            let (roles, notes) = recorded(16, seen.clone(), |_| vec![own.clone()]);
            assert_eq!(roles.unproved(&notes), world.iter().copied().collect());
        }
    }

    #[test]
    fn without_averaged_gradients_every_rank_is_recorded() {
        let (roles, _) = recorded(12, mesh(4, 3), |rank| {
            vec![call("all_reduce", &format!("tp{}", rank / 3), 1)]
        });
        assert_eq!(roles.recorded().len(), 12);
    }
}
