//! Mistakes on which PyTorch 2.7.1 races or goes wrong while a simulation goes on: groups that
//! ranks make differently, works that nobody holds, calls that fail unheard.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use super::found;
use super::simulated::{report_of, run};
use crate::{Certainty, Kind, diagnose_trace};
use lockstep_program::compile;
use lockstep_scenarios::program::Options;

/// On gloo ranks 0 and 3 found each other, and 1 and 2 hung.
#[test]
fn groups_of_one_name_are_a_race() {
    let own = "    mine = [0, 1] if rank < 2 else [2, 3]
    g = dist.new_group(mine)";
    let order = "    both = [[0, 1], [2, 3]] if rank < 2 else [[2, 3], [0, 1]]
    gs = [dist.new_group(ranks) for ranks in both]";
    for body in [own, order] {
        let report = report_of(body);
        assert_eq!(found(&report), [(Kind::GroupMismatch, vec![0, 1, 2, 3])]);
        let message = &report.findings[0].message;
        assert!(
            message.starts_with(
                "The ranks did not call new_group alike: in call 1, ranks 0-1 called \
                 new_group([0, 1]) (train.py:5), ranks 2-3 called new_group([2, 3]) (train.py:5)."
            ),
            "{message}"
        );
        assert!(message.contains("are both group 1"), "{message}");
        assert!(message.contains("a race"), "{message}");
    }
}

/// PyTorch 2.7.1 lets these pass.
#[test]
fn who_leaves_a_new_group_out_is_named() {
    let report = report_of("    if rank < 2: g = dist.new_group([0, 1])");
    assert_eq!(found(&report), [(Kind::GroupMismatch, vec![2, 3])]);
    let message = &report.findings[0].message;
    assert!(
        message.starts_with(
            "Ranks 2-3 never called new_group([0, 1]), which ranks 0-1 called (train.py:4)."
        ),
        "{message}"
    );
    assert!(message.contains("lets it pass here"), "{message}");
}

#[test]
fn groups_that_are_made_as_they_should_be_are_none() {
    for body in [
        "    gs = [dist.new_group(ranks) for ranks in [[0, 1], [2, 3]]]",
        "    mine = [0, 1] if rank < 2 else [2, 3]
    g = dist.new_group(mine, use_local_synchronization=True)",
        "    mesh = dist.init_device_mesh('cpu', (2, 2))",
        "    own, all = dist.new_subgroups(2)",
    ] {
        let report = report_of(body);
        assert!(report.findings.is_empty(), "{}", report.to_text());
    }
    // Who dies before it makes one is not said to have left it out.
    let report =
        report_of("    if rank == 3: raise ValueError('x')\n    g = dist.new_group([0, 1])");
    assert!(report.findings.iter().all(|finding| finding.kind != Kind::GroupMismatch));
}

#[test]
fn works_that_nobody_holds_are_told() {
    let dropped = "    if rank == 0: dist.isend(torch.ones(1), 1)
    elif rank == 1: dist.recv(torch.ones(1), 0)";
    let several = "    if rank == 0: x = 1; dist.isend(torch.ones(1), 1); y = 2
    elif rank == 1: dist.recv(torch.ones(1), 0)";
    for body in [dropped, several] {
        let report = report_of(body);
        assert_eq!(found(&report), [(Kind::WorkDropped, vec![0])], "{}", report.to_text());
        assert_eq!(report.findings[0].certainty, Certainty::Likely);
        let message = &report.findings[0].message;
        assert!(message.contains("(train.py:4), and nothing else holds it"), "{message}");
        assert!(message.contains("who comes first is a race"), "{message}");
    }
    let received = "    if rank == 0: dist.send(torch.ones(1), 1)
    elif rank == 1: dist.irecv(torch.ones(1), 0)";
    assert_eq!(found(&report_of(received)), [(Kind::WorkDropped, vec![1])]);
    for held in [
        "    if rank == 0: dist.isend(torch.ones(1), 1).wait()
    elif rank == 1: dist.recv(torch.ones(1), 0)",
        // The barrier behind it keeps the process until the receiver has it.
        "    if rank == 0: w = dist.isend(torch.ones(1), 1)
    elif rank == 1: dist.recv(torch.ones(1), 0)",
    ] {
        let report = report_of(held);
        assert!(report.findings.is_empty(), "{}", report.to_text());
    }
}

