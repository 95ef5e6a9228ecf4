//! DistributedDataParallel in programs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::tests::{compiled, ops};
use lockstep_core::collective::Collective;
use lockstep_core::plan::{Action, Call};
use lockstep_core::rank::GlobalRank;
use lockstep_scenarios::program::Compiled;

/// DDP broadcasts buffers in a forward pass if the one before it was to reduce gradients: two
/// passes of validation on rank 0 alone cost it two broadcasts more, and one of them under
/// `no_grad()` is made up for by the next training pass (recorded with torch 2.9.1: the first job
/// hangs at once, the second goes on).
#[test]
fn no_grad_changes_which_forward_broadcasts() {
    let broadcasts = |wrapped: &str| {
        let text = format!(
            "
import torch
def main():
    dist.init_process_group('gloo')
    ddp = DDP(models.resnet18())
    for _ in range(2):
        ddp(batch()).sum().backward()
    if dist.get_rank() == 0:
        with {wrapped}:
            ddp(batch())
            ddp(batch())
    ddp(batch()).sum().backward()
def batch():
    return torch.ones(1)
run(main, world_size=2)
"
        );
        let plan = compiled(&text).plan;
        let forwards = |rank| {
            let ops = ops(&plan, rank);
            ops.iter().filter(|(name, line)| name == "broadcast" && *line > 5).count()
        };
        (forwards(0), forwards(1))
    };
    let (first, others) = broadcasts("torch.enable_grad()");
    // ResNet's buffers are of two dtypes.
    assert_eq!(first, others + 2 * 2);
    let (first, others) = broadcasts("torch.no_grad()");
    assert_eq!(first, others);
}

/// Ranks without inputs shadow the others: every rank makes the same calls.
#[test]
fn a_join_makes_uneven_inputs_even() {
    let calls = |join: &str| {
        let text = format!(
            "def main():
    dist.init_process_group('gloo')
    model = DDP(models.mlp([8, 8, 8], batch_norm=True))
    with {join}:
        for batch in range(2 if dist.get_rank() == 1 else 4):
            model(None).sum().backward()
    dist.barrier()
run(main, world_size=3)
"
        );
        let plan = compiled(&text).plan;
        let counts = |rank| -> Vec<(String, u64)> {
            let program = plan.program(GlobalRank(rank)).unwrap();
            let calls = program.ops.iter().flat_map(|op| op.action.calls());
            let calls = calls.map(|call| match call {
                Call::Collective { collective, count, .. } => {
                    (collective.name().to_owned(), *count)
                }
                _ => panic!("{call:?}"),
            });
            calls.collect()
        };
        (counts(0), counts(1), counts(2))
    };
    let (first, short, last) = calls("nullcontext()");
    assert!(short.len() < first.len() && first == last);
    for join in ["model.join()", "dist.Join([model])"] {
        let (first, short, last) = calls(join);
        assert_eq!(first, short, "{join}");
        assert_eq!(first, last, "{join}");
    }
}

/// A rank that has left shadows a backward pass only where the others reduce in it: with `no_sync()`
/// in the same passes of all, every rank makes the same calls (PyTorch 2.7.1 and 2.9.1 complete).
#[test]
fn a_join_shadows_no_backward_inside_no_sync() {
    for (backend, short, inputs, norm) in [
        ("nccl", 1, 6, ""),
        ("gloo", 1, 6, ", batch_norm=True"),
        ("gloo", 1, 7, ", batch_norm=True"),
        ("gloo", 0, 1, ", batch_norm=True"),
        ("gloo", 0, 0, ""),
    ] {
        for set in [
            "with model.no_sync():",
            "model.require_backward_grad_sync = False\n            if True:",
        ] {
            let text = format!(
                "def main():
    dist.init_process_group('{backend}')
    model = DDP(models.mlp([8, 16, 8]{norm}), bucket_cap_mb=0.0005)
    with model.join():
        for i in range({inputs} if dist.get_rank() == {short} else 9):
            model.require_backward_grad_sync = True
            if (i + 1) % 3 == 0:
                model(None).sum().backward()
                continue
            {set}
                model(None).sum().backward()
    dist.barrier()
run(main, world_size=3)
"
            );
            let plan = compiled(&text).plan;
            let calls = |rank| -> Vec<String> {
                let program = plan.program(GlobalRank(rank)).unwrap();
                let calls = program.ops.iter().flat_map(|op| op.action.calls());
                let calls = calls.map(|call| match call {
                    Call::Collective { collective, count, .. } => format!("{collective:?} {count}"),
                    _ => panic!("{call:?}"),
                });
                calls.collect()
            };
            for rank in [1, 2] {
                assert_eq!(calls(rank), calls(0), "{backend} {short} {inputs}{norm} {set}");
            }
            // Reading those results blocks the rank's process on a GPU only.
            let program = plan.program(GlobalRank(short)).unwrap();
            let reads = program.ops.iter().filter(|op| op.action == Action::Synchronize).count();
            assert_eq!(reads > 0, backend == "nccl");
        }
    }
}

/// A check that only the whole job can make: the constructor compares each rank's sizes with rank 0's.
#[test]
fn ddp_refuses_a_model_in_another_order() {
    let text = "
def main():
    dist.init_process_group('gloo')
    sizes = [64, 32, 128] if dist.get_rank() == 1 else [64, 128, 32]
    DDP(models.mlp(sizes))
    dist.barrier()
run(main, world_size=3)
";
    let Compiled { plan, raised, .. } = compiled(text);
    let [(ranks, error)] = &raised[..] else { panic!("{raised:?}") };
    assert_eq!((&ranks[..], error.line), (&[GlobalRank(1)][..], 5));
    let said =
        "params[0] in this process with sizes [32, 64] appears not to match sizes of the same";
    assert!(error.message.contains(said), "{error}");
    assert_eq!(ops(&plan, 1).last().map(|(name, _)| name.as_str()), Some("die"));
    assert_eq!(ops(&plan, 0).last().map(|(name, _)| name.as_str()), Some("barrier"));
}

