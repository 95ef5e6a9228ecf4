//! The statements of ranks that gave up on a call: gloo raises where a call times out, and where a peer closes its
//! connection.

use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// Lines at which ranks gave up that are told.
const SHOWN: usize = 4;

/// The call in which a rank gave up.
pub(crate) fn call_of(it: &Statement) -> Option<&str> {
    match &it.said {
        Said::GaveUp { call, .. } => call.as_deref(),
        _ => None,
    }
}

/// The ranks that gave up on a call.
pub(crate) fn who(heard: &Heard) -> BTreeSet<GlobalRank> {
    let gave_up = |it: &&Statement| matches!(it.said, Said::GaveUp { .. });
    heard.statements.iter().filter(gave_up).map(|it| it.rank).collect()
}

/// The call in which all of these ranks gave up, where they all receive or all send.
pub(crate) fn only_messages<'a>(about: &[&'a Statement]) -> Option<&'a str> {
    let calls: Option<BTreeSet<&str>> = about.iter().map(|it| call_of(it)).collect();
    match calls?.into_iter().collect::<Vec<_>>().as_slice() {
        [call @ ("recv" | "send")] => Some(call),
        _ => None,
    }
}

/// The line in which a rank gave up.
pub(crate) fn frame_of(it: &Statement) -> Option<&str> {
    match &it.said {
        Said::GaveUp { frame, .. } => frame.as_deref(),
        _ => None,
    }
}

/// `ranks 0-1 in all_reduce at train.py:20 ("dist.all_reduce(x)"), rank 2 at train.py:33`.
pub(crate) fn places(about: &[&Statement]) -> String {
    let mut places: BTreeMap<[Option<&str>; 3], Vec<GlobalRank>> = BTreeMap::new();
    for it in about {
        if let Said::GaveUp { frame, source, call, .. } = &it.said {
            let place = [frame, source, call].map(Option::as_deref);
            let ranks = places.entry(place).or_default();
            if !ranks.contains(&it.rank) {
                ranks.push(it.rank);
            }
        }
    }
    places.values_mut().for_each(|ranks| ranks.sort_unstable());
    let said = places.iter().take(SHOWN).enumerate().map(|(nth, ([frame, source, call], list))| {
        let who = if nth == 0 && frame.is_none() { cap_ranks(list) } else { ranks(list) };
        let call = call.map(|call| format!(" in {call}")).unwrap_or_default();
        let at = frame.map(|frame| format!(" at {frame}")).unwrap_or_default();
        let line = source.map(|line| format!(" (\"{line}\")")).unwrap_or_default();
        format!("{who}{call}{at}{line}")
    });
    let mut said: Vec<String> = said.collect();
    if places.len() > SHOWN {
        said.push(format!("others at {} more lines", places.len() - SHOWN));
    }
    said.join(", ")
}
