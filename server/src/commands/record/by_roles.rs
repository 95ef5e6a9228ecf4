//! `lockstep record --ranks roles`: a few ranks of each role are recorded, and the others make the same calls.
//!
//! First rank 0 is run alone for one optimizer step, to see the process groups. Then the chosen ranks are recorded.
//! If their notes are no proof that others play their role, more ranks are recorded.

use super::arguments::Arguments;
use super::hub::{Cut, Noted};
use super::launch::Launch;
use super::pass::{MAX_PROCESSES, Pass, record as record_some};
use anyhow::{Result, bail};
use lockstep_core::rank::GlobalRank;
use lockstep_core::words::rank_list;
use lockstep_replay::script::Roles;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// More often the chosen ranks are not extended.
const MAX_PASSES: usize = 6;

/// A recorded rank and the ranks that it stands for.
#[derive(Debug, Serialize)]
pub(super) struct PrintedRole {
    rank: u32,
    stands_for: Vec<u32>,
}

impl fmt::Display for PrintedRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others: Vec<GlobalRank> = self.stands_for.iter().copied().map(GlobalRank).collect();
        write!(f, "rank {} stands for {} others: {}", self.rank, others.len(), rank_list(&others))
    }
}

/// The recorded ranks that stand for others.
pub(super) fn printed(roles: &Roles) -> Vec<PrintedRole> {
    let copies = roles.copies().into_iter();
    copies.map(|(rank, stands_for)| PrintedRole { rank, stands_for }).collect()
}

/// Records one rank of each role, and as many more as it takes to prove the roles.
pub(super) fn record(
    arguments: &Arguments,
    launch: &Launch,
    (world_size, ranks_per_node): (u32, u32),
) -> Result<(Noted, Roles)> {
    let most = MAX_PROCESSES as usize;
    let nobody = vec![0; world_size as usize];
    let look = Pass {
        world_size,
        ranks_per_node,
        ranks: &[0],
        plays: Some(&nobody),
        steps: Some(1),
        looks: true,
    };
    eprintln!("by roles: running rank 0 alone for a step, to see the process groups");
    let seen = record_some(arguments, launch, look)?;
    if seen.cut == Some(Cut::Cancelled) {
        bail!("cancelled before anything was recorded");
    }
    let (mut recorded, mut unproved) = (BTreeSet::new(), BTreeSet::new());
    let mut notes = seen.events;
    for _ in 0..MAX_PASSES {
        let roles = Roles::derive(world_size, &notes, &recorded, &unproved, most);
        recorded = roles.recorded();
        let ranks: Vec<u32> = recorded.iter().copied().collect();
        if ranks.len() > most {
            bail!(
                "{} of {world_size} ranks would have to be recorded themselves, and {most} can be: no two ranks are \
                 known to play the same role, unless their gradients are averaged by DDP, FSDP, ZeRO or an \
                 all_reduce of each, and their calls are equal. Record a smaller world",
                ranks.len()
            );
        }
        let shown: Vec<GlobalRank> = ranks.iter().copied().map(GlobalRank).collect();
        eprintln!(
            "by roles: recording {} of {world_size} ranks: {}",
            ranks.len(),
            rank_list(&shown)
        );
        let steps = arguments.steps;
        let plays = Some(roles.plays());
        let pass = Pass { world_size, ranks_per_node, ranks: &ranks, plays, steps, looks: false };
        let noted = record_some(arguments, launch, pass)?;
        let again = Roles::derive(world_size, &noted.events, &recorded, &unproved, most);
        let failed = again.unproved(&noted.events);
        let needed = again.recorded();
        if noted.cut.is_some() || (failed.is_empty() && needed.is_subset(&recorded)) {
            tell(&again);
            return Ok((noted, again));
        }
        if !failed.is_empty() {
            let shown: Vec<GlobalRank> = failed.iter().copied().map(GlobalRank).collect();
            eprintln!(
                "by roles: {} make calls of their own, or calls that cannot be carried over: recorded themselves",
                rank_list(&shown)
            );
        }
        unproved.extend(failed);
        recorded.extend(needed);
        notes = noted.events;
    }
    bail!(
        "the roles of this script's ranks could not be found in {MAX_PASSES} recordings: record a smaller world"
    )
}

/// Says on stderr who was recorded for whom.
fn tell(roles: &Roles) {
    let printed = printed(roles);
    if printed.is_empty() {
        eprintln!("by roles: no rank is known to play another's role, all were recorded");
    }
    for role in printed {
        eprintln!("by roles: {role}");
    }
    for comparison in roles.untold() {
        eprintln!("by roles: {comparison} was not evaluated for the ranks that were not recorded");
    }
}
