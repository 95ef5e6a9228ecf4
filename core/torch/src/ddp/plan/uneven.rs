//! Uneven inputs: a program for every number of inputs. Ranks that have run out shadow the collectives of the
//! others (explained in `join.rs`).

use super::passes::{backward_pass, rebuilt, unused};
use super::script::{BACKWARD, CONSTRUCTOR, FORWARD, OPTIMIZER};
use super::training::{Training, TrainingError, Uneven};
use super::writer::Writer;
use crate::ddp::call::{DdpCall, Purpose};
use crate::ddp::error::DdpError;
use crate::ddp::join::reduces;
use crate::ddp::join_calls::{common_rank, presence};
use crate::ddp::model::Model;
use crate::ddp::notes::{Half, Role, StepKind, TrainingRun};
use crate::ddp::wrapper::{Ddp, Forward, InJoin};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Action, Program};

/// The plan of a training run inside `join()`; inside `Join([ddp, zero])` with a sharded optimizer.
///
/// # Errors
/// When DDP's constructor raises, or the options do not go together.
pub(super) fn uneven_run(
    model: &Model,
    training: &Training,
    uneven: &Uneven,
) -> Result<TrainingRun, TrainingError> {
    check(training, uneven)?;
    let world_size = training.world_size;
    // By inputs, the first rank of each.
    let mut classes: Vec<(u32, u32)> = Vec::new();
    let mut role_of = Vec::new();
    for rank in 0..world_size {
        let inputs = uneven.of(rank);
        let known = classes.iter().position(|(of, _)| *of == inputs);
        if known.is_none() {
            classes.push((inputs, rank));
        }
        role_of.push(known.unwrap_or(classes.len() - 1) as u32);
    }
    let run = Joining { model, training, uneven, orders: rank0_orders(model, training, uneven)? };
    let mut writer = Writer::new(model, training)?;
    let (mut programs, mut roles) = (Vec::new(), Vec::new());
    for (inputs, rank) in classes {
        let raised = run.write(&mut writer, inputs, rank)?;
        let (ops, steps) = writer.take();
        programs.push(Program { ops });
        roles.push(Role { rank, steps, raised });
    }
    wait_for_the_first(&mut programs, &mut roles);
    let mut plan = writer.plan;
    plan.programs = programs;
    plan.program_of.clone_from(&role_of);
    plan.check()?;
    Ok(TrainingRun { plan, roles, role_of })
}

/// Cuts the other ranks off at the iteration in which DDP raises on some ranks alone: they wait for
/// those in it.
fn wait_for_the_first(programs: &mut [Program], roles: &mut [Role]) {
    let raising = roles.iter().filter(|role| role.raised.is_some());
    let Some(until) = raising.map(|role| role.steps.len()).min() else { return };
    for (program, role) in programs.iter_mut().zip(roles) {
        if let Some(beyond) = role.steps.get(until).map(|step| step.first_op) {
            program.ops.truncate(beyond as usize);
            role.steps.truncate(until);
            role.raised = None;
        }
    }
}

/// The most kinds of ranks: each is a program.
const MAX_CLASSES: usize = 64;

fn check(training: &Training, uneven: &Uneven) -> Result<(), TrainingError> {
    let wrong = if uneven.inputs.is_empty() {
        "uneven inputs are given by rank: 5,3,4"
    } else if uneven.inputs.len() > training.world_size as usize {
        "there are inputs for more ranks than there are"
    } else if uneven.inputs.len() > MAX_CLASSES {
        "uneven inputs are listed for 64 ranks at most; the ranks that follow have as many as the \
         last that is listed"
    } else {
        return training.check_join();
    };
    Err(TrainingError::Together(wrong))
}

