//! A backward pass: gradients in autograd's order, which DDP reduces bucket by bucket.

use crate::nn::checkpoints;
use crate::nn::ddp_passes::BACKWARD;
use crate::nn::state::{Unreduced, Wrapped, raised};
use crate::nn::wrapped_models::with_module;
use crate::process::raised::{Raised, refused};
use crate::process::state::{Process, process};
use lockstep_core::plan::remark::{BACKWARD as BACKWARD_PASS, BackwardPass};
use lockstep_torch::autograd::{Checkpoint, Node};
use lockstep_torch::c10d::Reduction;
use starlark::eval::Evaluator;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `backward()` of a value that comes of that operation.
///
/// # Errors
/// An exception that PyTorch raises.
pub(crate) fn backward(
    root: Option<Arc<Node>>,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<()> {
    let Some(root) = root else {
        let text = "RuntimeError: element 0 of tensors does not require grad and does not have a \
                    grad_fn";
        let help = "What it is computed of has no trained parameter, was detached, or was computed \
                    under torch.no_grad().";
        return Err(Raised { text: text.to_owned(), help: Some(help.to_owned()) }.into());
    };
    let mut pass = Backward::of(process(eval)?);
    pass.goes_through(&root, None, eval)?;
    pass.ends(process(eval)?)
}

/// The call that an operation's backward pass makes: all ranks of a group sum up a tensor.
fn sums(call: u32, process: &mut Process<'_>) -> anyhow::Result<()> {
    let Some(call) = process.forward.backward_calls.get(call as usize).cloned() else {
        return Ok(());
    };
    let options = Reduction { group: call.group, ..Reduction::default() };
    let summed = process.dist()?.part_of(Some(call.via)).all_reduce(&call.tensor, options);
    process.dist()?.part_of(None);
    summed.map_err(refused)?;
    Ok(())
}

/// A backward pass that is under way.
struct Backward {
    /// Of each parameter, the wrapped models that train it and its place among theirs.
    trained_by: BTreeMap<u32, Vec<(usize, u32)>>,
    /// The wrapped models whose parameters it has come to, and whether their forward pass was to synchronize; `None`
    /// if it was past DDP.
    through: BTreeMap<usize, Option<bool>>,
    /// The checkpointed parts that were computed again.
    computed_again: BTreeSet<u32>,
    /// The time computed since the last call, in nanoseconds.
    computed: u64,
    works: Vec<lockstep_torch::c10d::Work>,
}

impl Backward {
    fn of(process: &Process<'_>) -> Backward {
        let mut trained_by: BTreeMap<u32, Vec<(usize, u32)>> = BTreeMap::new();
        for (at, own) in process.modules.iter().enumerate() {
            for (index, number) in (0..).zip(own.trained()) {
                trained_by.entry(number).or_default().push((at, index));
            }
        }
        let (through, computed_again) = (BTreeMap::new(), BTreeSet::new());
        Backward { trained_by, through, computed_again, computed: 0, works: Vec::new() }
    }

    /// The graph of a root: that of the pass, or of a part whose graph is made `inside` of an operation.
    fn goes_through(
        &mut self,
        root: &Node,
        inside: Option<u64>,
        eval: &mut Evaluator<'_, '_, '_>,
    ) -> anyhow::Result<()> {
        for step in root.backward() {
            let operation = inside.unwrap_or(step.sequence);
            match step.checkpoint {
                Some(Checkpoint::Recomputes(part)) if self.computed_again.insert(part) => {
                    self.computes(process(eval)?)?;
                    checkpoints::recompute(part, eval).map_err(starlark::Error::into_anyhow)?;
                }
                Some(Checkpoint::Reenters(part)) => {
                    self.computes(process(eval)?)?;
                    let inner =
                        checkpoints::reenter(part, eval).map_err(starlark::Error::into_anyhow)?;
                    if let Some(inner) = inner {
                        self.goes_through(&inner, Some(operation), eval)?;
                    }
                }
                _ => {}
            }
            self.computed = self.computed.saturating_add(step.backward_ns);
            if let Some(call) = step.call {
                self.computes(process(eval)?)?;
                sums(call, process(eval)?)?;
            }
            for parameter in &step.ready {
                self.ready(*parameter, operation, process(eval)?)?;
            }
        }
        Ok(())
    }

    /// The gradient of a parameter is complete, by an operation of that number.
    fn ready(
        &mut self,
        parameter: u32,
        operation: u64,
        process: &mut Process<'_>,
    ) -> anyhow::Result<()> {
        crate::nn::parameter::gets_gradient(parameter);
        for (at, index) in self.trained_by.get(&parameter).cloned().unwrap_or_default() {
            with_module(process, at, |process, module| {
                let pass = module.pass_of(operation);
                let syncs = pass.map(|pass| pass.syncs);
                let left_out = pass.is_some_and(|pass| pass.left_out.contains(&parameter));
                if self.through.insert(at, syncs).is_none() {
                    module.unreduced = match (syncs, module.unreduced) {
                        (_, Some(Unreduced::Noted)) => Some(Unreduced::Noted),
                        (Some(true), _) => None,
                        (Some(false), _) => Some(Unreduced::NoSync),
                        (None, _) => Some(Unreduced::Past),
                    };
                }
                if left_out {
                    return Ok(());
                }
                let mut calls = Vec::new();
                let ended = module.ddp.gradient(index, &mut calls);
                if !calls.is_empty() {
                    self.computes(process)?;
                }
                for call in &calls {
                    self.works.extend(module.issue(process.dist()?, call, true, BACKWARD)?);
                }
                ended.map_err(|error| raised(&error))
            })?;
        }
        Ok(())
    }

    /// The meaning of the pass for the gradients of the wrapped models that it has come to.
    fn kind(&self) -> BackwardPass {
        let has = |syncs| self.through.values().any(|own| *own == syncs);
        match (has(Some(true)), has(Some(false)), has(None)) {
            (false, true, _) => BackwardPass::Unsynced,
            (false, false, true) => BackwardPass::Past,
            _ => BackwardPass::Reduces,
        }
    }

    /// Adds the time of the work since the last call.
    fn computes(&mut self, process: &mut Process<'_>) -> anyhow::Result<()> {
        let duration_ns = std::mem::take(&mut self.computed);
        if duration_ns == 0 {
            return Ok(());
        }
        let dist = process.dist()?.part_of(self.kind().via());
        dist.compute(BACKWARD_PASS, duration_ns);
        dist.part_of(None);
        Ok(())
    }

    /// The pass ends: what was launched is waited for.
    fn ends(mut self, process: &mut Process<'_>) -> anyhow::Result<()> {
        self.computes(process)?;
        let through = std::mem::take(&mut self.through);
        for (at, _) in through.into_iter().filter(|(_, syncs)| syncs.is_some()) {
            with_module(process, at, |process, module| {
                let mut calls = Vec::new();
                let ended = module.ddp.end_backward(&mut calls);
                for call in &calls {
                    self.works.extend(module.issue(process.dist()?, call, true, BACKWARD)?);
                }
                ended.map_err(|error| raised(&error))
            })?;
        }
        if self.works.is_empty() {
            return Ok(());
        }
        let dist = process.dist()?.part_of(Some(BACKWARD));
        let waited = self.works.into_iter().try_for_each(|work| dist.wait(work, None).map(|_| ()));
        dist.part_of(None);
        waited.map_err(refused)?;
        Ok(())
    }
}

/// Notes it where an optimizer of these parameters steps on gradients that DDP has not reduced, the first time.
pub(crate) fn note_step(parameters: &[u32], process: &mut Process<'_>) -> anyhow::Result<()> {
    let mut past = None;
    let steps = |own: &&mut Wrapped| own.parameters.iter().any(|own| parameters.contains(own));
    for own in process.modules.iter_mut().filter(steps) {
        past = match own.unreduced {
            None | Some(Unreduced::Noted) => continue,
            Some(why) => Some(why == Unreduced::Past),
        };
        own.unreduced = Some(Unreduced::Noted);
    }
    if let Some(past) = past {
        process.dist()?.step_on_local_gradients(past);
    }
    Ok(())
}
