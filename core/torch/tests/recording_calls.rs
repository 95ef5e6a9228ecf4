//! The example of the documentation of `c10d`.
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, PlanError};
use lockstep_torch::c10d::{Job, Reduction};

#[test]
fn four_ranks_make_the_same_calls() -> Result<(), PlanError> {
    let mut job = Job::new("a step", 4)?;
    job.run(|dist| {
        dist.init_process_group("gloo")?;
        let grad = dist.tensor("grad", Dtype::Float32, 8, Fill::Rank);
        dist.all_reduce(&grad, Reduction::default())?;
        dist.destroy_process_group(None)
    });
    let plan = job.finish()?;
    assert_eq!((plan.world_size, plan.programs.len()), (4, 1));
    Ok(())
}
