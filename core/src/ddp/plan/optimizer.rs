//! The optimizer's step of a training plan, and what a sharded optimizer or an averager communicates
//! after it.

use super::Writer;
use crate::ddp::model::Cost;
use crate::ddp::{DdpCall, Purpose, zero};
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
        let group_size = averager.and_then(|a| a.group_size(self.optimized - 1, world_size));
        let Some(group_size) = group_size else { return };
        // `get_params_to_average`: those that have a gradient, as one buffer.
        let trained: Vec<_> = self.model.trained().collect();
        let ready = self.model.grad_ready_order();
        let used = trained.iter().zip(0..).filter(|(_, index)| ready.contains(index));
        let numel = used.map(|(param, _)| param.numel()).fold(0, u64::saturating_add);
        let widest = trained.iter().map(|param| param.dtype).max_by_key(|d| d.size_bytes());
        let dtype = widest.unwrap_or(Dtype::Float32);
        let subgroup = (group_size < world_size).then_some(group_size);
        let call = DdpCall { subgroup, ..DdpCall::all_reduce(dtype, numel, Purpose::Averaged) };
        self.call(&call, 0, false);
    }
}
