//! Refusals name the missing library in one sentence.

use crate::{Machine, named, stand_in};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_gpu_exec::{NcclBackend, NcclOptions, RankLauncher, Sharing};
use std::process::Command;

fn all_reduce(n: u32, op: ReduceOp) -> Plan {
    let mut plan = PlanBuilder::new("one", n, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Int64, 4, Fill::Rank);
    plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, Collective::AllReduce { op }, 4, None, Some(tensor));
    })
    .unwrap()
}

#[test]
fn a_machine_without_the_libraries() {
    let folder = named(&stand_in(), &["libcuda.so.1"]);
    let libraries = vec![folder.path().to_owned()];
    let options = NcclOptions { libraries, only_there: true, ..NcclOptions::default() };
    let launcher = RankLauncher { program: "nothing".into(), args: Vec::new() };
    let refused = NcclBackend::new(launcher, &options).unwrap_err().to_string();
    assert!(refused.contains("no libnccl.so.2 or libnccl.so in 1 folder ("), "{refused}");
    assert!(refused.contains("libnvrtc.so.12") && !refused.contains("libcuda"), "{refused}");
    assert!(refused.contains(folder.path().to_str().unwrap()), "{refused}");
}

#[test]
fn a_library_that_lacks_a_function() {
    let folder = named(&stand_in(), &["libcuda.so.1", "libnvrtc.so.12"]);
    let source = folder.path().join("old.c");
    std::fs::write(&source, "int ncclGetVersion(int *v) { *v = 2708; return 0; }").unwrap();
    let library = folder.path().join("libnccl.so.2");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(compiled.unwrap().success());
    let refused = Machine::with(folder).refusal(all_reduce(2, ReduceOp::Sum));
    assert!(refused.contains("libnccl.so.2 has no function ncclGetUniqueId"), "{refused}");
    assert!(refused.contains("which NCCL has had since NCCL 2.18"), "{refused}");
}

#[test]
fn a_machine_without_a_gpu() {
    let machine = Machine::new().set("STAND_IN_DEVICES=0").set("CUDA_VISIBLE_DEVICES=none");
    let refused = machine.refusal(all_reduce(1, ReduceOp::Sum));
    let why = "CUDA's driver shows no GPU (cuDeviceGetCount says 0) with CUDA_VISIBLE_DEVICES=none";
    assert!(refused.ends_with(why), "{refused}");
}

#[test]
fn fewer_gpus_than_ranks() {
    let machine = Machine::new().set("STAND_IN_DEVICES=2");
    let refused = machine.refusal(all_reduce(3, ReduceOp::Sum));
    assert!(refused.contains("3 ranks need 3 GPUs, but CUDA's driver shows 2;"), "{refused}");
}

#[test]
fn two_ranks_on_one_gpu() {
    let refused = Machine::new().set("STAND_IN_ONE_BUS=1").refusal(all_reduce(2, ReduceOp::Sum));
    let why = "ranks 0 and 1 would share the GPU 0000:00:00.0 of this host";
    assert!(refused.contains(why), "{refused}");
    // If sharing is asked for, NCCL itself decides.
    let shared = Machine::new().set("STAND_IN_DEVICES=1").sharing(Sharing::HostIds);
    let trace = shared.run(all_reduce(2, ReduceOp::Sum));
    crate::assert_completed(&trace);
    let shared = Machine::new().set("STAND_IN_DEVICES=1").sharing(Sharing::MultiRank);
    crate::assert_completed(&shared.run(all_reduce(2, ReduceOp::Sum)));
}

#[test]
fn what_nccl_refuses_is_told_with_its_last_words() {
    // One GPU for both, whatever the ranks are told of hosts.
    let machine = Machine::new().set("STAND_IN_DEVICES=1").set("NCCL_HOSTID=one");
    let refused = machine.sharing(Sharing::HostIds).refusal(all_reduce(2, ReduceOp::Sum));
    assert!(refused.contains("ncclCommInitRankConfig failed: invalid usage"), "{refused}");
    let last = "NCCL says: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device";
    assert!(refused.contains(last), "{refused}");
}

#[test]
fn an_operation_that_nccl_lacks() {
    let refused = Machine::new().refusal(all_reduce(2, ReduceOp::Band));
    assert!(refused.contains("operation 0: Cannot use ReduceOp.BAND with NCCL."), "{refused}");
    assert!(refused.contains("--collectives schedules"), "{refused}");
    crate::assert_completed(&Machine::new().by_schedules().run(all_reduce(2, ReduceOp::Band)));
}

#[test]
fn a_death_needs_a_process() {
    let mut plan = PlanBuilder::new("dies", 2, BackendName::Nccl).unwrap();
    plan.tensor("t", Dtype::Int64, 4, Fill::Rank);
    let plan = plan.every_rank(|_, program| {
        program.die("ValueError: no");
    });
    let refused = Machine::new().sharing(Sharing::OneProcess).refusal(plan.unwrap());
    assert!(refused.contains("logical ranks of one process do not have"), "{refused}");
}

/// It is held against the device's memory, not against this machine's.
#[test]
fn a_plan_that_its_gpu_has_no_room_for() {
    let mut plan = PlanBuilder::new("large", 2, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 1 << 40, Fill::Zeros);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, sum, 1 << 40, None, Some(tensor));
    });
    let refused = Machine::new().refusal(plan.unwrap());
    let why = "take 4398046511104 bytes, but its GPU has 4294967296 left; use smaller tensors";
    assert!(refused.contains(why), "{refused}");
}