impl Training {
    /// Checks that the other settings of the training work with `join()`.
    ///
    /// # Errors
    /// A setting does not work with `join()`, or is not followed in combination with it.
    pub fn check_join(&self) -> Result<(), TrainingError> {
        let wrong = if self.accumulate > 1 && self.zero.is_some() {
            "ZeroRedundancyOptimizer's join hook steps in every pass that it shadows, and the ranks with \
             inputs only in those that reduce: with no_sync() such a job hangs in PyTorch"
        } else if self.sync_batch_norm {
            "SyncBatchNorm cannot be shadowed: PyTorch asks for throw_on_early_termination=True with \
             it, which join() here does not combine"
        } else if self.averager.is_some() {
            "a model averager is no joinable: ranks without inputs would not average, and the others \
             would wait for them"
        } else if self.options.zero_overlap.is_some() {
            "ZeroRedundancyOptimizer(overlap_with_ddp=True) cannot be in join(): PyTorch raises"
        } else {
            return Ok(());
        };
        Err(TrainingError::Together(wrong))
    }
}

/// By iteration, the order that rank 0 rebuilds its buckets from.
fn rank0_orders(
    model: &Model,
    training: &Training,
    uneven: &Uneven,
) -> Result<Vec<Vec<u32>>, DdpError> {
    let mut ddp = Ddp::new(0, model, &training.options)?.0.on(training.backend);
    let order = model.grad_ready_order();
    let unused = unused(model, &model.backward());
    let mut orders = Vec::new();
    for iteration in 0..uneven.most(training.world_size) {
        orders.push(ddp.reducer().map(|r| r.rebuild_order().to_vec()).unwrap_or_default());
        let authoritative_rank = uneven.authoritative(training.world_size, iteration);
        let sync = reduces(iteration, training.accumulate);
        let mut calls = Vec::new();
        let passed = match uneven.of(0) > iteration {
            true => {
                let join = Some(InJoin { authoritative_rank, throw: None, tells: true });
                let forward = Forward { sync, unused: &unused, join, ..Forward::default() };
                let forward = ddp.forward(&forward, &mut calls);
                forward.and_then(|()| ddp.backward(&order, &mut calls))
            }
            false => ddp.shadow(authoritative_rank, None, sync, &mut calls),
        };
        if passed.is_err() {
            break;
        }
    }
    Ok(orders)
}

struct Joining<'a> {
    model: &'a Model,
    training: &'a Training,
    uneven: &'a Uneven,
    orders: Vec<Vec<u32>>,
}

