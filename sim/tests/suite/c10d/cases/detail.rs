//! `TORCH_DISTRIBUTED_DEBUG=DETAIL`: ranks that disagree raise.

use super::*;

fn detail(job: &mut Job) {
    job.debug_detail();
}

fn reduced(dist: &mut Dist<'_>, tensor: &Tensor) -> Result<Out, DistError> {
    dist.all_reduce(tensor, Reduction::default())?;
    Ok(Out::Nothing)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        with("detail_size_mismatch", detail, |dist| {
            gloo(dist)?;
            let tensor = tensor(dist, "x", if dist.process().0 == 0 { 4 } else { 5 });
            reduced(dist, &tensor)
        }),
        with("detail_dtype_mismatch", detail, |dist| {
            gloo(dist)?;
            let dtype = if dist.process().0 == 0 { Float32 } else { Float64 };
            let tensor = dist.tensor("x", dtype, 4, Fill::Rank);
            reduced(dist, &tensor)
        }),
        with("detail_sequence_mismatch", detail, |dist| {
            gloo(dist)?;
            let tensor = tensor(dist, "x", 4);
            if dist.process().0 == 0 {
                return reduced(dist, &tensor);
            }
            dist.barrier(InGroup::default())?;
            Ok(Out::Nothing)
        }),
        with("detail_missing_rank", detail, |dist| {
            gloo(dist)?;
            let tensor = tensor(dist, "x", 4);
            match dist.process().0 {
                2 => Ok(Out::Nothing),
                _ => reduced(dist, &tensor),
            }
        }),
        Case {
            setup: detail,
            ..differs("detail_op_mismatch", &[0, 1], MISMATCH, |dist| {
                gloo(dist)?;
                let tensor = tensor(dist, "x", 4);
                let op = if dist.process().0 == 0 { ReduceOp::Sum } else { ReduceOp::Max };
                dist.all_reduce(&tensor, op.into())?;
                Ok(Out::Nothing)
            })
        },
    ]
}
