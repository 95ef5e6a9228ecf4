//! Ranks that disagree, and ranks that do not come.

use super::*;

pub(super) fn disagreements() -> Vec<Case> {
    vec![
        differs("all_reduce_size_mismatch", &[0, 1], MISMATCH, |dist| {
            gloo(dist)?;
            let x = match rank(dist) {
                0 => tensor(dist, "x", 4),
                _ => tensor(dist, "x", 5),
            };
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        differs("all_reduce_size_mismatch_large", &[0, 1], MISMATCH, |dist| {
            gloo(dist)?;
            let x = match rank(dist) {
                0 => tensor(dist, "x", 50_000),
                _ => tensor(dist, "x", 75_000),
            };
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        differs("all_reduce_dtype_mismatch_same_width", &[0, 1], MISMATCH, |dist| {
            gloo(dist)?;
            let dtype = if rank(dist) == 0 { Float32 } else { Int32 };
            let x = dist.tensor("x", dtype, 4, Fill::Rank);
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        differs("all_reduce_dtype_mismatch_other_width", &[0, 1], MISMATCH, |dist| {
            gloo(dist)?;
            let dtype = if rank(dist) == 0 { Float32 } else { Float64 };
            let x = dist.tensor("x", dtype, 4, Fill::Rank);
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        differs("all_reduce_op_mismatch", &[0, 1], MISMATCH, |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 4);
            let op = if rank(dist) == 0 { ReduceOp::Sum } else { ReduceOp::Max };
            dist.all_reduce(&x, op.into()).map(nothing)
        }),
        differs("broadcast_size_mismatch_receiver_smaller", &[1], MISMATCH, |dist| {
            gloo(dist)?;
            let x = match rank(dist) {
                0 => tensor(dist, "x", 8),
                _ => tensor(dist, "x", 4),
            };
            dist.broadcast(&x, FromRank::src(0)).map(nothing)
        }),
        differs("broadcast_dtype_mismatch", &[1], MISMATCH, |dist| {
            gloo(dist)?;
            let x = match rank(dist) {
                0 => tensor(dist, "x", 4),
                _ => dist.tensor("x", Float64, 2, Fill::Zeros),
            };
            dist.broadcast(&x, FromRank::src(0)).map(nothing)
        }),
        but_goes_on("broadcast_different_src", &[0, 1], |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 4);
            dist.broadcast(&x, FromRank::src(i64::from(rank(dist)))).map(nothing)
        }),
        differs("gather_size_mismatch", &[0], MISMATCH, |dist| {
            gloo(dist)?;
            let x = match rank(dist) {
                0 => tensor(dist, "x", 2),
                _ => tensor(dist, "x", 3),
            };
            let outputs = (rank(dist) == 0).then(|| lists(dist, "out", &[2, 2]).into());
            dist.gather(&x, outputs, ToRank::dst(0)).map(nothing)
        }),
        differs("scatter_size_mismatch", &[1], MISMATCH, |dist| {
            gloo(dist)?;
            let x = match rank(dist) {
                0 => tensor(dist, "x", 2),
                _ => tensor(dist, "x", 3),
            };
            let inputs = (rank(dist) == 0).then(|| lists(dist, "in", &[2, 2]).into());
            dist.scatter(&x, inputs, FromRank::src(0)).map(nothing)
        }),
        differs("recv_buffer_smaller_than_message", &[0, 1], MISMATCH, |dist| {
            gloo(dist)?;
            let (large, small) = (tensor(dist, "large", 4), tensor(dist, "small", 2));
            match rank(dist) {
                0 => dist.send(&large, SendTo::dst(1)).map(nothing),
                _ => dist.recv(&small, RecvFrom::src(0)).map(nothing),
            }
        }),
        differs("recv_dtype_mismatch_same_bytes", &[0, 1], MISMATCH, |dist| {
            gloo(dist)?;
            let floats = tensor(dist, "floats", 2);
            let ints = dist.tensor("ints", Int32, 2, Fill::Zeros);
            match rank(dist) {
                0 => dist.send(&floats, SendTo::dst(1)).map(nothing),
                _ => dist.recv(&ints, RecvFrom::src(0)).map(nothing),
            }
        }),
        case("collective_kind_mismatch", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 4);
            match rank(dist) {
                0 => dist.all_reduce(&x, Reduction::default()).map(nothing),
                _ => dist.broadcast(&x, FromRank::src(0)).map(nothing),
            }
        }),
        case("collective_order_mismatch", |dist| {
            gloo(dist)?;
            // Equal calls match in any order: gloo mixes the tensors up without a word.
            let (a, b) = (tensor(dist, "a", 4), tensor(dist, "b", 4));
            let (first, second) = if rank(dist) == 0 { (&a, &b) } else { (&b, &a) };
            dist.all_reduce(first, Reduction::default())?;
            dist.all_reduce(second, Reduction::default()).map(nothing)
        }),
    ]
}

pub(super) fn absences() -> Vec<Case> {
    vec![
        case("all_reduce_missing_rank", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 4);
            if rank(dist) != 2 {
                dist.all_reduce(&x, Reduction::default())?;
            }
            Ok(Out::Nothing)
        }),
        case("barrier_missing_rank", |dist| {
            gloo(dist)?;
            if rank(dist) != 2 {
                dist.barrier(InGroup::default())?;
            }
            Ok(Out::Nothing)
        }),
        case("monitored_barrier_missing_rank2", |dist| {
            gloo(dist)?;
            if rank(dist) != 2 {
                dist.monitored_barrier(None, Some(2000.into()), false)?;
            }
            Ok(Out::Nothing)
        }),
        case("monitored_barrier_missing_ranks_1_3_wait_all", |dist| {
            gloo(dist)?;
            if rank(dist).is_multiple_of(2) {
                dist.monitored_barrier(None, Some(2000.into()), true)?;
            }
            Ok(Out::Nothing)
        }),
        case("monitored_barrier_rank0_missing", |dist| {
            gloo(dist)?;
            if rank(dist) != 0 {
                dist.monitored_barrier(None, Some(2000.into()), false)?;
            }
            Ok(Out::Nothing)
        }),
        case("peer_exits_before_all_reduce", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 4);
            if rank(dist) != 2 {
                dist.all_reduce(&x, Reduction::default())?;
            }
            Ok(Out::Nothing)
        }),
        case("all_reduce_after_failed_collective", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 4);
            if rank(dist) != 2 {
                dist.all_reduce(&x, Reduction::default())?;
                dist.all_reduce(&x, Reduction::default())?;
            }
            Ok(Out::Nothing)
        }),
        case("work_wait_timeout", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 4);
            if rank(dist) == 0 {
                let options = Reduction { async_op: true, ..Reduction::default() };
                let work = dist.all_reduce(&x, options)?.unwrap();
                dist.wait(work, Some(1000))?;
            }
            Ok(Out::Nothing)
        }),
    ]
}
