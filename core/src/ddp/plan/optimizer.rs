//! The optimizer's step of a training plan, and what a sharded optimizer or an averager communicates
//! after it.

use super::writer::Writer;
use crate::ddp::model::Cost;
use crate::ddp::zero;
use crate::dtype::Dtype;
use crate::plan::Action;

impl Writer<'_> {
    /// SGD reads parameters and gradients and writes parameters. With ZeRO's overlap that happens
    /// in the hook, behind the reductions.
    pub(super) fn optimizer(&mut self) {
        let world_size = self.training.world_size.max(1);
        self.optimized += 1;
        if self.training.options.zero_overlap.is_none() {
            let share = if self.training.zero.is_some() { u64::from(world_size) } else { 1 };
            let bytes = self.model.param_bytes().saturating_mul(3) / share;
            let cost = Cost { weight_bytes: bytes, ..Default::default() };
            let ns = self.training.device.forward_ns(&cost, Dtype::Float32, 1);
            self.compute("optimizer.step".into(), ns);
        }
        if let Some(as_buffers) = self.training.zero {
            self.names.restart();
            let calls = zero::sync_params(self.model, world_size, as_buffers);
            let launched: Vec<_> = calls.iter().map(|call| self.call(call, 0, true)).collect();
            for op in launched {
                self.push(Action::Wait { op, timeout_ms: None });
            }
        }
        let averager = self.training.averager.as_ref();
        let call = averager.and_then(|a| a.call(self.model, self.optimized - 1, world_size));
        if let Some(call) = call {
            self.call(&call, 0, false);
        }
    }
}
