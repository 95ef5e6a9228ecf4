//! Backward passes of which DDP reduces nothing: under `no_sync()`, or of `model.module` instead of
//! the wrapper. A plan lacks their collectives like any that a rank skips; the name of the
//! computation says why.

use crate::plan::{Action, Op, SourceLine};

/// The name of the computation that is a backward pass.
pub const BACKWARD: &str = "backward";

/// A backward pass, by the fate of its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardPass {
    /// DDP reduces them.
    Reduces,
    /// DDP adds them up: its forward pass was inside `no_sync()`.
    Unsynced,
    /// They stay where they are: the forward pass was `model.module`'s.
    Past,
}

impl BackwardPass {
    /// The name, in a plan, of the call that its computation is a part of.
    pub fn via(self) -> Option<&'static str> {
        match self {
            BackwardPass::Reduces => None,
            BackwardPass::Unsynced => Some("backward under DistributedDataParallel.no_sync"),
            BackwardPass::Past => Some("backward of DistributedDataParallel.module"),
        }
    }

    /// The backward passes of a program, in order, each with its line.
    pub fn of(ops: &[Op]) -> Vec<(BackwardPass, Option<SourceLine>)> {
        let mut passes = Vec::new();
        let mut inside = false;
        for op in ops {
            let Action::Compute { name, .. } = &op.action else { continue };
            if **name == *BACKWARD && !inside {
                let is = |pass: &BackwardPass| op.via.is_some() && pass.via() == op.via.as_deref();
                let marked = [BackwardPass::Unsynced, BackwardPass::Past].into_iter().find(is);
                passes.push((marked.unwrap_or(BackwardPass::Reduces), op.at));
            }
            inside = **name == *BACKWARD;
        }
        passes
    }
}
