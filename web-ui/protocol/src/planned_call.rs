//! A call of torch.distributed as a plan, or as PyTorch refuses it.

use lockstep_core::plan::Plan;
use serde::{Deserialize, Serialize};

/// A call's plan, or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The plan, or the refusal in a sentence: PyTorch's words, and ours beside them.
    pub plan: Result<Box<Plan>, String>,
    /// Per other option, true if it has a plan; empty if the call has one itself.
    pub instead: Vec<bool>,
}
