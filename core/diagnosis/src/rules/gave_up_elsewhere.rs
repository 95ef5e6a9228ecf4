//! Ranks that seem to have stayed away from a call, and gave up by their logs on one that the recording does not hold
//! (a send, a receive, `new_group`, a store): they waited for somebody, too.

use crate::claim::Claim;
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::gave_up::{only_messages, places};
use crate::kinds::Kind;
use crate::words::cap_ranks;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said, Statement, is_timeout};
use std::collections::BTreeSet;

/// Takes such ranks out of the claims that they never came to a call.
pub(crate) fn tell(facts: &Facts<'_, '_>, claims: &mut [Claim]) {
    let heard = &facts.other_sources.heard;
    let world = facts.job.log.world_size;
    let culprits: BTreeSet<GlobalRank> =
        claims.iter().flat_map(|claim| claim.culprits.iter().copied()).collect();
    for claim in claims.iter_mut().filter(|claim| claim.kind == Kind::RankNeverJoined) {
        let mut victims: BTreeSet<GlobalRank> = claim.also_victims.iter().copied().collect();
        victims.extend(facts.graph.waiting_for(&claim.culprits));
        claim.also_victims = victims.into_iter().filter(|rank| !culprits.contains(rank)).collect();
        clear(claim, heard, world);
    }
}

/// Takes out the ranks that gave up elsewhere. The claim's victims are the ranks that wait for its culprits.
fn clear(found: &mut Claim, heard: &Heard, world: u32) {
    let recorded = found.evidence.iter().any(|seen| seen.entry.is_some());
    if found.kind != Kind::RankNeverJoined || !recorded {
        return;
    }
    let on_time = |it: &&Statement| match &it.said {
        Said::GaveUp { error, frame, .. } => frame.is_some() && is_timeout(error),
        _ => false,
    };
    let gave_up: Vec<&Statement> = heard.statements.iter().filter(on_time).collect();
    let at = |it: &Statement| match &it.said {
        Said::GaveUp { frame, .. } => frame.clone(),
        _ => None,
    };
    let theirs: BTreeSet<Option<String>> = gave_up
        .iter()
        .filter(|it| found.also_victims.contains(&it.rank))
        .map(|it| at(it))
        .collect();
    // A rank that gave up in the call in which the others wait only came to it too late.
    let own = |it: &&&Statement| found.culprits.contains(&it.rank) && !theirs.contains(&at(it));
    let elsewhere: Vec<&Statement> = gave_up.iter().filter(own).copied().collect();
    let waited: BTreeSet<GlobalRank> = elsewhere.iter().map(|it| it.rank).collect();
    // If several ranks are equally likely, the call in which one of them waited decides nothing.
    let some = waited.len() < found.culprits.len() && found.alternatives == Alternatives::AsLikely;
    if waited.is_empty() || some {
        return;
    }
    let places = places(&elsewhere);
    found.culprits.retain(|rank| !waited.contains(rank));
    found.also_victims.extend(&waited);
    found.also_victims.sort_unstable();
    found.message.said = format!(
        "{} But the log has {places} give up, too, on what the recorder leaves out (a send, a receive, \
         new_group, a store).",
        found.message.said
    );
    let everybody = found.also_victims.len() == heard.world(world) as usize;
    if let (true, Some(call)) = (everybody, only_messages(&elsewhere)) {
        return unanswered(found, waited, call);
    }
    if found.culprits.is_empty() {
        found.kind = Kind::CallNeverCompleted;
        found.alternatives = Alternatives::AsLikely;
        found.message.said += " Who did not come there is not recorded.";
        found.fix =
            "Look at that line for who was to answer it: a send that was left out, another tag or \
                     peer, a key of the store that nobody sets."
                .to_owned();
    }
}

