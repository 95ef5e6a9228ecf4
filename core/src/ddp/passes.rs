//! Backward passes that reduce nothing, as a program's plan tells them: under `no_sync()`, or of
//! `model.module`, which DDP knows nothing of. Their calls are missing in the plan like any that a
//! rank leaves out; what computes them says why.

use crate::plan::{Action, Op, SourceLine};

/// What computes a backward pass is called.
pub(crate) const BACKWARD: &str = "backward";

/// What becomes of a pass's gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// DDP reduces them.
    Reduces,
    /// DDP adds them up: its forward pass was inside `no_sync()`.
    Unsynced,
    /// They stay where they are: the forward pass was `model.module`'s.
    Past,
}

impl Pass {
    /// What its computation is a part of, in a plan.
    pub(crate) fn via(self) -> Option<&'static str> {
        match self {
            Pass::Reduces => None,
            Pass::Unsynced => Some("backward under DistributedDataParallel.no_sync"),
            Pass::Past => Some("backward of DistributedDataParallel.module"),
        }
    }

    /// The backward passes of a program, in order, each with its line.
    pub(crate) fn of(ops: &[Op]) -> Vec<(Pass, Option<SourceLine>)> {
        let mut passes = Vec::new();
        let mut inside = false;
        for op in ops {
            let Action::Compute { name, .. } = &op.action else { continue };
            if name == BACKWARD && !inside {
                let is = |pass: &Pass| op.via.is_some() && pass.via() == op.via.as_deref();
                let marked = [Pass::Unsynced, Pass::Past].into_iter().find(is);
                passes.push((marked.unwrap_or(Pass::Reduces), op.at));
            }
            inside = name == BACKWARD;
        }
        passes
    }
}