#[test]
fn ddp_reduces_its_buckets() {
    let text = "
def main():
    dist.init_process_group('nccl')
    model = DDP(models.resnet18(), bucket_cap_mb=25)
    opt = optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        if step == 1:
            with model.no_sync():
                model(None).sum().backward()
        else:
            loss = model(None).sum()
            loss.backward()
            opt.step()
run(main, world_size=2)
";
    let plan = compiled(text).plan;
    assert_eq!(plan.programs.len(), 1);
    let reduced = |line: u32| -> Vec<u64> {
        let program = plan.program(GlobalRank(0)).unwrap();
        let at = program.ops.iter().filter(|op| op.at.is_some_and(|at| at.line == line));
        let calls = at.filter(|op| op.action.is_async()).filter_map(|op| match op.action.calls() {
            [Call::Collective { collective: Collective::AllReduce { .. }, count, .. }] => {
                Some(count * 4)
            }
            _ => None,
        });
        calls.collect()
    };
    // The first backward pass has one bucket; the one of step 2 those of an explicit cap of 25.
    let all = 11_689_512 * 4;
    let buckets = reduced(12);
    assert_eq!(buckets[0], all);
    assert_eq!(buckets[1..].iter().sum::<u64>(), all);
    assert!(buckets.len() > 2, "{buckets:?}");
    assert_eq!(reduced(9), [0_u64; 0], "no_sync");
}

/// A parameter that the outputs do not depend on gets no gradient, as on PyTorch 2.7.1: without
/// `find_unused_parameters` the next forward pass raises, with it all goes on.
#[test]
fn what_a_forward_pass_leaves_unused_gets_no_gradient() {
    let last = |options: &str, backward: &str| {
        let text = format!(
            "
def main():
    dist.init_process_group('gloo')
    model = DDP(models.resnet18(){options})
    for step in range(3):
        loss = model.forward(unused=['fc'])
        {backward}
    dist.barrier()
run(main, world_size=2)
"
        );
        let plan = compiled(&text).plan;
        ops(&plan, 1).last().map(|(name, line)| (name.clone(), *line)).unwrap()
    };
    for backward in ["model.backward()", "loss.backward()", "model.backward(unused=['fc'])"] {
        assert_eq!(last("", backward), ("die".to_owned(), 6), "{backward}");
        let searching = last(", find_unused_parameters=True", backward);
        assert_eq!(searching, ("barrier".to_owned(), 8), "{backward}");
    }
}

/// Weights that `__init__` makes one are one parameter of DDP's. Of torch 2.15 on gloo, two ranks record one
/// bucket of 8,080 elements for this model: 1,600 of the embedding, three blocks of 2,160.
#[test]
fn weights_that_are_tied_are_reduced_once() {
    let text = |tie: &str| {
        format!(
            "import torch.nn as nn

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.l1 = nn.Linear(d, 4 * d)
        self.l2 = nn.Linear(4 * d, d)
        self.norm = nn.LayerNorm(d)
    def forward(self, x):
        return x + self.l2(self.l1(self.norm(x)))

class Net(nn.Module):
    def __init__(self, d=16, n=3):
        super().__init__()
        self.emb = nn.Embedding(100, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(n)])
        self.out = nn.Linear(d, 100, bias=False)
        {tie}
    def forward(self, tok):
        h = self.emb(tok)
        for block in self.blocks:
            h = block(h)
        return self.out(h)

def main():
    dist.init_process_group('gloo')
    net = DistributedDataParallel(Net())
    net(torch.randint(0, 100, (2, 8))).sum().backward()

run(main, world_size=2)
"
        )
    };
    let reduced = |tie: &str| -> u64 {
        let plan = compiled(&text(tie)).plan;
        let ops = &plan.program(GlobalRank(0)).unwrap().ops;
        let calls = ops.iter().flat_map(|op| op.action.calls());
        let counts = calls.filter_map(|call| match call {
            Call::Collective { collective: Collective::AllReduce { .. }, count, .. } => {
                Some(*count)
            }
            _ => None,
        });
        counts.sum()
    };
    assert_eq!(reduced("pass"), 9_680);
    for tie in ["self.out.weight = self.emb.weight", "self.emb.weight = self.out.weight"] {
        assert_eq!(reduced(tie), 8_080, "{tie}");
    }
}

/// `broadcast_coalesced` (`comm.cpp`) starts a second broadcast before it waits for the first: in the constructor, of
/// parameters and buffers of two types, and in front of each forward pass, of the buffers.
#[test]
fn broadcasts_of_several_buffers_overlap() {
    let text = "import torch, torch.nn as nn, torch.distributed as dist\n\
                from torch.nn.parallel import DistributedDataParallel as DDP\n\
                dist.init_process_group('gloo')\n\
                model = DDP(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))\n\
                model(torch.randn(4, 2)).sum().backward()\n";
    let ops = ops(&compiled(text).plan, 0);
    let at = |line: u32| {
        let own = ops.iter().filter(|(_, at)| *at == line);
        own.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    let overlap = ["broadcast", "broadcast", "wait", "wait"];
    assert_eq!(at(4), [&["all_gather", "broadcast"][..], &overlap].concat());
    assert_eq!(at(5)[..4], overlap);
}
