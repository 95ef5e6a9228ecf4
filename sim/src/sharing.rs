//! Links that calls share: how fast each call in flight goes on.
//!
//! A call with a known time is a *flow*: alone it takes that time, and a part of each of its links.
//! If the parts of all flows on a link add up to more than the link, they share it max-min
//! fairly (Bertsekas, Gallager 1992, section 6.5.2): the level that every flow gets of its most
//! loaded link rises until a link is full, whose flows then stay at that level, and so on. A flow
//! that slows down does so on all of its links. Progress is counted in picoseconds of the time
//! alone, rounded down, so that a link never carries more than it can.
//!
//! Only flows that full links connect with the one that begins or ends are looked at again.

use lockstep_core::plan::LinkLoad;
use std::collections::{BTreeMap, BTreeSet};

/// The rate of a flow that nothing slows.
const WHOLE: u64 = 1 << 30;

/// A flow's number; numbers are not used again.
pub(crate) type FlowId = u32;

/// A call in flight.
#[derive(Clone, Debug)]
struct Flow {
    loads: Vec<LinkLoad>,
    /// Time that it would still take alone, in picoseconds, at `since`.
    remaining: u64,
    since: u64,
    /// Parts of [`WHOLE`].
    rate: u64,
}

impl Flow {
    /// The load of its most loaded link.
    fn most(&self) -> u64 {
        self.loads.iter().map(|load| u64::from(load.load)).max().unwrap_or(0).max(1)
    }

    fn ends(&self) -> u64 {
        if self.rate == WHOLE {
            return self.since.saturating_add(self.remaining);
        }
        let takes =
            (u128::from(self.remaining) * u128::from(WHOLE)).div_ceil(self.rate.max(1).into());
        self.since.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX))
    }

    fn go_on(&mut self, now: u64) {
        let elapsed = u128::from(now.saturating_sub(self.since));
        let done = elapsed * u128::from(self.rate) / u128::from(WHOLE);
        self.remaining = self.remaining.saturating_sub(u64::try_from(done).unwrap_or(u64::MAX));
        self.since = now;
    }
}

/// A link with flows on it.
#[derive(Clone, Debug, Default)]
struct SharedLink {
    /// Its flows and their loads, in increasing order.
    flows: BTreeMap<FlowId, u32>,
    /// The sum of their loads.
    load: u64,
}

impl SharedLink {
    fn is_full(&self) -> bool {
        self.load > u64::from(LinkLoad::FULL)
    }
}

/// The flows and the links that they load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sharing {
    flows: BTreeMap<FlowId, Flow>,
    links: BTreeMap<u32, SharedLink>,
    begun: FlowId,
}

/// Flows whose ends have changed, with their new ends in picoseconds.
pub(crate) type NewEnds = Vec<(FlowId, u64)>;

impl Sharing {
    /// Begins a flow that takes so long alone: its number, its end, and the flows whose ends change
    /// with it.
    pub(crate) fn begin(
        &mut self,
        now: u64,
        takes: u64,
        loads: &[LinkLoad],
    ) -> (FlowId, u64, NewEnds) {
        self.begun += 1;
        let id = self.begun;
        for LinkLoad { link, load } in loads {
            let link = self.links.entry(*link).or_default();
            link.flows.insert(id, *load);
            link.load += u64::from(*load);
        }
        let flow = Flow { loads: loads.to_vec(), remaining: takes, since: now, rate: WHOLE };
        let alone = flow.ends();
        self.flows.insert(id, flow);
        let full: Vec<u32> = loads.iter().map(|load| load.link).collect();
        let mut ends = self.share_again(now, full);
        let own = ends.iter().position(|(flow, _)| *flow == id).map(|place| ends.remove(place));
        (id, own.map_or(alone, |(_, ends)| ends), ends)
    }

