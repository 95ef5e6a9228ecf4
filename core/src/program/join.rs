//! `with ddp.join():` and `with Join([ddp]):` — training with uneven inputs.

use super::arguments as take;
use super::module::{JOIN, members, raised, with_module};
use super::module_value::ddp_of;
use super::process::{Process, refused};
use super::values::{Context, ContextValue};
use crate::ddp::InJoin;
use crate::ddp::join::JoinOptions;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::dict::UnpackDictEntries;
use std::sync::Arc;

/// Adds `Join`.
pub(super) fn functions(builder: &mut GlobalsBuilder) {
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
            return Err(take::type_error("Join takes a list of one DDP model here"));
        };
        let model = ddp_of(model)?;
        Ok(ContextValue(match enable {
            true => Context::Join { model, throw: throw_on_early_termination },
            false => Context::Nothing,
        }))
    }
}

/// A `join()` that is open on a rank.
#[derive(Clone, Debug)]
pub(super) struct Open {
    model: usize,
    throw: bool,
    /// Which of the rank's joins it is.
    nth: usize,
    /// The inputs of all members, by group rank, once they are known.
    inputs: Option<Arc<[u32]>>,
    /// The rank in the model's group.
    me: u32,
}

/// The rank enters the block.
pub(super) fn enter(process: &mut Process<'_>, model: usize, throw: bool) -> anyhow::Result<()> {
    let group = process.modules.get(model).and_then(|module| module.group());
    let dist = process.dist()?;
    let members = members(dist, group)?;
    let me = dist.get_rank(group).map_err(refused)?;
    let rank = dist.process();
    let nth = process.shown.join(members);
    let inputs = process.known.inputs(rank, nth);
    let me = u32::try_from(me).unwrap_or_default();
    process.joins.push(Open { model, throw, nth, inputs, me });
    Ok(())
}

/// A forward pass of the model: what it depends on inside `join()`, if it is inside of one.
pub(super) fn input(process: &mut Process<'_>, model: usize) -> Option<InJoin> {
    let open = process.joins.iter().rev().find(|open| open.model == model)?.clone();
    let before = process.shown.input(open.nth);
    let has_more = |inputs: &u32| *inputs > before;
    let (last, all) = match &open.inputs {
        Some(inputs) => (inputs.iter().rposition(has_more), inputs.iter().all(has_more)),
        None => (None, true),
    };
    Some(InJoin {
        authoritative_rank: last.map_or(open.me, |last| last as u32),
        throw: open.throw.then_some(!all),
        tells: true,
    })
}

/// The inputs of rank 0 in the innermost join of the model, once they are known.
pub(super) fn rank0_inputs(process: &Process<'_>, model: usize) -> Option<u32> {
    let open = process.joins.iter().rev().find(|open| open.model == model)?;
    open.inputs.as_ref()?.first().copied()
}

/// The rank leaves the block: it shadows what the others still do.
pub(super) fn leave(process: &mut Process<'_>) -> anyhow::Result<()> {
    let Some(open) = process.joins.pop() else { return Ok(()) };
    let Some(inputs) = open.inputs else { return Ok(()) };
    with_module(process, open.model, |process, module| {
        let options =
            JoinOptions { throw_on_early_termination: open.throw, ..JoinOptions::default() };
        let model = module.model();
        let Some(ddp) = module.ddp() else { return Ok(()) };
        let rank0 = inputs.first().copied().unwrap_or(0);
        let order = ddp.rank0_order(&model, rank0).map_err(|error| raised(&error))?;
        let mut calls = Vec::new();
        let ended = ddp.leave_join(open.me, &inputs, &order, options, &mut calls);
        for call in &calls {
            module.issue(process.dist()?, call, false, JOIN)?;
        }
        ended.map_err(|error| raised(&error))
    })
}
