//! Meshes, coalesced calls and the calls of several GPUs, in programs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use crate::compile;
use lockstep_core::plan::{Action, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_scenarios::program::{Compiled, Options};

fn compiled(text: &str) -> Compiled {
    compile("train.py", text, &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The output of a rank.
fn printed(compiled: &Compiled, rank: u32) -> Vec<&str> {
    let own = compiled.printed.iter().filter(|print| print.rank == GlobalRank(rank));
    own.map(|print| print.text.as_str()).collect()
}

/// The calls of a rank, as those that are made together.
fn calls(plan: &Plan, rank: u32) -> Vec<Vec<&'static str>> {
    let ops = &plan.program(GlobalRank(rank)).unwrap().ops;
    let calls = ops.iter().map(|op| op.action.calls().iter().map(|call| call.name()).collect());
    calls.filter(|names: &Vec<_>| !names.is_empty()).collect()
}

/// The answers of PyTorch 2.7.1 to the same lines on 8 ranks of gloo (`mesh_3d` of
/// `sim/tests/suite/c10d` holds the groups): slices, coordinates, flattened dimensions.
#[test]
fn a_mesh_is_sliced_and_flattened() {
    let text = r#"
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
    dp, dp_tp = mesh["dp"], mesh["dp", "tp"]
    print(mesh.get_coordinate(), dp.get_local_rank(), mesh.get_local_rank("tp"))
    print(dist.get_process_group_ranks(dp.get_group()), dp_tp, mesh.size(), dp_tp.size(-1))
    flat = mesh["dp", "cp"]._flatten()
    print(flat, flat.get_group().group_desc, flat.get_local_rank())
    print(mesh["dp_cp", "tp"].shape, mesh["dp_cp"] == flat, mesh.get_local_rank("dp_cp"))
    print(mesh["dp", "cp"]._flatten() == flat)
    with mesh:
        dist.all_reduce(torch.ones(4), group=mesh.get_group("dp_cp"))

run(main, world_size=8, device="cpu")
"#;
    let compiled = compiled(text);
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    assert_eq!(
        printed(&compiled, 5),
        [
            "[1, 0, 1] 1 1",
            "[1, 5] DeviceMesh('cpu', [[0, 1], [4, 5]], mesh_dim_names=('dp', 'tp')) 8 2",
            "DeviceMesh('cpu', [1, 3, 5, 7], mesh_dim_names=('dp_cp',)) mesh_dp_cp 2",
            "(4, 2) True 2",
            "True",
        ]
    );
    let group = compiled.plan.program(GlobalRank(5)).unwrap().ops[0].action.calls()[0].group();
    let ranks = compiled.plan.groups[group.index()].ranks();
    assert_eq!(ranks, [1, 3, 5, 7].map(GlobalRank));
}

#[test]
fn a_mesh_is_laid_out_as_it_is_written() {
    let text = r#"
from torch.distributed.device_mesh import DeviceMesh

def main():
    dist.init_process_group("gloo")
    mesh = DeviceMesh("cpu", [[3, 1], [2, 0]], mesh_dim_names=("dp", "tp"))
    print(mesh, mesh.get_coordinate(), dist.get_process_group_ranks(mesh["tp"].get_group()))
    group = mesh.get_group("dp")
    print(group.group_name, group.group_desc, dist.group.WORLD.group_name)
    print(DeviceMesh.from_group(group, "cpu"), DeviceMesh("cpu", range(4)).shape)
    if dist.get_rank() == 0:
        DeviceMesh("cpu", [[0, 1], [2]])
    else:
        mesh["tp", "dp"]

run(main, world_size=4, device="cpu")
"#;
    let compiled = compiled(text);
    assert_eq!(
        printed(&compiled, 2),
        [
            "DeviceMesh('cpu', [[3, 1], [2, 0]], mesh_dim_names=('dp', 'tp')) [1, 0] [0, 2]",
            "1 mesh_dp 0",
            "DeviceMesh('cpu', [2, 3]) (4,)",
        ]
    );
    let said: Vec<&str> = compiled.raised.iter().map(|(_, error)| &error.message[..]).collect();
    assert_eq!(said[0], "ValueError: expected sequence of length 2 at dim 1 (got 1)");
    assert!(said[1].starts_with("KeyError: (\"Invalid mesh_dim_names ('tp', 'dp')"), "{said:?}");
}

#[test]
fn a_coalescing_manager_makes_one_call() {
    let text = r#"
from torch.distributed.distributed_c10d import _coalescing_manager

def main():
    dist.init_process_group("nccl")
    xs = [torch.ones(4) for _ in range(3)]
    with _coalescing_manager(async_ops=True) as cm:
        for x in xs:
            dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
    cm.wait()
    with dist._coalescing_manager(device=torch.device("cuda")):
        dist.broadcast(xs[0], src=0)
        dist.broadcast(xs[1], src=1)
    dist.barrier()
    with dist._coalescing_manager():
        pass

run(main, world_size=2)
"#;
    let Compiled { plan, raised, .. } = compiled(text);
    let together = [vec!["all_reduce"; 3], vec!["broadcast"; 2], vec!["barrier"]];
    assert_eq!(calls(&plan, 0), together);
    let ops = &plan.program(GlobalRank(0)).unwrap().ops;
    assert!(ops.iter().any(|op| matches!(op.action, Action::Wait { .. })));
    let op = ops.iter().flat_map(|op| op.action.calls()).find_map(|call| match call {
        lockstep_core::plan::Call::Collective { collective, .. } => collective.reduce_op(),
        _ => None,
    });
    let Some(ReduceOp::PremulSum(factor)) = op else { panic!("{op:?}") };
    assert_eq!(factor.value(), 0.5);
    assert_eq!((raised.len(), raised[0].1.line), (1, 15));
    assert!(raised[0].1.message.starts_with("UnboundLocalError: "), "{raised:?}");
}

/// PyTorch 2.7 has no calls on several GPUs; 1.13 had.
#[test]
fn calls_of_several_gpus_are_there_for_those_who_ask() {
    let text = r#"
def main():
    dist.init_process_group("nccl")
    xs = [torch.ones(4) for _ in range(2)]
    dist.all_reduce_multigpu(xs)

run(main, world_size=2)
"#;
    let now = compiled(text);
    let [(ranks, error)] = &now.raised[..] else { panic!("{:?}", now.raised) };
    assert_eq!((ranks.len(), error.line), (2, 5));
    let said = "AttributeError: module 'torch.distributed' has no attribute 'all_reduce_multigpu'";
    assert_eq!(error.message, said);
    let then = compiled(&text.replace("world_size=2", "world_size=2, torch=\"1.13\""));
    assert!(then.raised.is_empty(), "{:?}", then.raised);
    let names: Vec<&str> =
        then.plan.program(GlobalRank(0)).unwrap().ops.iter().map(|op| op.action.name()).collect();
    assert_eq!(names, ["reduce on this rank", "all_reduce", "copy"]);
}

/// A mesh of CPUs is written for a machine without GPUs, where PyTorch takes gloo for the default group that the mesh
/// makes.
#[test]
fn a_mesh_of_cpus_makes_its_groups_on_gloo() {
    let text = r#"
import torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
for shape in [(2, 2)]:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
for p in nn.Linear(3, 3).parameters():
    dist.all_reduce(p.data, group=mesh.get_group("tp"))
"#;
    let compiled = compiled(text);
    assert!(compiled.raised.is_empty(), "{:?}", compiled.raised);
    assert_eq!(calls(&compiled.plan, 3), [["all_reduce"], ["all_reduce"]]);
    let line = text.replace("(2, 2)", "(4,)").replace("\"dp\", \"tp\"", "\"tp\",");
    assert!(self::compiled(&line).raised.is_empty());
}