/// Makes it the finding of ranks that were not answered, where all others of the job wait in a collective.
fn unanswered(found: &mut Claim, waited: BTreeSet<GlobalRank>, call: &str) {
    let answers = if call == "recv" { "sends" } else { "receives" };
    let who = cap_ranks(&waited.iter().copied().collect::<Vec<_>>());
    found.also_victims.retain(|rank| !waited.contains(rank));
    let (kind, alternatives, why) = match waited.len() {
        1 => (
            Kind::P2pMismatch,
            Alternatives::AsLikely,
            "a rank left that out, or made it for another rank or with another tag, or this one is too many",
        ),
        _ => (
            Kind::P2pDeadlock,
            Alternatives::LessLikely,
            "either they wait for each other, or what answers them was left out before",
        ),
    };
    found.message.said += &format!(
        " {who} wait{} there in a {call}, and nobody {answers}, since all others stand in the other call: \
         {why}.",
        if waited.len() == 1 { "s" } else { "" }
    );
    (found.kind, found.alternatives, found.op) = (kind, alternatives, Some(call.to_owned()));
    found.culprits = waited.into_iter().collect();
    found.fix = "Look at that line for who was to answer it: let one side receive first (even ranks send, odd \
                 ranks receive, then the reverse), and look for a message that one rank leaves out, another \
                 tag or another peer."
        .to_owned();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::gave_up::tests::{LATE, raises};
    use crate::logs::log_finding::finding;
    use crate::report::Evidence;

    /// The dumps see a rank stay away; its log, that it waited for another one.
    #[test]
    fn who_gave_up_elsewhere_never_came_for_want_of_others() {
        let log = [raises(0, 37, LATE), raises(1, 37, LATE), raises(3, 35, LATE)];
        let log = lockstep_formats::job_log::read("log", log.concat().as_bytes());
        let heard = Heard::of([("log", &log, None)]);
        let of = |culprits: &[u32]| Claim {
            culprits: culprits.iter().copied().map(GlobalRank).collect(),
            also_victims: vec![GlobalRank(0), GlobalRank(1)],
            evidence: vec![Evidence {
                rank: GlobalRank(0),
                entry: Some(6),
                frame: None,
                place: None,
                note: String::new(),
            }],

            ..finding(
                Kind::RankNeverJoined,
                &heard.statements.iter().collect::<Vec<_>>(),
                String::new(),
                "",
            )
            .unwrap()
        };
        let mut alone = of(&[3]);
        clear(&mut alone, &heard, 4);
        assert_eq!(
            (alone.kind, alone.alternatives),
            (Kind::CallNeverCompleted, Alternatives::AsLikely)
        );
        assert_eq!((alone.culprits.len(), alone.also_victims.len()), (0, 3));
        assert!(
            alone.message.text().contains("rank 3 in all_reduce at job.py:35"),
            "{}",
            alone.message.text()
        );
        let mut both = of(&[2, 3]);
        clear(&mut both, &heard, 4);
        assert_eq!((both.kind, &both.culprits[..]), (Kind::RankNeverJoined, &[GlobalRank(2)][..]));
        // One that came to the others' call too late is to blame all the same.
        let mut late = of(&[1]);
        late.also_victims = vec![GlobalRank(0)];
        clear(&mut late, &heard, 4);
        assert_eq!(late.culprits, [GlobalRank(1)]);
    }

    /// The dumps see them stay away from a collective in which all others wait.
    #[test]
    fn who_is_not_answered_while_all_others_wait_is_told() {
        for (culprits, kind) in [(vec![1, 2], Kind::P2pDeadlock), (vec![2], Kind::P2pMismatch)] {
            let receives = |rank: &u32| culprits.contains(rank);
            let log: String = (0..4)
                .map(|rank| match receives(&rank) {
                    true => raises(rank, 12, LATE).replace("in all_reduce", "in recv"),
                    false => raises(rank, 20, LATE),
                })
                .collect();
            let log = lockstep_formats::job_log::read("log", log.as_bytes());
            let heard = Heard::of([("log", &log, None)]);
            let about: Vec<&Statement> = heard.statements.iter().collect();
            let entry = Some(6);
            let seen = Evidence { entry, ..crate::claim::no_call(GlobalRank(0), "") };
            let never = Claim {
                culprits: culprits.iter().copied().map(GlobalRank).collect(),
                also_victims: (0..4).filter(|rank| !receives(rank)).map(GlobalRank).collect(),
                evidence: vec![seen],

                ..finding(Kind::RankNeverJoined, &about, String::new(), "").unwrap()
            };
            let mut told = never.clone();
            clear(&mut told, &heard, 4);
            assert_eq!(
                (told.kind, &told.culprits),
                (kind, &never.culprits),
                "{}",
                told.message.text()
            );
            assert_eq!(told.also_victims, never.also_victims);
            // One more rank, of which nothing is known, may be the one that answers.
            let mut open = never;
            clear(&mut open, &heard, 5);
            assert_eq!(open.kind, Kind::CallNeverCompleted, "{}", open.message.text());
        }
    }
}
