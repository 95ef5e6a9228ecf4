//! Faults that are injected into ranks, as the command line names them.

use anyhow::Result;
use lockstep_core::plan::{Fault, Plan};

/// The faults of a run or a simulation.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FaultOptions {
    /// Do this to a rank: kill:rank=1,call=3, stop:rank=1,call=3,for_ms=200, delay:rank=1,call=3,by_ms=50,
    /// drop:rank=1,call=3, resize:rank=1,call=3,count=8; a run takes after_ms=100 in place of call for kill and
    /// stop. Can be given again
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<Fault>,
}

impl FaultOptions {
    /// The plan as the simulator shows it with these faults.
    ///
    /// # Errors
    /// When a fault names something that the plan lacks, or wall time.
    pub(crate) fn simulated(&self, plan: Plan) -> Result<Plan> {
        match self.faults.is_empty() {
            true => Ok(plan),
            false => Ok(plan.with_simulated_faults(&self.faults)?),
        }
    }
}
