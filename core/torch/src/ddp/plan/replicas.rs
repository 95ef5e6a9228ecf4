//! One process on several devices, as the 1.x source has it (explained in `ddp/replicas.rs`). A rank of the
//! plan is a device: the first devices of the processes carry the processes' calls to each other, and all
//! devices of all processes are the ring that reduces a bucket.

use super::passes::{backward_pass, rebuilt, unused};
use super::script::{CONSTRUCTOR, FORWARD, OPTIMIZER};
use super::training::{MAX_OPS, Training, TrainingError};
use super::writer::Writer;
use crate::ddp::call::{DdpCall, Purpose};
use crate::ddp::model::Model;
use crate::ddp::notes::{Role, StepKind, TrainingRun};
use crate::ddp::replicas::{DeviceCopy, Replicas};
use crate::ddp::wrapper::{Ddp, Forward};
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Op, PlanError, Program};
use lockstep_core::rank::GlobalRank;

/// The processes, by their first devices.
const PROCESSES: GroupId = GroupId(1);
/// The devices of the first process; those of the others follow.
const DEVICES: GroupId = GroupId(2);

/// The plan of processes with several devices each.
///
/// # Errors
/// When DDP's constructor raises, the options are not of 1.x, or the plan cannot be run.
pub(super) fn replicated_run(
    model: &Model,
    training: &Training,
) -> Result<TrainingRun, TrainingError> {
    let (processes, devices) = (training.world_size, training.devices);
    let replicas = Replicas::of(model, &training.options, processes, devices)?;
    check(training)?;
    let each = Training {
        world_size: training.ranks(),
        batch: training.batch.div_ceil(u64::from(devices)),
        ..training.clone()
    };
    let mut writer = Writer::new(model, &each)?;
    let group = |name: &str, ranks: Vec<GlobalRank>| {
        ProcessGroup::new(name, training.backend, ranks).map_err(PlanError::from)
    };
    let firsts = (0..processes).map(|process| GlobalRank(process * devices)).collect();
    writer.plan.groups.push(group("processes", firsts)?);
    for process in 0..processes {
        let own = (0..devices).map(|device| GlobalRank(process * devices + device)).collect();
        writer.plan.groups.push(group(&format!("process {process}"), own)?);
    }
    let (mut programs, mut roles) = (Vec::new(), Vec::new());
    for first in [true, false] {
        write(&mut writer, model, &each, &replicas, first)?;
        let (ops, steps) = writer.take();
        programs.push(ops);
        roles.push(Role { rank: u32::from(!first), steps, raised: None });
    }
    let longest = programs.iter().map(Vec::len).max().unwrap_or(0);
    let all = 2 * u64::from(processes);
    if all.saturating_mul(longest as u64) > MAX_OPS {
        return Err(TrainingError::TooMany { programs: all, ops: longest });
    }
    let mut plan = writer.plan;
    plan.name = format!("DDP 1.x, {}, {processes} processes of {devices} devices", model.name);
    for process in 0..processes {
        let own = programs.iter().map(|ops| Program { ops: of_process(ops, process) });
        plan.programs.extend(own);
    }
    let of = |rank: u32| 2 * (rank / devices) + u32::from(!rank.is_multiple_of(devices));
    plan.program_of = (0..plan.world_size).map(of).collect();
    plan.check()?;
    let role_of = (0..plan.world_size).map(|rank| u32::from(!rank.is_multiple_of(devices)));
    Ok(TrainingRun { role_of: role_of.collect(), plan, roles })
}

fn check(training: &Training) -> Result<(), TrainingError> {
    let wrong = if training.options.comm_hook.is_some() {
        "DDP communication hook does not support single-process multiple-device mode."
    } else if training.sync_batch_norm {
        "SyncBatchNorm is only supported for DDP with single GPU per process."
    } else if training.uneven.is_some() {
        "DDP join() API does not support Single-Process Multi-GPU (SPMD) mode for training. The \
         recommended approach for DDP training is to spawn a single process that works on a single \
         GPU."
    } else if training.zero.is_some() || training.options.zero_overlap.is_some() {
        "ZeroRedundancyOptimizer came when replicas were gone: one device a process"
    } else if training.averager.is_some() {
        "model averagers came when replicas were gone: one device a process"
    } else if training.options.mixed_precision.is_some() {
        "mixed_precision came when replicas were gone: one device a process"
    } else {
        return Ok(());
    };
    Err(TrainingError::Together(wrong))
}

/// The operations in the group of another process's devices.
fn of_process(ops: &[Op], process: u32) -> Vec<Op> {
    let mut ops = ops.to_vec();
    for op in &mut ops {
        if let [Call::Collective { group, .. }] = op.action.calls_mut()
            && *group == DEVICES
        {
            *group = GroupId(DEVICES.0 + process);
        }
    }
    ops
}

/// The program of the first process's first device, or of its others.
fn write(
    writer: &mut Writer<'_>,
    model: &Model,
    training: &Training,
    replicas: &Replicas,
    first: bool,
) -> Result<(), TrainingError> {
    let (mut ddp, calls) = Ddp::new(0, model, &training.options)?;
    writer.at(CONSTRUCTOR, "DistributedDataParallel");
    let between = |writer: &mut Writer<'_>, calls: &[DdpCall]| {
        if first {
            for call in calls {
                writer.call_in(PROCESSES, call, 0, false);
            }
            writer.read_back(calls);
        }
    };
    // `broadcast_coalesced` of torch.cuda.comm, from the first device.
    let copy = |writer: &mut Writer<'_>, copies: &[DeviceCopy]| {
        writer.names.restart();
        for copy in copies {
            let call = DdpCall::broadcast(copy.dtype, copy.numel, 0, Purpose::Replicate);
            writer.call_in(DEVICES, &call, 0, false);
        }
    };
    between(writer, &calls);
    let backward = model.backward();
    let unused = unused(model, &backward);
    let mut synchronized = true;
    for step in 0..training.steps {
        let accumulate = training.accumulate.max(1);
        let sync = (step + 1) % accumulate == 0 || step + 1 == training.steps;
        let (before, mut calls) = (rebuilt(&ddp), Vec::new());
        ddp.forward(&Forward { sync, unused: &unused, ..Forward::default() }, &mut calls)?;
        writer.step(StepKind::Training, sync, rebuilt(&ddp) && !before, &ddp);
        writer.at(FORWARD, "DistributedDataParallel.forward");
        let is_buffers = |call: &DdpCall| call.purpose == Purpose::Buffers;
        let (buffers, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_buffers);
        between(writer, &others);
        if synchronized {
            copy(writer, &replicas.params);
        }
        between(writer, &buffers);
        if synchronized {
            copy(writer, &replicas.buffers);
        }
        writer.forward_pass();
        backward_pass(writer, &mut ddp, &backward, Vec::new())?;
        if sync && first {
            writer.at(OPTIMIZER, "optimizer.step");
            writer.optimizer();
        }
        synchronized = sync;
    }
    Ok(())
}