    /// Ends a flow: the flows whose ends change with it.
    pub(crate) fn end(&mut self, now: u64, id: FlowId) -> NewEnds {
        let Some(flow) = self.flows.remove(&id) else { return Vec::new() };
        let mut were_full = Vec::new();
        for LinkLoad { link: number, load } in flow.loads {
            let Some(link) = self.links.get_mut(&number) else { continue };
            if link.is_full() {
                were_full.push(number);
            }
            link.flows.remove(&id);
            link.load -= u64::from(load);
            if link.flows.is_empty() {
                self.links.remove(&number);
            }
        }
        let neighbours = were_full.iter().filter_map(|link| self.links.get(link));
        let neighbours: BTreeSet<FlowId> =
            neighbours.flat_map(|link| link.flows.keys().copied()).collect();
        let of = |id: &FlowId| self.flows.get(id).map(|flow| flow.loads.as_slice());
        let links = neighbours.iter().filter_map(of).flatten().map(|load| load.link);
        let links: Vec<u32> = links.collect();
        let mut ends = self.share_again(now, links);
        // Flows that no full link holds any more.
        for id in neighbours {
            self.set_rate(now, id, None, &mut ends);
        }
        ends
    }

    /// Gives a flow a rate; the whole one if it is on no full link and none is given.
    fn set_rate(&mut self, now: u64, id: FlowId, rate: Option<u64>, ends: &mut NewEnds) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let links = &self.links;
        let held = |load: &LinkLoad| links.get(&load.link).is_some_and(SharedLink::is_full);
        let rate = match rate {
            Some(rate) => rate,
            None if flow.loads.iter().any(held) => return,
            None => WHOLE,
        };
        if rate == flow.rate {
            return;
        }
        flow.go_on(now);
        flow.rate = rate;
        ends.push((id, flow.ends()));
    }

    /// Shares out the full links among `links` and all that they are connected with.
    fn share_again(&mut self, now: u64, links: Vec<u32>) -> NewEnds {
        let mut full: BTreeMap<u32, Filling> = BTreeMap::new();
        let mut flows: BTreeMap<FlowId, u64> = BTreeMap::new();
        let mut reached = links;
        while let Some(number) = reached.pop() {
            let Some(link) = self.links.get(&number).filter(|link| link.is_full()) else {
                continue;
            };
            if full.contains_key(&number) {
                continue;
            }
            full.insert(number, Filling::default());
            for id in link.flows.keys() {
                let Some(flow) = self.flows.get(id) else { continue };
                if flows.insert(*id, flow.most()).is_none() {
                    reached.extend(flow.loads.iter().map(|load| load.link));
                }
            }
        }
        for (number, filling) in &mut full {
            let Some(link) = self.links.get(number) else { continue };
            let slopes =
                link.flows.iter().filter_map(|(id, load)| Some(slope(*load, *flows.get(id)?)));
            filling.slope = slopes.sum();
        }
        let mut ends = Vec::new();
        while let Some(level) = lowest_level(&full, &flows) {
            let (mut whole, mut held) = (Vec::new(), Vec::new());
            for (number, filling) in &full {
                if filling.level().is_some_and(|of_link| of_link <= level)
                    && let Some(link) = self.links.get(number)
                {
                    held.extend(link.flows.keys().copied().filter(|id| flows.contains_key(id)));
                }
            }
            whole.extend(
                flows.iter().filter(|(_, most)| **most * WHOLE <= level).map(|(id, _)| *id),
            );
            let rates = whole
                .into_iter()
                .map(|id| (id, true))
                .chain(held.into_iter().map(|id| (id, false)));
            for (id, whole) in rates {
                let Some(most) = flows.remove(&id) else { continue };
                let rate = if whole { WHOLE } else { (level / most).clamp(1, WHOLE) };
                for load in self.flows.get(&id).into_iter().flat_map(|flow| &flow.loads) {
                    if let Some(filling) = full.get_mut(&load.link) {
                        filling.taken += u128::from(rate) * u128::from(load.load);
                        filling.slope = filling.slope.saturating_sub(slope(load.load, most));
                    }
                }
                self.set_rate(now, id, Some(rate), &mut ends);
            }
        }
        ends.sort_unstable();
        ends
    }

    /// The load of every link, in parts of [`LinkLoad::FULL`], rounded up.
    #[cfg(test)]
    fn carried(&self) -> BTreeMap<u32, u64> {
        let carried = |link: &SharedLink| {
            let of =
                |(id, load): (&FlowId, &u32)| u128::from(self.flows[id].rate) * u128::from(*load);
            link.flows.iter().map(of).sum::<u128>().div_ceil(WHOLE.into()) as u64
        };
        self.links.iter().map(|(number, link)| (*number, carried(link))).collect()
    }
}

