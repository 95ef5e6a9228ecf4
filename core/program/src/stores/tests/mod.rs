//! Programs with stores: the answers of PyTorch 2.7.1 (`tests/data/pytorch/stores.json`), the refusals, and
//! the waits of the ranks in the plan.

use crate::compile;
use lockstep_core::plan::remark::LostWait;
use lockstep_core::plan::{Action, Call, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Options};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<Case>,
}

/// A program, and the prints and exceptions of each rank.
#[derive(Deserialize)]
struct Case {
    name: String,
    text: String,
    ranks: Vec<Rank>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Rank {
    said: Vec<String>,
    raised: Option<String>,
}

fn recorded() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/pytorch/stores.json");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str::<Recorded>(&text).unwrap().cases
}

/// The output and the errors of a program's ranks.
fn ranks_of(compiled: &Compiled) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = (0..compiled.plan.world_size).map(|_| Rank::default()).collect();
    for lockstep_scenarios::program::Printed { rank, text, .. } in &compiled.printed {
        ranks[rank.index()].said.push(text.clone());
    }
    for (raising, error) in &compiled.raised {
        for rank in raising {
            ranks[rank.index()].raised = Some(error.message.clone());
        }
    }
    ranks
}

#[test]
fn stores_answer_as_pytorch_does() {
    let cases = recorded();
    assert!(cases.len() > 30, "{}", cases.len());
    let mut wrong = Vec::new();
    for Case { name, text, ranks } in cases {
        let compiled = match compile("store.py", &text, &Options::default()) {
            Ok(compiled) => compiled,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let mut ours = ranks_of(&compiled);
        for (ours, theirs) in ours.iter_mut().zip(&ranks) {
            // pybind11 goes on with what the process passed.
            if let (Some(ours), Some(theirs)) = (&mut ours.raised, &theirs.raised)
                && theirs.contains("incompatible")
                && ours.starts_with(theirs.trim_end())
            {
                ours.clone_from(theirs);
            }
        }
        if ours != ranks {
            wrong.push(format!("{name}: {ours:?}, not {ranks:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn compiled(world_size: u32, body: &str) -> Compiled {
    let text = text(world_size, body);
    compile("store.py", &text, &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(world_size: u32, body: &str) -> String {
    let text = text(world_size, body);
    compile("store.py", &text, &Options::default()).unwrap_err().to_string()
}

/// Each line of the body is one line further down than there.
fn text(world_size: u32, body: &str) -> String {
    let lines: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "def main(rank = int(os.environ['RANK']), store = dist.FileStore('f')):\n{lines}\
         run(main, world_size = {world_size})\n"
    )
}

/// The messages of a store in the plan: (from, to) of every message, with the reader's line.
fn messages(plan: &Plan) -> Vec<(u32, u32, u32)> {
    let mut found = Vec::new();
    for rank in (0..plan.world_size).map(GlobalRank) {
        for op in &plan.program(rank).unwrap().ops {
            let [Call::Recv { peer: Some(peer), .. }] = op.action.calls() else { continue };
            let via = op.via.as_deref().unwrap_or_default();
            assert!(via.starts_with("store."), "{op:?}");
            if LostWait::parse(via).is_some() {
                continue;
            }
            found.push((peer.0, rank.0, op.at.unwrap().line));
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_reader_waits_for_the_writer() {
    let body = "if rank == 2:
    compute('slow', ms = 3)
    store.set('id', 'x')
assert store.get('id') == b'x'
assert store.get('id') == b'x'";
    let plan = compiled(3, body).plan;
    assert_eq!(messages(&plan), [(2, 0, 5), (2, 0, 6), (2, 1, 5), (2, 1, 6)]);
    // Its barrier is what orders it then.
    let body = "dist.init_process_group('gloo')
if rank == 2:
    store.set('id', 'x')
dist.barrier()
assert store.get('id') == b'x'";
    assert_eq!(messages(&compiled(3, body).plan), []);
}

#[test]
fn a_counter_waits_for_those_it_needs() {
    let body = "store.add('n', 1)
while store.add('n', 0) < 3:
    pass";
    let all = [(0, 1, 3), (0, 2, 3), (1, 0, 3), (1, 2, 3), (2, 0, 3), (2, 1, 3)];
    assert_eq!(messages(&compiled(3, body).plan), all);
    let body = "if rank:
    store.add('n', rank)
else:
    while int(store.get('n')) < 3:
        pass";
    assert_eq!(messages(&compiled(3, body).plan), [(1, 0, 5), (2, 0, 5)]);
}

/// A program whose answer would be made up is refused, with the line and the reason.
#[test]
fn what_depends_on_who_is_first_is_refused() {
    let refusals = [
        "store.set('k', str(rank))\nprint(store.get('k'))",
        "if rank == 0:\n    store.set('k', 'a')\nelif rank == 1:\n    print(store.check(['k']))",
        "if rank < 2:\n    store.set('k', str(rank))\nelse:\n    store.get('k')",
        "if rank == 0:\n    store.set('k', '1')\nelse:\n    print(store.num_keys())",
        "if rank == 0:\n    store.set('k', '1')\n    store.set('k', '2')\nelse:\n    store.get('k')",
        "store.add('n', 1)\nwhile store.add('n', 0) < 2:\n    pass",
        "store.add('n', 1)\nwhile store.add('n', 0) != 2:\n    pass",
        "store.add('n', 1)\nwhile store.add('n', 0) <= 3:\n    pass",
        "n = store.add('n', 1)\nstore.set('k', str(rank))\nif n == 2 and store.get('k') == b'1':\n    pass",
        "if rank == 0:\n    store.set('k', 'a')\n    store.set('k', 'b')\nwhile store.get('k') != b'a':\n    pass",
    ];
    let said: Vec<String> = refusals.iter().map(|body| refused(3, body)).collect();
    insta::assert_snapshot!(said.join("\n"));
}

/// Every order can happen; the one that is taken follows the times of the program, and is reported.
#[test]
fn who_is_first_is_taken_by_the_times_and_told() {
    let said = |body: &str| -> Vec<(u32, String)> {
        let compiled = compiled(3, body);
        assert!(!compiled.assumed.is_empty(), "{body}");
        compiled.printed.iter().map(|print| (print.rank.0, print.text.clone())).collect()
    };
    let drawn = |ranks: [u32; 3]| -> Vec<(u32, String)> {
        let number = |rank| ranks.iter().position(|drawn| *drawn == rank).unwrap() + 1;
        (0..3).map(|rank| (rank, number(rank).to_string())).collect()
    };
    assert_eq!(said("print(store.add('n', 1))"), drawn([0, 1, 2]));
    assert_eq!(said("n = store.add('n', 1)\nprint(n)"), drawn([0, 1, 2]));
    let late = "compute('slow', ms = 9 - 3 * rank)\nn = store.add('n', 1)\nprint(n)";
    assert_eq!(said(late), drawn([2, 1, 0]));
    let behind = "dist.init_process_group('gloo')
if rank == 0:
    store.wait(['go'])
elif rank == 2:
    time.sleep(1)
    store.set('go', '1')
print(store.add('n', 1))";
    assert_eq!(said(behind), drawn([1, 2, 0]));
    let won = "time.sleep(0 if rank == 1 else 1)\nprint(store.compare_set('k', '', str(rank)))";
    assert_eq!(said(won), [0, 1, 2].map(|rank| (rank, "b'1'".to_owned())));
    // An operation whose answer is not used does not matter.
    assert_eq!(compiled(3, "drawn = store.add('n', 1)").assumed, []);
    // The order that is told is the one that was taken, also where a later operation asks again.
    let again = "time.sleep(0 if rank == 1 else 1)
v = store.compare_set('k', '', str(rank))
print(v)
print(store.compare_set('k', 'x', 'y'))";
    let orders: Vec<_> = compiled(3, again).assumed.into_iter().map(|(_, text)| text).collect();
    assert!(
        orders[0].contains("\"k\") comes first") && orders[0].ends_with("1, 0, 2"),
        "{orders:?}"
    );
    // A rank that does not use its answer waits for nobody, and nobody sends it a message.
    let unread = "dist.init_process_group('gloo')
store.set(str(rank), '1')
dist.barrier()
print([store.get(str(other)) for other in range(3)])
drawn = store.add('n', rank)
dist.barrier()";
    let plan = compiled(3, unread).plan;
    let calls =
        |rank| plan.program(GlobalRank(rank)).unwrap().ops.iter().flat_map(|op| op.action.calls());
    let count = |name: &str| (0..3).flat_map(calls).filter(|call| call.name() == name).count();
    assert_eq!(count("send"), count("recv"));
    // They wait for whom they come after.
    let plan = compiled(3, "print(store.add('n', 1))").plan;
    assert_eq!(messages(&plan), [(0, 1, 2), (1, 2, 2)]);
    let told = compiled(3, "print(store.add('n', 1))").assumed;
    let words =
        "which rank's store.add(\"n\") comes first is open; here they come in the order 0, 1, 2";
    assert_eq!(told, [(2, words.to_owned())]);
}

/// If there are more operations than can be compared in a moment, no order is taken.
#[test]
fn how_much_is_drawn_is_bounded() {
    assert_eq!(compiled(100, "print(store.add('n', 1))").printed.len(), 100);
    assert!(refused(200, "print(store.add('n', 1))").contains("depends on which rank is first"));
}

/// The sleeps of a program decide the answers that its ranks get, if they have met before.
#[test]
fn times_that_lie_apart_decide() {
    let asks = |ms: u32, meets: &str| {
        let body = format!(
            "{meets}
if rank == 0:
    time.sleep(0.010)
    store.set('k', 'v')
elif rank == 1:
    sleep(ms = {ms})
    print(store.check(['k']))"
        );
        compile("store.py", &text(3, &body), &Options::default())
            .map(|compiled| compiled.printed[0].text.clone())
    };
    let init = "dist.init_process_group('gloo')";
    assert_eq!(asks(5, init).unwrap(), "False");
    assert_eq!(asks(15, init).unwrap(), "True");
    assert!(asks(10, init).is_err(), "nobody knows");
    let reduces = "dist.init_process_group('gloo')\ndist.all_reduce(tensor(4))";
    assert!(asks(5, reduces).is_err(), "nobody knows how long that takes");
}

proptest! {
    /// Whoever is later than the timeout is too late, through any chain of waits.
    #[test]
    fn a_reader_waits_as_long_as_its_timeout(
        (sets, reads, timeout) in (0u32..40, 0u32..40, 1u32..40),
        chained in any::<bool>(),
    ) {
        let body = format!(
            "if rank == 0:
    sleep(ms = {sets})
    store.set('a', '1')
elif rank == 1:
    store.get('a' if {chain} else 'b')
    store.set('b', '1')
else:
    sleep(ms = {reads})
    store.wait(['b' if {chain} else 'a'], milliseconds({timeout}))
    print('read')
if rank == 0:
    store.set('b' if not {chain} else 'c', '1')",
            chain = if chained { "True" } else { "False" },
        );
        let compiled = compiled(3, &body);
        let in_time = sets < reads + timeout;
        prop_assert_eq!(compiled.printed.len(), usize::from(in_time), "{:?}", compiled.raised);
        prop_assert_eq!(compiled.raised.len(), usize::from(!in_time));
    }
}

#[test]
fn a_key_that_nobody_sets_is_waited_for_and_raises() {
    let body = "dist.init_process_group('gloo')
if rank == 1:
    store.get('ready')
dist.barrier()";
    let Compiled { plan, raised, .. } = compiled(2, body);
    let [(ranks, error)] = &raised[..] else { panic!("{raised:?}") };
    assert_eq!((&ranks[..], error.line), (&[GlobalRank(1)][..], 4));
    assert_eq!(error.message, "RuntimeError: Timeout waiting for key: ready after 300000 ms");
    let ops = &plan.program(GlobalRank(1)).unwrap().ops;
    let [sleep, die] = &ops[..] else { panic!("{ops:?}") };
    let name = "store.get: waits for \"ready\", which does not come".into();
    assert_eq!(sleep.action, Action::Sleep { name, duration_ns: 300_000_000_000 });
    assert!(matches!(die.action, Action::Die { .. }));
}

/// A reader that comes before a barrier, behind which the writer sets its key.
#[test]
fn a_key_behind_a_barrier_does_not_come() {
    let body = "dist.init_process_group('gloo')
if rank == 0:
    dist.barrier()
    store.set('go', '1')
else:
    store.wait(['go'])
    dist.barrier()";
    let Compiled { raised, .. } = compiled(3, body);
    let [(ranks, error)] = &raised[..] else { panic!("{raised:?}") };
    assert_eq!((&ranks[..], error.line), (&[GlobalRank(1), GlobalRank(2)][..], 7));
    assert_eq!(error.message, "RuntimeError: Wait timeout");
}

/// A chain through all ranks, against the order of the ranks.
#[test]
fn a_long_chain_settles() {
    let body = "for step in range(6):
    if step or rank < 15:
        store.wait([str(step * 16 + rank + 1 if rank < 15 else step * 16 - 16)])
    store.set(str(step * 16 + rank), 'done')";
    let plan = compiled(16, body).plan;
    assert_eq!(messages(&plan).len(), 6 * 16 - 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever ranks do with stores, there is an answer or a refusal, and always the same.
    #[test]
    fn any_program_has_an_answer(
        lines in proptest::collection::vec(
            (0u32..4, prop_oneof![
                Just("if store.add('m', 1) == 2: store.set('a', '2')"),
                Just("print(store.compare_set('c', '', str(rank)))"), Just("time.sleep(1)"),
                Just("while store.get('a') != b'2': \n        pass"),
                Just("store.set('a', str(rank))"), Just("store.set('b', 'x')"),
                Just("store.add('n', 1)"), Just("n = store.add('n', 1)"),
                Just("store.get('a')"), Just("store.wait(['a', 'b'])"), Just("store.check(['b'])"),
                Just("store.delete_key('b')"), Just("store.append('a', '1')"),
                Just("store.compare_set('a', 'x', 'y')"), Just("store.num_keys()"),
                Just("store.multi_get(['b', 'a'])"), Just("dist.barrier()"),
                Just("while store.add('n', 0) < 2: \n        pass"),
                Just("while not store.check(['a']): \n        pass"),
            ]),
            0..14,
        )
    ) {
        let mut body = "dist.init_process_group('gloo')\n".to_owned();
        for (rank, line) in lines {
            match rank {
                3 => body.push_str(&format!("{}\n", line.replace("\n        ", "\n    "))),
                rank => body.push_str(&format!("if rank == {rank}:\n    {line}\n")),
            }
        }
        let text = text(3, &body);
        let once = compile("p", &text, &Options::default());
        prop_assert_eq!(&once, &compile("p", &text, &Options::default()));
        // Whoever waits is told by somebody who sends.
        if let Ok(Compiled { plan, .. }) = once {
            let sends = (0..3).flat_map(|rank| &plan.program(GlobalRank(rank)).unwrap().ops);
            let sends = sends.filter(|op| matches!(op.action.calls(), [Call::Send { .. }]));
            prop_assert_eq!(sends.count(), messages(&plan).len());
        }
    }
}

/// A `TCPStore` ends with the process that serves it, as PyTorch 2.7.1 has it.
#[test]
fn a_server_that_has_ended_answers_nobody() {
    let text = |end: &str| {
        format!(
            "def main():
    rank = int(os.environ['RANK'])
    store = dist.TCPStore('127.0.0.1', 29500, 2, rank == 0)
    if rank == 0:
        store.set('k', 'v')
        {end}
        return
    time.sleep(2)
    print(store.get('k'))
    store.set('read', '1')

run(main, world_size = 2)
"
        )
    };
    let compiled = |end: &str| compile("train.py", &text(end), &Options::default()).unwrap();
    let gone = compiled("time.sleep(1)");
    let said: Vec<_> =
        gone.raised.iter().map(|(ranks, error)| (ranks[0].0, &*error.message)).collect();
    assert_eq!(said, [(1, "DistNetworkError: failed to recv, got 0 bytes")]);
    assert!(gone.printed.is_empty());
    for end in ["store.wait(['read'])", "time.sleep(3)"] {
        let stays = compiled(end);
        assert!(stays.raised.is_empty(), "{end}: {:?}", stays.raised);
        assert_eq!(stays.printed.len(), 1, "{end}");
    }
}
