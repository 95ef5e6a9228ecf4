//! The optimizer's step of a training plan, and the communication of a sharded optimizer or an averager after
//! it.

use super::writer::Writer;
use crate::ddp::model::Cost;
use crate::ddp::zero;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Action;

impl Writer<'_> {
    /// Bytes of the largest share of a sharded optimizer. Every rank is given its time: the others
    /// wait for its broadcasts in any case.
    fn largest_share(&self, world_size: u32) -> u64 {
        let params = &self.model.params;
        let numels: Vec<u64> = params.iter().map(|param| param.numel()).collect();
        let shares = zero::partition(&numels, world_size).into_iter().map(|own| {
            let own = own.iter().filter_map(|index| params.get(*index as usize));
            own.map(|param| param.bytes()).fold(0, u64::saturating_add)
        });
        shares.max().unwrap_or(0)
    }

    /// SGD reads parameters and gradients and writes parameters. With ZeRO's overlap that happens
    /// in the hook, behind the reductions.
    pub(super) fn optimizer(&mut self) {
        let world_size = self.training.world_size.max(1);
        self.optimized += 1;
        if self.training.options.zero_overlap.is_none() {
            let bytes = match self.training.zero {
                Some(_) => self.largest_share(world_size),
                None => self.model.param_bytes(),
            };
            let bytes = bytes.saturating_mul(3);
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
