//! Waits by their cause.

use crate::{GroupRef, Wait, wait_causes};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome, RankLog};
use lockstep_core::words::rank_list;

fn ranks(ranks: &[u32]) -> Vec<GlobalRank> {
    ranks.iter().copied().map(GlobalRank).collect()
}

fn wait(rank: u32, op: &str, group: &str, waits_for: &[u32]) -> Wait {
    Wait {
        rank: GlobalRank(rank),
        group: GroupRef { name: group.to_owned(), desc: String::new(), ranks: Vec::new() },
        seq: Some(7),
        op: op.to_owned(),
        line: None,
        work: 0,
        waits_for: ranks(waits_for),
    }
}

fn told(waits: &[Wait], culprits: &[u32]) -> Vec<String> {
    let log = CallLog {
        world_size: 8,
        groups: Vec::new(),
        ranks: vec![Some(RankLog::default()); 8],
        outcome: Outcome::Unknown,
        recorded: true,
        simulated: false,
        device_times: false,
        ended_ps: None,
        plan: None,
    };
    let groups = wait_causes(&log, waits, &ranks(culprits));
    let told = groups.iter().map(|group| {
        let call = group.call.as_ref().map_or("none".to_owned(), |call| {
            format!("{} of {} ({})", call.op, call.group, call.groups)
        });
        let marks = [(group.culprits, "!"), (group.in_circle, "o")];
        let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        let cause = group.cause.map_or("root".to_owned(), |cause| format!("for {cause}"));
        format!("{}{marks} {}: {call}, {cause}", group.depth, rank_list(&group.ranks))
    });
    told.collect()
}

#[test]
fn ranks_behind_waiting_ranks_are_queued() {
    let waits: Vec<Wait> = [0, 1, 3]
        .map(|rank| wait(rank, "all_reduce", "dp0", &[2]))
        .into_iter()
        .chain([4, 5].map(|rank| wait(rank, "all_gather", &format!("tp{rank}"), &[0])))
        .collect();
    let wanted = [
        "0! 2: none, root",
        "1 0-1, 3: all_reduce of dp0 (1), for 0",
        "2 4-5: all_gather of tp4 (2), for 1",
    ];
    assert_eq!(told(&waits, &[2]), wanted);
    // Without a culprit, who does not wait is the root.
    assert_eq!(told(&waits, &[])[0], "0 2: none, root");
}

#[test]
fn a_circle_is_a_root() {
    let waits = [
        wait(0, "send", "0", &[1]),
        wait(1, "send", "0", &[0]),
        wait(2, "recv", "0", &[1]),
        wait(3, "barrier", "1", &[]),
    ];
    let wanted =
        ["0o 0-1: send of 0 (1), root", "1 2: recv of 0 (1), for 0", "0 3: barrier of 1 (1), root"];
    let mut told = told(&waits, &[]);
    told.sort_by_key(|line| line.ends_with("barrier of 1 (1), root"));
    assert_eq!(told, wanted);
}

#[test]
fn culprits_that_wait_are_roots() {
    let waits = [wait(0, "all_reduce", "0", &[1]), wait(1, "all_to_all", "1", &[0])];
    let wanted = ["0!o 1: all_to_all of 1 (1), root", "1o 0: all_reduce of 0 (1), for 0"];
    assert_eq!(told(&waits, &[1]), wanted);
}