/// A full link while its flows' levels rise.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    /// The load of flows whose rate is known: parts of a link times parts of a rate.
    taken: u128,
    /// The rate at which the others fill it as the level rises: parts of [`WHOLE`], rounded up.
    slope: u128,
}

impl Filling {
    /// The level at which it is full: parts of a link times [`WHOLE`].
    fn level(&self) -> Option<u64> {
        let left = (u128::from(LinkLoad::FULL) * u128::from(WHOLE)).saturating_sub(self.taken);
        let level = (left * u128::from(WHOLE)).checked_div(self.slope)?;
        Some(u64::try_from(level).unwrap_or(u64::MAX))
    }
}

/// The load of a flow on a link when its most loaded link, with `most`, is at level 1.
fn slope(load: u32, most: u64) -> u128 {
    (u128::from(load) * u128::from(WHOLE)).div_ceil(most.max(1).into())
}

/// The next level at which a link is full, or a flow has all it wants.
fn lowest_level(full: &BTreeMap<u32, Filling>, flows: &BTreeMap<FlowId, u64>) -> Option<u64> {
    let wanted = flows.values().map(|most| most * WHOLE).min()?;
    let filled = full.values().filter_map(Filling::level).min();
    Some(filled.map_or(wanted, |filled| filled.min(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Flows by when they begin, what they take alone and their loads; when each ends.
    fn ends(flows: &[(u64, u64, Vec<LinkLoad>)]) -> Vec<u64> {
        let mut sharing = Sharing::default();
        let mut pending: BTreeMap<FlowId, (usize, u64)> = BTreeMap::new();
        let mut done = vec![0; flows.len()];
        let mut begins: Vec<usize> = (0..flows.len()).collect();
        begins.sort_by_key(|place| flows[*place].0);
        let mut begins = begins.into_iter().peekable();
        loop {
            let next = pending.iter().map(|(id, (_, end))| (*end, *id)).min();
            let begin = begins.peek().map(|place| flows[*place].0);
            let changed = match (next, begin) {
                (None, None) => return done,
                (Some((end, id)), begin) if begin.is_none_or(|begin| end <= begin) => {
                    let (place, _) = pending.remove(&id).unwrap();
                    done[place] = end;
                    sharing.end(end, id)
                }
                _ => {
                    let place = begins.next().unwrap();
                    let (begin, takes, loads) = &flows[place];
                    let (id, end, changed) = sharing.begin(*begin, *takes, loads);
                    pending.insert(id, (place, end));
                    changed
                }
            };
            for (id, end) in changed {
                pending.get_mut(&id).unwrap().1 = end;
            }
            let most = sharing.carried().into_values().max().unwrap_or(0);
            assert!(most <= u64::from(LinkLoad::FULL), "{most}");
        }
    }

    fn on(links: &[(u32, u32)]) -> Vec<LinkLoad> {
        links.iter().map(|(link, load)| LinkLoad { link: *link, load: *load }).collect()
    }

    const FULL: u32 = LinkLoad::FULL;

    #[test]
    fn two_alike_take_twice_as_long_and_the_rest_of_a_longer_one_its_own_time() {
        let flow = |begin, takes| (begin, takes, on(&[(7, FULL)]));
        assert_eq!(ends(&[flow(0, 1000), flow(0, 1000)]), [2000, 2000]);
        assert_eq!(ends(&[flow(0, 1000), flow(0, 5000)]), [2000, 6000]);
        assert_eq!(ends(&[flow(0, 1000), flow(600, 1000)]), [1400, 2000]);
    }

    /// Max-min: who wants less than an equal share gets it, and the others share what is left.
    #[test]
    fn a_small_flow_is_not_slowed_and_a_slow_one_leaves_room_elsewhere() {
        let small = (0, 1000, on(&[(0, FULL / 4)]));
        let large = (0, 1000, on(&[(0, FULL)]));
        let ended = ends(&[small, large]);
        // Three quarters until 1,000, then all.
        assert_eq!(ended, [1000, 1250]);
        // b is held by link 0 to a third; c has two thirds of link 1.
        let flows =
            [on(&[(0, FULL)]), on(&[(0, FULL)]), on(&[(0, FULL), (1, FULL)]), on(&[(1, FULL)])];
        let mut sharing = Sharing::default();
        for loads in &flows {
            sharing.begin(0, 1 << 40, loads);
        }
        let rates: Vec<u64> = sharing.flows.values().map(|flow| flow.rate * 300 / WHOLE).collect();
        assert_eq!(rates, [99, 99, 99, 200]);
    }

    fn flow() -> impl Strategy<Value = (u64, u64, Vec<LinkLoad>)> {
        let loads = prop::collection::btree_map(0u32..5, 1u32..=FULL, 0..4);
        (0u64..2_000_000, 1u64..3_000_000, loads).prop_map(|(begin, takes, loads)| {
            (begin, takes, on(&loads.into_iter().collect::<Vec<_>>()))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
        /// Alone exactly its time, never faster in company, and no link above what it carries
        /// (asserted in `ends`).
        #[test]
        fn company_never_speeds_a_flow(flows in prop::collection::vec(flow(), 1..9)) {
            let alone = flows.iter().map(|(begin, takes, _)| begin + takes);
            for (ended, alone) in ends(&flows).into_iter().zip(alone) {
                prop_assert!(ended >= alone);
            }
            prop_assert_eq!(ends(&flows[..1])[0], flows[0].0 + flows[0].1);
        }

        /// Bytes are conserved: all that flows carry over one link takes at least its time there,
        /// and no longer than one after the other.
        #[test]
        fn a_link_carries_all_bytes_and_no_more(flows in prop::collection::vec(flow(), 1..9)) {
            let flows: Vec<_> = flows.into_iter().map(|(_, takes, loads)| (0, takes, loads)).collect();
            let last = ends(&flows).into_iter().max().unwrap();
            for link in 0..5 {
                let of = |(_, takes, loads): &(u64, u64, Vec<LinkLoad>)| {
                    let load = loads.iter().find(|load| load.link == link);
                    load.map_or(0, |load| u128::from(*takes) * u128::from(load.load))
                };
                let carried = flows.iter().map(of).sum::<u128>() / u128::from(FULL);
                prop_assert!(u128::from(last) >= carried);
            }
            let in_turn: u64 = flows.iter().map(|(_, takes, _)| takes).sum();
            prop_assert!(last <= in_turn + 100, "{} {}", last, in_turn);
        }

        /// On one link one more flow speeds nobody. (On several it can: who is slowed on one link
        /// leaves room on another.)
        #[test]
        fn one_more_on_a_link_speeds_nobody(
            flows in prop::collection::vec((0u64..2_000_000, 1u64..3_000_000, 1u32..=FULL), 2..9)
        ) {
            let flows: Vec<_> =
                flows.into_iter().map(|(begin, takes, load)| (begin, takes, on(&[(3, load)]))).collect();
            let (all, without) = (ends(&flows), ends(&flows[1..]));
            for (with, without) in all[1..].iter().zip(without) {
                // Rounded to whole picoseconds at every change.
                prop_assert!(with + 20 >= without, "{} {}", with, without);
            }
        }

        /// Flows on other links change nothing.
        #[test]
        fn links_of_their_own_change_nothing(
            flows in prop::collection::vec(flow(), 1..6), others in prop::collection::vec(flow(), 1..6)
        ) {
            let moved = others.into_iter().map(|(begin, takes, mut loads)| {
                loads.iter_mut().for_each(|load| load.link += 10);
                (begin, takes, loads)
            });
            let together: Vec<_> = flows.iter().cloned().chain(moved).collect();
            prop_assert_eq!(&ends(&together)[..flows.len()], ends(&flows));
        }
    }
}
