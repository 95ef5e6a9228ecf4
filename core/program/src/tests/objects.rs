//! The objects that ranks hear from each other in object calls, in programs.

use crate::compile;
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::{Compiled, Options, ProgramError};

fn executed(text: &str) -> Result<Compiled, ProgramError> {
    compile("train.py", text, &Options::default())
}

/// The output of a rank.
fn printed(compiled: &Compiled, rank: u32) -> Vec<&str> {
    let own = compiled.printed.iter().filter(|print| print.rank == GlobalRank(rank));
    own.map(|print| print.text.as_str()).collect()
}

/// The output of PyTorch 2.7.1 on 3 ranks of gloo: objects of every call, which decide how often
/// others are made, come through groups and from one to the next, and follow from each other.
#[test]
fn objects_are_heard_as_pytorch_has_them() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    config = [{"lr": 0.5, "steps": 3, "name": "é", "raw": b"\x01"}, (1, None)] if rank == 1 else [None, None]
    dist.broadcast_object_list(config, src = 1)
    for step in range(config[0]["steps"]):
        dist.all_reduce(torch.ones(1))
    print(config)
    all = [None] * 3
    dist.all_gather_object(all, [rank, rank == 2, -rank * 1000000])
    print(all, max([own[0] for own in all]))
    mine = [None]
    dist.scatter_object_list(mine, ["a", "b", "c"] if rank == 0 else None, src = 0)
    found = [None] * 3 if rank == 2 else None
    dist.gather_object(mine[0] + str(all[2][0]), found, dst = 2)
    print(mine, found)
    pair = dist.new_group([0, 2])
    if rank != 1:
        two = [None, None]
        dist.all_gather_object(two, found, group = pair)
        print(two)
    if rank == 0:
        dist.send_object_list([{"n": 7}, 0.25], dst = 1)
    if rank == 1:
        got = [None, None]
        print(dist.recv_object_list(got, src = 0), got)
        dist.send_object_list([got[0]["n"] + 1], dst = 2)
    if rank == 2:
        got = [None]
        dist.recv_object_list(got, src = 1)
        for step in range(got[0]):
            dist.all_reduce(torch.ones(1), group = dist.new_group([2], use_local_synchronization = True))
        print(got)
    chain = [0] * 3
    for step in range(4):
        dist.all_gather_object(chain, chain[(rank + 1) % 3] + rank + 1)
    print(chain)
    dist.barrier()

run(main, world_size = 3)
"#;
    let compiled = executed(text).unwrap();
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    let config = r"[{'lr': 0.5, 'steps': 3, 'name': 'é', 'raw': b'\x01'}, (1, None)]";
    let all = "[[0, False, 0], [1, False, -1000000], [2, True, -2000000]] 2";
    let two = "[None, ['a2', 'b2', 'c2']]";
    let chain = "[7, 8, 9]";
    assert_eq!(printed(&compiled, 0), [config, all, "['a'] None", two, chain]);
    assert_eq!(printed(&compiled, 1), [config, all, "['b'] None", "0 [{'n': 7}, 0.25]", chain]);
    let found = "['c'] ['a2', 'b2', 'c2']";
    assert_eq!(printed(&compiled, 2), [config, all, found, two, "[8]", chain]);
    let calls = |rank| {
        let ops = &compiled.plan.program(GlobalRank(rank)).unwrap().ops;
        let names = ops.iter().flat_map(|op| op.action.calls()).map(|call| call.name());
        names.filter(|name| *name == "all_reduce").count()
    };
    assert_eq!([0, 1, 2].map(calls), [3, 3, 11]);
}

/// A rank that never receives an object waits in the call: it does nothing after it, and raises nothing.
#[test]
fn what_is_never_sent_is_never_heard() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    steps = [None]
    if dist.get_rank() != 0:
        dist.broadcast_object_list(steps, src = 0)
        print(steps)
        for step in range(steps[0]):
            dist.all_reduce(torch.ones(1))

run(main, world_size = 2)
"#;
    let compiled = executed(text).unwrap();
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    assert!(compiled.printed.is_empty(), "{:?}", compiled.printed);
    let ops = &compiled.plan.program(GlobalRank(1)).unwrap().ops;
    assert!(ops.iter().any(|op| op.via.as_deref() == Some("broadcast_object_list")));
}

