//! Dumps that an older attempt of a job left behind, for ranks that left none this time: in a folder that is
//! overwritten, only the times show them.
//!
//! A call that needs every rank cannot have ended on one before another made it. If all of a dump's calls lie
//! long before the others' of the same numbers, and such a one had ended, the dump is of another attempt, or
//! of a machine whose clock is wrong by as much.

use super::names::call_name;
use super::{Dump, Entry, FlightRecorderError, Site};
use crate::problem::FileProblem;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// Clocks are off by less than this, and attempts apart by more.
const CLOCKS_NS: u64 = 600_000_000_000;

/// The dumps without those of an older attempt, of which `problems` gets a line.
pub(super) fn without(dumps: Vec<Dump>, problems: &mut Vec<FileProblem>) -> Vec<Dump> {
    let last = |dump: &Dump| dump.entries.iter().map(|entry| entry.created_ns).max();
    let newest = dumps.iter().filter_map(last).max().unwrap_or(0);
    let old = |dump: &Dump| last(dump).is_some_and(|last| last.saturating_add(CLOCKS_NS) < newest);
    if !dumps.iter().any(old) {
        return dumps;
    }
    let mut made: BTreeMap<Key<'_>, u64> = BTreeMap::new();
    for (key, _, entry, _) in dumps.iter().filter(|dump| !old(dump)).flat_map(calls) {
        let first = made.entry(key).or_insert(entry.created_ns);
        *first = entry.created_ns.min(*first);
    }
    let apart: Vec<Option<u64>> =
        dumps.iter().map(|dump| old(dump).then(|| before(dump, &made)).flatten()).collect();
    let stale = apart.iter().flatten().count();
    // One machine whose clock is ahead makes all others old.
    let Some(least) = apart.iter().flatten().min().filter(|_| stale * 2 <= dumps.len()) else {
        return dumps;
    };
    let minutes = least / 60_000_000_000;
    let (kept, left): (Vec<_>, Vec<_>) =
        dumps.into_iter().zip(apart).partition(|(_, apart)| apart.is_none());
    if let Some((first, _)) = left.first() {
        let file = first.file_name.clone();
        let error = FlightRecorderError::OtherAttempt { file, files: left.len(), minutes };
        problems.push(error.of_file(first.file_name.clone()));
    }
    kept.into_iter().map(|(dump, _)| dump).collect()
}

/// By how much a dump's calls lie before those that newer dumps hold under the same numbers, at the
/// least; `None` where one does not, or none of them shows that this is impossible.
fn before(dump: &Dump, made: &BTreeMap<Key<'_>, u64>) -> Option<u64> {
    let mut least: Option<u64> = None;
    let mut impossible = false;
    for (key, site, entry, next) in calls(dump) {
        let Some(theirs) = made.get(&key) else { continue };
        let timeout = site.timeout_ms.unwrap_or(0).saturating_mul(1_000_000).max(CLOCKS_NS);
        let apart = theirs.checked_sub(entry.created_ns).filter(|apart| *apart > timeout)?;
        least = Some(least.map_or(apart, |least| least.min(apart)));
        let ended = entry.completed_ns.or(next.map(|next| next.created_ns));
        let ended = ended.filter(|_| entry.completed && needs_all(site));
        impossible |= ended.is_some_and(|ended| ended.saturating_add(timeout) < *theirs);
    }
    least.filter(|_| impossible)
}

/// A group that dumps of one attempt have in common, and a number of it: of the default group, which
/// every rank is in and whose size attempts may differ in, nothing else is needed; other groups have a
/// name and members.
type Key<'a> = (Option<(&'a str, &'a [GlobalRank])>, u64);

/// The numbered collectives of a dump, each with the entry behind it.
fn calls(dump: &Dump) -> impl Iterator<Item = (Key<'_>, &Site, &Entry, Option<&Entry>)> {
    dump.entries.iter().enumerate().filter_map(|(at, entry)| {
        let site = dump.site(entry).filter(|site| !site.p2p && entry.created_ns > 0)?;
        let default =
            site.group_desc.as_ref() == "default_pg" || (site.group.is_none() && site.pg_id == 0);
        let group = match default {
            true => None,
            // Without its members nobody knows which group of that name it is.
            false => {
                let name = site.group.as_deref().filter(|name| !name.is_empty())?;
                let known = dump.groups.iter().find(|group| group.name == name)?;
                let members = (!known.ranks.is_empty()).then_some(known.ranks.as_slice())?;
                Some((name, members))
            }
        };
        Some(((group, entry.collective_seq?), site, entry, dump.entries.get(at + 1)))
    })
}

/// True if a collective ends on no rank before all have come.
fn needs_all(site: &Site) -> bool {
    let op = call_name(&site.profiling_name).op;
    matches!(op, "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier")
}
