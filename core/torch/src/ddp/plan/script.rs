//! The script that a plan's lines point into.

use super::training::Training;
use crate::ddp::model::Model;
use lockstep_core::plan::Source;

/// Lines of the script that a plan shows.
pub(super) const CONSTRUCTOR: u32 = 5;

pub(super) const FORWARD: u32 = 7;

pub(super) const BACKWARD: u32 = 8;

pub(super) const OPTIMIZER: u32 = 9;

/// The script that the plan's lines point into.
pub(super) fn script(model: &Model, training: &Training) -> Source {
    let Training { backend, steps, .. } = training;
    let name = &model.name;
    let text = format!(
        "import torch, torch.distributed as dist\n\
         from torch.nn.parallel import DistributedDataParallel\n\
         \n\
         dist.init_process_group(\"{backend}\")\n\
         model = DistributedDataParallel(build({name:?}))\n\
         for step in range({steps}):\n    \
             loss = model(inputs(step)).sum()\n    \
             loss.backward()\n    \
             optimizer.step(); optimizer.zero_grad()\n"
    );
    Source { path: "train.py".into(), text }
}
