//! The waits of ranks through a store, as messages: the rank that sets a key sends one to each rank that
//! waits for it. The store itself is no part of a plan.

use super::clock::Clock;
use super::dist::Dist;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::remark::STORE_GROUP;
use lockstep_core::plan::{Action, Call, Fill};
use lockstep_core::rank::{GlobalRank, GroupRank};

/// The name of the tensors that represent a store's answers.
pub const STORE_TENSOR: &str = "value in a store";

impl Dist<'_> {
    /// The number of barriers of all ranks that this one has passed.
    pub fn barriers(&self) -> u32 {
        self.state.barriers
    }

    /// The rank's time since all ranks met.
    pub fn clock(&self) -> Clock {
        self.state.clock
    }

    /// The number of ranks of the job.
    pub fn world_size_of_job(&self) -> u32 {
        self.shared.world_size
    }

    /// The timeout of the default group, in milliseconds.
    pub fn default_timeout_ms(&self) -> Option<u64> {
        let handle = self.default_group().ok()?;
        let (_, group) = self.pg(handle).plan.first()?;
        self.shared.timeout_of(*group)
    }

    /// The rank has set the value that `reader` waits for, and goes on.
    pub fn store_signal(&mut self, reader: GlobalRank, tag: u32, bytes: usize, via: &str) {
        let group = self.store_group();
        let tensor = self.store_value(bytes);
        let call = Call::Send { group, peer: GroupRank(reader.0), tensor, tag };
        let clock = self.state.clock;
        self.record(Action::call(call, true), Some(via));
        self.state.clock = clock;
    }

    /// The rank waits until `writer` has come so far; PyTorch raises after `timeout_ms`.
    pub fn store_wait(
        &mut self,
        writer: GlobalRank,
        tag: u32,
        bytes: usize,
        timeout_ms: Option<u64>,
        via: &str,
    ) {
        let group = self.store_group();
        let tensor = self.store_value(bytes);
        let call = Call::Recv { group, peer: Some(GroupRank(writer.0)), tensor, tag };
        // The length of the wait follows from the time at which the writer comes.
        let clock = self.state.clock;
        let op = self.record(Action::call(call, true), Some(via));
        self.record(Action::Wait { op, timeout_ms }, Some(via));
        self.state.clock = clock;
    }

    /// The group of all ranks, on their processors; no part of it is the user's.
    fn store_group(&mut self) -> GroupId {
        let (world, backend) = (self.shared.world(), BackendName::Host);
        let timeout_ms = backend.default_timeout_ms();
        self.shared.groups.make("store", 0, backend, &world, STORE_GROUP, timeout_ms)
    }

    fn store_value(&mut self, bytes: usize) -> lockstep_core::plan::TensorId {
        let own = &mut self.state.tensors;
        let numel = super::tensors::Numel::Known(bytes as u64);
        self.shared.tensors.make(own, STORE_TENSOR, Dtype::Uint8, numel, Fill::Zeros, &[]).id
    }
}
