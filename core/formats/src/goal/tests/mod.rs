//! GOAL texts as plans: their meaning, refusals, and the operations that a program has to hold back. A test
//! that a written plan comes back with its messages is in `sim/tests/suite/goal.rs`.

mod hostile;

use super::{Goal, looks_like_goal, read};
use lockstep_core::plan::{Action, Call, Plan};
use lockstep_core::rank::GlobalRank;
use proptest::prelude::*;

fn goal(text: &str) -> Goal {
    read("test.goal", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A rank's program in a few words: `isend 8>1 #5`, `irecv 8<1 #5`, `wait 0`, `calc 7`.
fn words(plan: &Plan, rank: u32) -> Vec<String> {
    let bytes = |tensor| plan.tensor(tensor).map_or(0, |tensor| tensor.bytes());
    let ops = &plan.program(GlobalRank(rank)).unwrap().ops;
    let of = |action: &Action| match action {
        Action::Call { call, async_op: true } => match &**call {
            Call::Send { peer, tensor, tag, .. } => {
                format!("isend {}>{peer} #{tag}", bytes(*tensor))
            }
            Call::Recv { peer, tensor, tag, .. } => {
                let from = peer.map_or("any".to_owned(), |peer| peer.to_string());
                format!("irecv {}<{from} #{tag}", bytes(*tensor))
            }
            other => format!("{other:?}"),
        },
        Action::Wait { op, .. } => format!("wait {op}"),
        Action::Compute { duration_ns, .. } => format!("calc {duration_ns}"),
        other => format!("{other:?}"),
    };
    ops.iter().map(|op| of(&op.action)).collect()
}

#[test]
fn a_file_of_schedgens_shape_is_a_plan() {
    let text = "/* two ranks,\n one tree */ num_ranks 3 // of three\n\nrank 0 {\n\
                l1: send 8b to 1 tag 5\nl2: send 16b to 2 nic 1\n}\n\
                rank 1 {\nl1: recv 8b from 0 tag 5 cpu 0\nl2: calc 70\nl2 requires l1\n}\n";
    assert!(looks_like_goal(text.as_bytes()));
    assert!(looks_like_goal(b"/* one */ rank 0\n{ }"));
    assert!(!looks_like_goal(b"rank 0: NCCL INFO") && !looks_like_goal(b"rank {"));
    let Goal { plan, held_back } = goal(text);
    assert_eq!((plan.world_size, held_back), (3, 0));
    assert_eq!(words(&plan, 0), ["isend 8>1 #5", "isend 16>2 #0", "wait 0", "wait 1"]);
    assert_eq!(words(&plan, 1), ["irecv 8<0 #5", "wait 0", "calc 70"]);
    assert_eq!(words(&plan, 2), [""; 0]);
    let at = plan.program(GlobalRank(1)).unwrap().ops[2].at.unwrap();
    assert_eq!(plan.describe_line(at), "test.goal:10");
}

#[test]
fn messages_start_before_what_they_need_not_wait_for() {
    // The calc comes first in the file; the receive and the send do not require it.
    let free = goal("num_ranks 2\nrank 0 {\nc: calc 5\nr: recv 1b from 1\ns: send 1b to 1\n}\n");
    assert_eq!(words(&free.plan, 0)[..3], ["irecv 1<1 #0", "isend 1>1 #0", "calc 5"]);
    assert_eq!(free.held_back, 0);
    // Two receives with a calc behind each: the second calc need not wait for the first message.
    let behind = goal(
        "num_ranks 2\nrank 0 {\na: recv 1b from 1 tag 1\nb: recv 1b from 1 tag 2\nx: calc 3\n\
         y: calc 4\nx requires a\ny requires b\nz: send 1b to 1\nz requires y\n}\n",
    );
    let expected =
        ["irecv 1<1 #1", "irecv 1<1 #2", "wait 0", "calc 3", "wait 1", "calc 4", "isend 1>1 #0"];
    assert_eq!(words(&behind.plan, 0)[..7], expected);
    // y and z come after a and x, of which they know nothing.
    assert_eq!(behind.held_back, 2);
}

/// An eager send does not wait until its receive is reached.
#[test]
fn receives_are_posted_before_all_else() {
    let text = "num_ranks 3\nrank 0 {\na: recv 1b from 1\nb: recv 1b from 2\nb requires a\n\
                x: calc 3\nx requires b\n}\n";
    let Goal { plan, held_back } = goal(text);
    let expected = ["irecv 1<1 #0", "irecv 1<2 #0", "wait 0", "wait 1", "calc 3"];
    assert_eq!((words(&plan, 0), held_back), (expected.map(str::to_owned).to_vec(), 0));
}

#[test]
fn irequires_and_sends_only_order() {
    let text = "num_ranks 2\nrank 0 {\ns: send 1b to 1\nr: recv 1b from -1\nr requires s\n\
                t: send 1b to 1\nt irequires r\n}\n";
    let Goal { plan, held_back } = goal(text);
    let expected = ["isend 1>1 #0", "irecv 1<any #0", "isend 1>1 #0", "wait 0", "wait 1", "wait 2"];
    assert_eq!(words(&plan, 0), expected);
    assert_eq!(held_back, 0);
}

#[test]
fn what_is_no_goal_is_refused_in_a_sentence() {
    let rank0 = |lines: &str| format!("num_ranks 2\nrank 0 {{\n{lines}\n}}\n");
    let texts = [
        String::new(),
        "{\"schema\": 1}".to_owned(),
        "num_ranks 99999999999999999999\n".to_owned(),
        "num_ranks 0\n".to_owned(),
        "rank 0 {\n}\n".to_owned(),
        "num_ranks 2\nnum_ranks 2\n".to_owned(),
        "num_ranks 2\nrank 2 {\n}\n".to_owned(),
        "num_ranks 2\nrank 0 {\nrank 1 {\n".to_owned(),
        "num_ranks 2\nrank 0 {\n".to_owned(),
        rank0("l1: send 8b to 7"),
        rank0("l1: send 8b to 0"),
        rank0("l1: send 8b to -1"),
        rank0("l1: send 9999999999999999b to 1"),
        rank0("l1: send -8b to 1"),
        rank0("l1: send 8b to 1 tag"),
        rank0("l1: send 8b to 1 tag 4294967296"),
        rank0("l1: recv 8b from 1 tag -1"),
        rank0("l1: calc 99999999999999999999"),
        rank0("l1: sleep 8"),
        rank0("l1: calc 8\nl1: calc 8"),
        rank0("l1: calc 8\nl1 requires l2"),
        rank0("l1: calc 8\nl2: calc 8\nl1 requires l2\nl2 requires l1"),
        rank0("l1: calc 8\nl1 irequires l1"),
        rank0("l1; calc 8"),
    ];
    let mut said = String::new();
    for text in texts {
        let why = read("t", &text).err().unwrap_or_else(|| panic!("{text}")).to_string();
        assert!(why.len() < 300 && !why.contains('\n'), "{why}");
        said += &(why + "\n");
    }
    insta::assert_snapshot!(said);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,300}", lines in "[a-c: 0-9{}\\-/*\n]{0,200}") {
        let _ = read("t", &text);
        let _ = read("t", &format!("num_ranks 3\nrank 1 {{\n{lines}\n}}"));
        let _ = looks_like_goal(text.as_bytes());
    }

    /// Every operation comes after all that it requires, and none is lost.
    #[test]
    fn programs_keep_the_order_of_the_graph(
        kinds in prop::collection::vec(0u8..3, 1..30),
        edges in prop::collection::vec((0usize..30, 0usize..30, any::<bool>()), 0..40),
    ) {
        let mut text = "num_ranks 2\nrank 0 {\n".to_owned();
        for (label, kind) in kinds.iter().enumerate() {
            // The tag, or the time, says which operation it is.
            let line = match kind {
                0 => format!("send 1b to 1 tag {label}"),
                1 => format!("recv 1b from 1 tag {label}"),
                _ => format!("calc {label}"),
            };
            text += &format!("l{label}: {line}\n");
        }
        let count = kinds.len();
        let edges: Vec<_> = edges
            .into_iter()
            .map(|(a, b, begun)| (a % count, b % count, begun))
            .filter(|(a, b, _)| a > b)
            .collect();
        for (after, before, begun) in &edges {
            text += &format!("l{after} {} l{before}\n", if *begun { "irequires" } else { "requires" });
        }
        let Goal { plan, .. } = goal(&(text + "}\n"));
        let program = words(&plan, 0);
        let at = |label: usize| {
            let text = match kinds[label] {
                0 => format!("isend 1>1 #{label}"),
                1 => format!("irecv 1<1 #{label}"),
                _ => format!("calc {label}"),
            };
            program.iter().position(|op| *op == text).unwrap()
        };
        // A receive is posted before all else; what is behind it is behind what it is behind.
        for after in (0..count).filter(|label| kinds[*label] != 1) {
            let (mut open, here) = (vec![after], at(after));
            let mut seen = std::collections::BTreeSet::new();
            while let Some(label) = open.pop() {
                if !seen.insert(label) {
                    continue;
                }
                for (_, before, begun) in edges.iter().filter(|(of, ..)| *of == label) {
                    open.push(*before);
                    let there = at(*before);
                    prop_assert!(there < here);
                    if !begun && kinds[*before] == 1 {
                        let wait = program.iter().position(|op| *op == format!("wait {there}"));
                        prop_assert!(wait.unwrap() < here, "{program:?}");
                    }
                }
            }
        }
    }
}
