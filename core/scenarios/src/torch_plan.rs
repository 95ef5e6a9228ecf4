//! The plan of a call: its program carried out on every rank.

use super::torch_call::{Script, TorchCall, TorchCallOptions, on_device};
use super::torch_calls::write_of;
use lockstep_core::plan::{Plan, PlanError};
use lockstep_core::rank::GlobalRank;
use lockstep_core::words::{counted, rank_list};
use lockstep_torch::c10d::{DistError, InitProcessGroup, Job, Machine};

/// The reason that a call has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TorchCallError {
    /// torch.distributed refuses it.
    #[error("{}: {error}{}", named(.ranks), help(.error))]
    Refused {
        /// The first rank that is refused, and all that are in the same words.
        ranks: Vec<GlobalRank>,
        /// The error that refuses the call.
        error: DistError,
    },
    /// The name is not one of [`torch_calls`](crate::torch_calls()).
    #[error("there is no such call of torch.distributed here")]
    Unknown,
    /// The plan is past its limits.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// `rank 0`, or `ranks 0-3`.
fn named(ranks: &[GlobalRank]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", rank_list(ranks))
}

fn help(error: &DistError) -> String {
    error.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default()
}

impl TorchCall {
    /// The program's plan.
    ///
    /// # Errors
    /// With PyTorch's text when the backend refuses the call, the type or the reduction.
    pub fn plan(&self, options: &TorchCallOptions) -> Result<Plan, TorchCallError> {
        if options.world_size != 0 && options.world_size < self.min_world_size {
            return Err(PlanError::WorldTooSmall {
                what: self.name.to_owned(),
                needs: self.min_world_size,
                world_size: options.world_size,
            }
            .into());
        }
        let write = write_of(self.name).ok_or(TorchCallError::Unknown)?;
        let ranks = counted(options.world_size, "rank");
        let name = format!("{} on {}, {ranks}", self.name, options.backend);
        let mut job = Job::new(name, options.world_size)?;
        let cuda_devices = u32::from(on_device(&options.backend));
        job.machine(Machine { cuda_devices, mpi: true });
        job.ranks_per_node(options.ranks_per_node).timeout_ms(options.timeout_ms);
        let text = self.source(options);
        let source = job.source(format!("{}.py", self.name), text.clone());
        job.run(|dist| {
            let mut script = Script { dist, text: &text, source, options };
            script.on("init_process_group");
            let backend = options.backend.as_str();
            if self.binds_device() {
                script.dist.init_process_group(InitProcessGroup {
                    device_id: Some(0),
                    ..backend.into()
                })?;
            } else {
                script.dist.init_process_group(backend)?;
            }
            write(&mut script)
        });
        let all = || (0..options.world_size).map(GlobalRank);
        if let Some(error) = all().find_map(|rank| job.raised(rank)) {
            let ranks = all().filter(|rank| job.raised(*rank) == Some(error)).collect();
            return Err(TorchCallError::Refused { ranks, error: error.clone() });
        }
        Ok(job.finish()?)
    }
}