/// No decision is made by an object that is not plain data, nor by an endless loop.
#[test]
fn what_cannot_be_followed_is_refused() {
    let text = |body: &str| {
        format!(
            "def main():\n    dist.init_process_group('gloo')\n    all = [0, 0]\n    {body}\n\n\
             run(main, world_size = 2)\n"
        )
    };
    let tensor =
        text("dist.all_gather_object(all, torch.ones(1))\n    if all[0]:\n        dist.barrier()");
    let error = executed(&tensor).unwrap_err();
    assert!(error.message.contains("only if it is plain data"), "{error}");
    let chain = text(
        "for step in range(1000):\n        dist.all_gather_object(all, all[dist.get_rank()] + 1)",
    );
    let error = executed(&chain).unwrap_err();
    assert!(error.message.contains("again and again"), "{error}");
}

/// A loop that ends by gathered and broadcast objects, on PyTorch 2.7.1: after six steps.
#[test]
fn a_loop_ends_by_what_is_heard() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    step = 0
    while True:
        losses = [None] * 2 if rank == 0 else None
        dist.gather_object(5 - step + rank, losses, dst = 0)
        stop = [sum(losses) < 3] if rank == 0 else [None]
        dist.broadcast_object_list(stop, src = 0)
        step += 1
        if stop[0]:
            break
    print(step)

run(main, world_size = 2)
"#;
    let compiled = executed(text).unwrap();
    assert_eq!((printed(&compiled, 0), printed(&compiled, 1)), (vec!["6"], vec!["6"]));
}

/// A list that is too short is found out once all has been sent, as in PyTorch.
#[test]
fn a_short_list_takes_nothing_from_the_others() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    all = [None] * (2 - rank)
    dist.all_gather_object(all, rank)
    print(all)

run(main, world_size = 2)
"#;
    let compiled = executed(text).unwrap();
    assert_eq!(printed(&compiled, 0), ["[0, 1]"]);
    let [(ranks, error)] = &compiled.raised[..] else { panic!("{:?}", compiled.raised) };
    assert_eq!(ranks[..], [GlobalRank(1)]);
    assert!(error.message.starts_with("IndexError"), "{error}");
}

/// Whole numbers of any size and sets, as PyTorch 2.7.1 brought them to 3 ranks of gloo; and plain values
/// beside a tensor that is not known.
#[test]
fn objects_bring_all_that_is_plain() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    one = [{"big": 2 ** 70 + rank, "neg": -(10 ** 30), "s": {3, 1}, "nan": float("nan")}]
    dist.broadcast_object_list(one, src = 2)
    print(one)
    all = [None] * 3
    dist.all_gather_object(all, {"step": rank, "grad": torch.ones(2), "loss": 123456789.125})
    print([own["step"] for own in all], all[1]["loss"])

run(main, world_size = 3)
"#;
    let compiled = executed(text).unwrap();
    let one = "[{'big': 1180591620717411303426, 'neg': -1000000000000000000000000000000, 's': {1, 3}, \
               'nan': nan}]";
    for rank in 0..3 {
        assert_eq!(printed(&compiled, rank), [one, "[0, 1, 2] 123456789.125"]);
    }
}

/// An unknown value reports its kind, its sender, and a replacement.
#[test]
fn what_is_not_known_says_what_it_is() {
    for use_of in ["all[1][0]", "len(all[1])", "all[1].shape[0]", "3 < all[1]", "all[1]()"] {
        let text = format!(
            "def main():\n    dist.init_process_group('gloo')\n    all = [0, 0]\n    \
             dist.all_gather_object(all, torch.ones(1))\n    print(all)\n    {use_of}\n\nrun(main, \
             world_size = 2)\n"
        );
        let error = executed(&text).unwrap_err();
        assert_eq!(error.line, 6, "{use_of}: {error}");
        assert!(error.message.contains("the Tensor in an object"), "{use_of}: {error}");
        assert!(error.message.contains("as plain data"), "{use_of}: {error}");
    }
}

/// Objects that are sent in two groups are told apart, on PyTorch 2.7.1 as here.
#[test]
fn objects_are_sent_in_their_group() {
    let text = r#"
def main():
    dist.init_process_group("nccl")
    group = dist.new_group([1, 2])
    if dist.get_rank() == 1:
        dist.send_object_list(["world"], dst = 2)
        dist.send_object_list(["group"], group_dst = 1, group = group)
    if dist.get_rank() == 2:
        found = [None]
        dist.recv_object_list(found, src = 1, group = group)
        print(found)
        dist.recv_object_list(found, src = 1)
        print(found)

run(main, world_size = 3)
"#;
    let compiled = executed(text).unwrap();
    assert_eq!(printed(&compiled, 2), ["['group']", "['world']"]);
}

