//! `with ddp.join():` and `with Join([ddp]):` — training with uneven inputs.

use crate::dist::arguments as take;
use crate::dist::values::{Context, ContextValue, members};
use crate::nn::modules::ddp_number;
use crate::nn::state::{OpenJoin, raised};
use crate::nn::wrapped_models::with_module;
use crate::process::raised::refused;
use crate::process::state::Process;
use crate::python::type_error::type_error;
use lockstep_torch::c10d::{Dist, Group};
use lockstep_torch::ddp::join::{JoinOptions, JoinPasses};
use lockstep_torch::ddp::{DdpCall, InJoin, Purpose};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::dict::UnpackDictEntries;
use std::sync::Arc;

/// Adds `Join`.
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    generic(builder);
}

#[starlark_module]
fn generic(builder: &mut GlobalsBuilder) {
    /// `torch.distributed.algorithms.join.Join`.
    fn Join<'v>(
        joinables: Value<'v>,
        #[starlark(default = true)] enable: bool,
        #[starlark(default = false)] throw_on_early_termination: bool,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<ContextValue> {
        let _ = kwargs;
        let joinables = take::items(joinables).unwrap_or_default();
        let [model] = joinables[..] else {
            return Err(type_error("Join takes a list of one DDP model here"));
        };
        let model = ddp_number(model)?;
        Ok(ContextValue(match enable {
            true => Context::Join { model, throw: throw_on_early_termination },
            false => Context::Nothing,
        }))
    }
}

/// The rank enters the block.
pub(crate) fn enter(process: &mut Process<'_>, model: usize, throw: bool) -> anyhow::Result<()> {
    let group = process.modules.get(model).and_then(|module| module.group());
    let dist = process.dist()?;
    let members = members(dist, group)?;
    let me = dist.get_rank(group).map_err(refused)?;
    let rank = dist.process();
    let nth = process.shown.join(members);
    let passes = process.known.passes(rank, nth);
    let me = u32::try_from(me).unwrap_or_default();
    process.joins.push(OpenJoin { model, throw, nth, passes, me });
    Ok(())
}

/// A forward pass of the model: its conditions inside `join()`, if it is inside of one. Whether it `syncs` is
/// decided by DDP's `require_backward_grad_sync`, under `no_grad()` too.
pub(crate) fn input(process: &mut Process<'_>, model: usize, syncs: bool) -> Option<InJoin> {
    let open = process.joins.iter().rev().find(|open| open.model == model)?.clone();
    let before = process.shown.input(open.nth, syncs);
    let has_more = |inputs: &u32| *inputs > before;
    let (last, all) = match open.passes.as_ref().map(|passes| passes.inputs.as_slice()) {
        Some(inputs) => (inputs.iter().rposition(has_more), inputs.iter().all(has_more)),
        None => (None, true),
    };
    Some(InJoin {
        authoritative_rank: last.map_or(open.me, |last| last as u32),
        throw: open.throw.then_some(!all),
        tells: true,
    })
}

/// All ranks' passes in the innermost join of the model, once they are known.
pub(crate) fn passes(process: &Process<'_>, model: usize) -> Option<Arc<JoinPasses>> {
    process.joins.iter().rev().find(|open| open.model == model)?.passes.clone()
}

/// Holds the process of a rank that has left, where it reads a result (`.item()`, a copy to the
/// host), until the call has ended: on a GPU it would run ahead otherwise.
fn read_back(dist: &mut Dist<'_>, group: Option<Group>, call: &DdpCall) {
    let read = matches!(
        call.purpose,
        Purpose::JoinPresence | Purpose::JoinSync | Purpose::JoinRank | Purpose::RebuiltSizes
    );
    let on_gpu = |config: String| config.contains("nccl");
    if read && dist.get_backend_config(group).is_ok_and(on_gpu) {
        dist.part_of(Some(JOIN)).synchronize();
        dist.part_of(None);
    }
}

/// The rank leaves the block: it shadows the calls that the others still make.
pub(crate) fn leave(process: &mut Process<'_>) -> anyhow::Result<()> {
    let Some(open) = process.joins.pop() else { return Ok(()) };
    let Some(passes) = open.passes else { return Ok(()) };
    with_module(process, open.model, |process, module| {
        let options =
            JoinOptions { throw_on_early_termination: open.throw, ..JoinOptions::default() };
        let model = module.model.clone();
        let ddp = &mut module.ddp;
        let order = ddp.rank0_order(&model, &passes).map_err(|error| raised(&error))?;
        let mut calls = Vec::new();
        let ended = ddp.leave_join(open.me, &passes, &order, options, &mut calls);
        let group = module.group();
        module.issue_all(process.dist()?, &calls, JOIN, |dist, call| {
            read_back(dist, group, call);
            Ok(())
        })?;
        ended.map_err(|error| raised(&error))
    })
}

pub(crate) const JOIN: &str = "DistributedDataParallel.join";
