//! The example of `PlanBuilder`'s documentation.
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, PlanBuilder, PlanError};
use lockstep_core::reduce::ReduceOp;

#[test]
fn four_ranks_share_one_program() -> Result<(), PlanError> {
    let mut plan = PlanBuilder::new("one all_reduce", 4, BackendName::Host)?;
    let grad = plan.tensor("grad", Dtype::Float32, 8, Fill::Iota);
    let all_reduce = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, all_reduce, 8, None, Some(grad));
    })?;
    assert_eq!((plan.world_size, plan.programs.len()), (4, 1));
    Ok(())
}