/// A rank outside of the group is refused in the words of PyTorch's logger, as 2.7.1 did.
#[test]
fn outsiders_are_refused_as_by_pytorch() {
    for call in [
        "dist.broadcast_object_list([1], src = 1, group = group)",
        "dist.broadcast_object_list([1], group_src = 5, group = group)",
        "dist.gather_object(1, None, dst = 1, group = group)",
        "dist.scatter_object_list([None], [1, 2], src = 1, group = group)",
        "dist.send_object_list([1], dst = 1, group = group)",
        "dist.broadcast(torch.ones(1), src = 1, group = group)",
    ] {
        let text = format!(
            "def main():\n    dist.init_process_group('gloo')\n    group = dist.new_group([0, 2])\n    \
             if dist.get_rank() == 1:\n        {call}\n\nrun(main, world_size = 3)\n"
        );
        let compiled = executed(&text).unwrap();
        let [(ranks, error)] = &compiled.raised[..] else { panic!("{:?}", compiled.raised) };
        assert_eq!(ranks[..], [GlobalRank(1)]);
        assert_eq!(error.message, "ValueError: Invalid process group specified", "{call}");
    }
}

/// The answers of a work, on PyTorch 2.7.1 with gloo.
#[test]
fn works_answer_as_pytorchs() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    t = torch.ones(2)
    def result(work):
        work.wait()
        print([part.numel() for part in work.result()])
    result(dist.all_reduce(t, async_op = True))
    list = [torch.zeros(2), torch.zeros(2)]
    result(dist.all_gather(list, t, async_op = True))
    result(dist.all_gather_into_tensor(torch.zeros(4), t, async_op = True))
    result(dist.gather(t, list if rank == 0 else None, dst = 0, async_op = True))
    result(dist.barrier(async_op = True))
    future = dist.all_reduce(t, async_op = True).get_future()
    print(len(future.wait()), future.done(), len(future.value()))
    work = dist.isend(t, 1) if rank == 0 else dist.irecv(t, 0)
    work.wait()
    if rank == 0:
        work.result()
    work.exception()

run(main, world_size = 2)
"#;
    let compiled = executed(text).unwrap();
    let all = ["[2]", "[2, 2]", "[2, 2]"];
    assert_eq!(printed(&compiled, 0), [&all[..], &["[2, 2]", "[]", "1 True 1"]].concat());
    assert_eq!(printed(&compiled, 1), [&all[..], &["[]", "[]", "1 True 1"]].concat());
    let texts: Vec<&str> =
        compiled.raised.iter().map(|(_, error)| error.message.as_str()).collect();
    assert_eq!(texts[0], "RuntimeError: result() not implemented.");
    assert!(
        texts[1].starts_with("TypeError: Unable to convert function return value"),
        "{texts:?}"
    );
}

/// Before PyTorch 2.1 there were no 8-bit floats.
#[test]
fn an_old_torch_has_no_float8() {
    let text = |version: &str| {
        format!(
            "def main():\n    dist.init_process_group('nccl')\n    torch.zeros(2, dtype = \
             torch.float8_e5m2)\n\nrun(main, world_size = 1, torch = '{version}')\n"
        )
    };
    let refused = executed(&text("1.13")).unwrap();
    let text_of = &refused.raised[0].1.message;
    assert_eq!(text_of, "AttributeError: module 'torch' has no attribute 'float8_e5m2'");
    assert!(executed(&text("2.1")).unwrap().raised.is_empty());
}

/// A loop that ends by an object that it receives, and behind it other roots: until the loop's end is
/// received, a root sends objects that it would never have sent, and no rank may be refused for that. The
/// expected prints are PyTorch 2.7.1's.
#[test]
fn other_roots_tell_behind_a_loop_that_ends_by_what_is_heard() {
    let text = r#"
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for i in range(10):
        stop = [i == 1] if rank == 0 else [None]
        dist.broadcast_object_list(stop, src = 0)
        if stop[0]:
            break
    best = [{"best": 2}] if rank == 1 else [None]
    dist.broadcast_object_list(best, src = 1)
    mine = [None]
    dist.scatter_object_list(mine, [{"k": r} for r in range(3)] if rank == 2 else None, src = 2)
    if rank == 2:
        dist.send_object_list([{"n": mine[0]["k"] + best[0]["best"]}], dst = 0)
    if rank == 0:
        got = [None]
        dist.recv_object_list(got, src = 2)
        print(got[0]["n"])
    print(i, best[0]["best"] + 1, mine[0]["k"])

run(main, world_size = 3)
"#;
    let compiled = executed(text).unwrap();
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    assert_eq!(printed(&compiled, 0), ["4", "1 3 0"]);
    assert_eq!(printed(&compiled, 1), ["1 3 1"]);
    assert_eq!(printed(&compiled, 2), ["1 3 2"]);
}