/// PyTorch 2.7.1 loses the message in each of these: the receiver waits until its timeout.
#[test]
fn works_that_their_name_lets_go_of_are_told() {
    let late = "    elif rank == 1:
        time.sleep(0.2)
        for i in range(2): dist.recv(torch.ones(1), 0)";
    let again = "    if rank == 0:
        q = dist.isend(torch.ones(1), 1)
        q = dist.isend(torch.ones(1), 1)
        q.wait()";
    let in_a_loop = "    if rank == 0:
        for i in range(2): q = dist.isend(torch.ones(1), 1)
        q.wait()";
    let in_a_function = "    def send(x):
        q = dist.isend(x, 1)
        if x is None:
            return 1
        return 2
    if rank == 0:
        dist.send(torch.ones(1), 1)
        assert send(torch.ones(1)) == 2";
    let lists = "    if rank == 0:
        for i in range(2): q = [dist.isend(torch.ones(1), 1)]
        for r in q: r.wait()";
    let nothing = "    if rank == 0:
        dist.send(torch.ones(1), 1)
        q = dist.isend(torch.ones(1), 1)
        q = None";
    for body in [again, in_a_loop, in_a_function, lists, nothing] {
        let report = report_of(&format!("{body}\n{late}"));
        let works = (Kind::WorkDropped, vec![0]);
        assert_eq!(found(&report), [works], "{body}: {}", report.to_text());
        assert_eq!(report.findings[0].certainty, Certainty::Likely);
        let message = &report.findings[0].message;
        assert!(message.contains("is held by q alone, which on rank 0 gets another"), "{message}");
    }
}

/// Works that are waited for, that something else holds, or behind which the program has waited for
/// something, by which it may know that they are done.
#[test]
fn works_that_may_be_held_or_done_are_not_told() {
    for sends in [
        "q = dist.isend(torch.ones(1), 1)
            q.wait()",
        "q = dist.isend(torch.ones(1), 1)
            works.append(q)",
        "q = dist.isend(torch.ones(1), 1)
            works = works + [q]",
        "q = dist.isend(torch.ones(1), 1)
            kept = (q, i)
            works.append(kept)",
        "q = send(torch.ones(1))
            works.append(q)",
        "q = dist.isend(torch.ones(1), 1)
            dist.recv(torch.ones(1), 1)",
        "q = [dist.isend(torch.ones(1), 1)]
            [r.wait() for r in q]",
        "q = dist.isend(torch.ones(1), 1)
            if q is not None: q.wait()",
    ] {
        let answers = sends.contains("recv");
        let body = format!(
            "    works = []
    def send(x):
        r = dist.isend(x, 1)
        return r
    if rank == 0:
        for i in range(2):
            {sends}
        for w in works: w[0].wait() if type(w) == tuple else w.wait()
    elif rank == 1:
        for i in range(2):
            dist.recv(torch.ones(1), 0)
            if {answers}: dist.send(torch.ones(1), 0)",
            answers = if answers { "True" } else { "False" },
        );
        let report = report_of(&body);
        assert!(report.findings.is_empty(), "{sends}: {}", report.to_text());
    }
}

#[test]
fn a_program_that_ends_behind_its_isend_may_be_too_early() {
    let text = "def main():\n    dist.init_process_group('gloo')\n    if dist.get_rank() == 0: w = \
                dist.isend(torch.ones(1), 1)\n    elif dist.get_rank() == 1: dist.recv(torch.ones(1), \
                0)\nrun(main, world_size=4)\n";
    let plan = compile("train.py", text, &Options::default()).unwrap().plan;
    let report = diagnose_trace(&run(&plan));
    assert_eq!(found(&report), [(Kind::WorkDropped, vec![0])], "{}", report.to_text());
    assert!(report.findings[0].message.contains("its process may end before"));
}

/// gloo has no 16-bit integers, and says so on its own thread.
#[test]
fn a_call_that_fails_unheard_is_told() {
    let body = "    x = torch.ones(3, dtype=torch.int16)
    w = dist.all_reduce(x, async_op=True)";
    let report = report_of(body);
    assert_eq!(found(&report), [(Kind::WorkDropped, vec![0, 1, 2, 3])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Certain);
    assert!(
        finding.message.contains("failed (train.py:5): RuntimeError: Invalid scalar type."),
        "{}",
        finding.message
    );
}
