//! `init_process_group` with a store: whether the ranks meet in it.
//!
//! Each rank's gloo leaves its address in the store and connects to the others in the order of
//! their ranks (`connectFullMesh`): it waits for an address, then for the other end. Who looks into
//! another store finds no address, and keeps those waiting that come to it.

use super::log::{Answer, At, Log, Missing, Op, Place, What};
use crate::stores::wait_result::Found;
use lockstep_core::plan::remark::Lost;
use std::collections::BTreeMap;

/// The prefix of gloo's keys below the store that it is given.
pub(super) const KEYS: &str = "0//cpu//0/";

/// The results of every rank's meetings, as far as all ranks are there.
pub(super) fn meetings(logs: &[Log]) -> BTreeMap<At, Found> {
    let of_rank = |log: &Log| -> Vec<usize> {
        let meets = |(_, op): &(usize, &Op)| op.what == What::Meet;
        log.ops.iter().enumerate().filter(meets).map(|(at, _)| at).collect()
    };
    let own: Vec<Vec<usize>> = logs.iter().map(of_rank).collect();
    let times = own.iter().map(Vec::len).max().unwrap_or(0);
    let mut found = BTreeMap::new();
    for nth in 0..times {
        let here: Vec<Option<usize>> = own.iter().map(|own| own.get(nth).copied()).collect();
        let comes_yet = logs.iter().zip(&here).any(|(log, at)| at.is_none() && log.is_stuck());
        if comes_yet {
            continue;
        }
        let ops: Vec<Option<&Op>> =
            logs.iter().zip(&here).map(|(log, at)| log.ops.get((*at)?)).collect();
        let stops = stops(&ops);
        for (rank, (op, at)) in ops.iter().zip(&here).enumerate() {
            let (Some(op), Some(at)) = (op, at) else { continue };
            let answer = match stops.get(rank) {
                Some(Some(stop)) => Answer::TimesOut(missing(op, *stop, &ops)),
                _ => Answer::Done,
            };
            found.insert((rank, *at), Found::Ready { answer, waits: Vec::new() });
        }
    }
    found
}

/// The rank at which another one stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stop {
    at: usize,
    /// True if the other rank is in another store, or stops before it comes to this rank.
    elsewhere: bool,
}

fn stops(ops: &[Option<&Op>]) -> Vec<Option<Stop>> {
    let place = |op: &Op| (op.store.clone(), op.keys.clone());
    let places: Vec<_> = ops.iter().map(|op| op.map(place)).collect();
    // Whoever does not call it at all is another story, and not one of stores.
    let others = |own: &Option<_>, other: &Option<_>| other.is_some() && own != other;
    let mut stops: Vec<Option<Stop>> = places
        .iter()
        .map(|own| {
            let at = places.iter().position(|other| own.is_some() && others(own, other));
            at.map(|at| Stop { at, elsewhere: true })
        })
        .collect();
    loop {
        let mut changed = false;
        for rank in 0..stops.len() {
            let Some(Some(own)) = stops.get(rank).copied() else { continue };
            let gone = |at: &usize| {
                let same = places.get(*at) == places.get(rank) && *at != rank;
                same && stops.get(*at).is_some_and(|stop| stop.is_some_and(|stop| stop.at < rank))
            };
            if let Some(at) = (0..own.at).find(gone)
                && let Some(stop) = stops.get_mut(rank)
            {
                *stop = Some(Stop { at, elsewhere: false });
                changed = true;
            }
        }
        if !changed {
            return stops;
        }
    }
}

fn missing(op: &Op, stop: Stop, ops: &[Option<&Op>]) -> Missing {
    let keys = op.keys.first().map(String::as_str).unwrap_or_default();
    let key = match stop.elsewhere {
        true => format!("{keys}{}", stop.at),
        false => String::new(),
    };
    let away = |other: &Option<&Op>| {
        other.is_some_and(|other| (&other.store, &other.keys) != (&op.store, &op.keys))
    };
    let who = ops.iter().position(away).unwrap_or(stop.at);
    Missing { key, awaited: format!("rank {who}"), why: Lost::Elsewhere { here: named(op) } }
}

/// The store that a rank gave, in words.
fn named(op: &Op) -> String {
    let keys = op.keys.first().map(String::as_str).unwrap_or_default();
    let prefix = keys.strip_suffix(KEYS).unwrap_or_default().trim_end_matches('/');
    let store = match &*op.store {
        Place::Tcp { host, port } | Place::Server { host, port } => {
            format!("TCPStore {host}:{port}")
        }
        Place::File { path } => format!("FileStore {path:?}"),
        Place::Own { rank, .. } => format!("a HashStore of rank {rank}'s own"),
    };
    match prefix.is_empty() {
        true => store,
        false => format!("{store} under {prefix:?}"),
    }
}
