//! `barrier` and `monitored_barrier`.

use super::args::InGroup;
use super::backend::Device;
use super::dist::{Called, Dist};
use super::error::value_error;
use super::issue::{Issue, collective_call};
use super::new_group::timeout;
use super::process_group::Group;
use lockstep_core::collective::Collective;
use lockstep_core::plan::Action;

impl Dist<'_> {
    /// `dist.barrier()`: no rank leaves before every rank has come. On NCCL it makes the process
    /// wait for its device.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn barrier(&mut self, options: InGroup) -> Called {
        let InGroup { group, async_op } = options;
        let Some(pg) = self.member(group, "barrier")? else { return Ok(None) };
        let config = &self.pg(pg).config;
        let cuda = self.shared.machine.cuda_devices > 0;
        let device = match self.pg(pg).device_id {
            Some(_) => Device::Cuda,
            None if !cuda || config.object_device() == Device::Cpu => Device::Cpu,
            None => {
                self.warn(
                    "No device id is provided via `init_process_group` or `barrier `. Using the \
                     current device set by the user. ",
                );
                Device::Cuda
            }
        };
        let (_, id) = self.ask(pg, device, "barrier")?;
        let mut issue = Issue::new("barrier", id);
        issue.collective(id, Collective::Barrier, 0, None, None);
        self.issue(issue, async_op)
    }

    /// `dist.monitored_barrier(timeout, wait_all_ranks)`: a barrier that names missing ranks; only for gloo
    /// (and Lockstep's own `host`). The timeout is in milliseconds; left out, it is the backend's default,
    /// not the group's.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn monitored_barrier(
        &mut self,
        group: Option<Group>,
        timeout_ms: Option<super::args::Arg<u64>>,
        wait_all_ranks: bool,
    ) -> Called {
        let Some(pg) = self.member(group, "monitored_barrier")? else { return Ok(None) };
        let backend = self.pg(pg).backend.clone();
        if !matches!(backend.as_str(), "gloo" | "host") {
            return Err(value_error("monitored_barrier is only implemented for GLOO backend."));
        }
        // The shortest that a plan knows: gloo gives up at once on whoever is not there yet.
        let timeout_ms = timeout(timeout_ms.as_ref(), &backend)?.max(1);
        let (_, id) = self.ask(pg, Device::Cpu, "monitored_barrier")?;
        let collective = Collective::MonitoredBarrier { wait_all_ranks };
        let call = collective_call(id, collective, 0, None, None, None);
        // The call's own timeout is a wait's in a plan.
        let op = self.record(Action::call(call, true), None);
        let timeout_ms = Some(timeout_ms);
        self.record(Action::Wait { op, timeout_ms }, Some("monitored_barrier"));
        if self.shared.is_of_all(id) {
            self.state.barriers += 1;
            self.state.clock.all_meet();
        }
        Ok(None)
    }
}