impl Joining<'_> {
    /// The program of ranks with so many inputs, of which `rank` is the first; returns the error that it
    /// raises.
    fn write(
        &self,
        writer: &mut Writer<'_>,
        inputs: u32,
        rank: u32,
    ) -> Result<Option<DdpError>, TrainingError> {
        let (ddp, calls) = Ddp::new(rank, self.model, &self.training.options)?;
        let mut ddp = ddp.on(self.training.backend);
        writer.at(CONSTRUCTOR, "DistributedDataParallel");
        for call in &calls {
            writer.call(call, 0, false);
        }
        writer.read_back(&calls);
        let world_size = self.training.world_size;
        let most = self.uneven.most(world_size);
        for iteration in 0..most {
            let raised = match inputs > iteration {
                true => self.trains(writer, &mut ddp, iteration)?,
                false => self.shadows(writer, &mut ddp, iteration, rank)?,
            };
            if raised.is_some() {
                return Ok(raised);
            }
        }
        writer.step(StepKind::JoinEnds, true, false, &ddp);
        writer.at(FORWARD, "Join.__exit__");
        self.read_call(writer, &presence());
        self.read_call(writer, &common_rank());
        let ranks = 0..world_size;
        let last_joiner = ranks.rev().find(|rank| self.uneven.of(*rank) == most).unwrap_or(0);
        let mut calls = Vec::new();
        ddp.sync_module_states(last_joiner, &mut calls);
        for call in &calls {
            writer.call(call, 0, false);
        }
        Ok(None)
    }

    fn read_call(&self, writer: &mut Writer<'_>, call: &DdpCall) {
        writer.call(call, 0, false);
        writer.read();
    }

    /// `throw_on_early_termination`, and whether a rank has no inputs left.
    fn throw(&self, iteration: u32) -> Option<bool> {
        let mut named = self.uneven.inputs.iter().take(self.training.world_size as usize);
        let exhausted = named.any(|inputs| *inputs <= iteration);
        self.uneven.options.throw_on_early_termination.then_some(exhausted)
    }

    fn order(&self, iteration: u32) -> Option<&[u32]> {
        self.orders.get(iteration as usize).map(Vec::as_slice)
    }

    fn trains(
        &self,
        writer: &mut Writer<'_>,
        ddp: &mut Ddp,
        iteration: u32,
    ) -> Result<Option<DdpError>, TrainingError> {
        let backward = self.model.backward();
        let unused = unused(self.model, &backward);
        let join = InJoin {
            authoritative_rank: self.uneven.authoritative(self.training.world_size, iteration),
            throw: self.throw(iteration),
            tells: true,
        };
        let sync = reduces(iteration, self.training.accumulate);
        let forward = Forward {
            sync,
            unused: &unused,
            rank0_order: self.order(iteration),
            join: Some(join),
            ..Forward::default()
        };
        let (before, mut calls) = (rebuilt(ddp), Vec::new());
        let passed = ddp.forward(&forward, &mut calls);
        writer.step(StepKind::Training, sync, rebuilt(ddp) && !before, ddp);
        writer.at(FORWARD, "DistributedDataParallel.forward");
        let mut launched = Vec::new();
        for call in &calls {
            match call.purpose {
                // Its result is needed when gradients are divided, if at all; or by nobody.
                Purpose::JoinPresence | Purpose::JoinSync => {
                    launched.push(writer.call(call, 0, true));
                }
                Purpose::JoinThrow | Purpose::JoinRank => self.read_call(writer, call),
                _ => drop(writer.call(call, 0, false)),
            }
        }
        writer.read_back(&calls);
        if let Err(error) = passed {
            writer.raises(Half::Forward);
            for op in launched {
                writer.push(Action::Wait { op, timeout_ms: None });
            }
            return Ok(Some(error));
        }
        writer.forward_pass();
        if let Err(error) = backward_pass(writer, ddp, &backward, launched) {
            writer.raises(Half::Backward);
            return Ok(Some(error));
        }
        if sync {
            writer.at(OPTIMIZER, "optimizer.step");
            writer.optimizer();
        }
        Ok(None)
    }

    fn shadows(
        &self,
        writer: &mut Writer<'_>,
        ddp: &mut Ddp,
        iteration: u32,
        rank: u32,
    ) -> Result<Option<DdpError>, TrainingError> {
        let (before, mut calls) = (rebuilt(ddp), Vec::new());
        let throw = self.throw(iteration);
        let authoritative = self.uneven.authoritative(self.training.world_size, iteration);
        let sync = reduces(iteration, self.training.accumulate);
        let shadowed = match throw {
            None => ddp.shadow(authoritative, self.order(iteration), sync, &mut calls),
            Some(_) => Err(DdpError::Exhausted { rank }),
        };
        writer.step(StepKind::Shadow, sync, rebuilt(ddp) && !before, ddp);
        writer.at(FORWARD, "Join.__exit__");
        self.read_call(writer, &presence());
        if throw.is_some() {
            let throw = DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinThrow);
            self.read_call(writer, &throw);
            writer.raises(Half::Forward);
            return Ok(shadowed.err());
        }
        let phase = 1 + u32::from(rebuilt(ddp));
        let mut launched = Vec::new();
        writer.names.restart();
        for call in &calls {
            match call.purpose {
                Purpose::Bucket { .. } | Purpose::HookPart { .. } => {
                    writer.at(BACKWARD, "_DDPJoinHook.main_hook");
                    launched.push(writer.call(call, phase, true));
                }
                Purpose::JoinSync | Purpose::JoinRank | Purpose::RebuiltSizes => {
                    self.read_call(writer, call);
                }
                _ => drop(writer.call(call, 0, false)),
            }
        }
        for op in launched {
            writer.push(Action::Wait { op, timeout_ms: None });
        }
        if shadowed.is_err() {
            writer.raises(Half::Backward);
            return Ok(shadowed.err());
        }
        if self.training.zero.is_some() {
            writer.at(OPTIMIZER, "_ZeROJoinHook.main_hook");
            writer.optimizer();
        }
        Ok(None)
    }
}
