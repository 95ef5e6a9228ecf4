//! Collectives with arguments that PyTorch refuses.

use super::*;

pub(super) fn collectives() -> Vec<Case> {
    vec![
        case("all_reduce_not_a_tensor", |dist| {
            gloo(dist)?;
            dist.all_reduce(TensorArg::not("list", "[1, 2]"), Reduction::default()).map(nothing)
        }),
        case("all_reduce_list_of_tensors", |dist| {
            gloo(dist)?;
            let list = TensorArg::not("list", "[tensor([1.])]");
            dist.all_reduce(list, Reduction::default()).map(nothing)
        }),
        case("all_reduce_bad_op_type", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            let options = Reduction { op: Arg::not("str", "'sum'"), ..Reduction::default() };
            dist.all_reduce(&x, options).map(nothing)
        }),
        case("all_reduce_band_float", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.all_reduce(&x, ReduceOp::Band.into()).map(nothing)
        }),
        case("all_reduce_int16", |dist| {
            gloo(dist)?;
            let x = dist.tensor("x", Int16, 2, Fill::Rank);
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        case("all_reduce_complex_product", |dist| {
            gloo(dist)?;
            let x = dist.tensor("x", Complex64, 2, Fill::Rank);
            dist.all_reduce(&x, ReduceOp::Product.into()).map(nothing)
        }),
        case("all_reduce_sparse", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 3).to_sparse(1);
            dist.all_reduce(&x, Reduction::default()).map(nothing)
        }),
        case("all_reduce_sparse_max", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 3).to_sparse(1);
            dist.all_reduce(&x, ReduceOp::Max.into()).map(nothing)
        }),
        case("all_reduce_coalesced_empty_list", |dist| {
            gloo(dist)?;
            dist.all_reduce_coalesced(Vec::<Tensor>::new(), Reduction::default()).map(nothing)
        }),
        case("broadcast_src_too_large", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.broadcast(&x, FromRank::src(5)).map(nothing)
        }),
        case("broadcast_src_negative", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.broadcast(&x, FromRank::src(-1)).map(nothing)
        }),
        case("reduce_dst_too_large", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.reduce(&x, ToRank::dst(5), ReduceOp::Sum).map(nothing)
        }),
        case("reduce_scatter_tensor_not_divisible", |dist| {
            gloo(dist)?;
            let (output, input) = (tensor(dist, "output", 1), tensor(dist, "input", 3));
            dist.reduce_scatter_tensor(&output, &input, Reduction::default()).map(nothing)
        }),
        case("reduce_scatter_tensor_max_is_silently_sum", |dist| {
            gloo(dist)?;
            // The recorded sums; the maxima would be 2 and 11.
            let mine: [[f32; 2]; 2] = [[1.0, 10.0], [2.0, 11.0]];
            let input = floats(dist, "input", &mine[rank(dist) as usize]);
            let output = dist.tensor("output", Float32, 1, Fill::Zeros);
            dist.reduce_scatter_tensor(&output, &input, ReduceOp::Max.into())?;
            Ok(Out::Tensor(output))
        }),
        case("wait_twice", |dist| {
            gloo(dist)?;
            let x = floats(dist, "x", &[1.0]);
            let options = Reduction { async_op: true, ..Reduction::default() };
            let work = dist.all_reduce(&x, options)?.unwrap();
            let waited = [dist.wait(work, None)?, dist.wait(work, None)?];
            let waited = waited.map(|waited| Out::Json(waited.into()));
            Ok(Out::List(waited.into_iter().chain([Out::Tensor(x)]).collect()))
        }),
    ]
}

pub(super) fn lists_and_splits() -> Vec<Case> {
    vec![
        case("all_gather_wrong_list_length", |dist| {
            gloo(dist)?;
            let (outputs, x) = (lists(dist, "outputs", &[3]), tensor(dist, "x", 3));
            dist.all_gather(&outputs, &x, InGroup::default()).map(nothing)
        }),
        case("all_gather_output_shape_mismatch", |dist| {
            gloo(dist)?;
            let (outputs, x) = (lists(dist, "outputs", &[4, 3]), tensor(dist, "x", 4));
            dist.all_gather(&outputs, &x, InGroup::default()).map(nothing)
        }),
        case("all_gather_not_list", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            let list = Arg::not("torch.Tensor", "tensor([0., 0.])");
            dist.all_gather(list, &x, InGroup::default()).map(nothing)
        }),
        case("all_gather_into_tensor_wrong_size", |dist| {
            gloo(dist)?;
            let (output, x) = (tensor(dist, "output", 7), tensor(dist, "x", 4));
            dist.all_gather_into_tensor(&output, &x, InGroup::default()).map(nothing)
        }),
        case("all_gather_into_tensor_wrong_dtype", |dist| {
            gloo(dist)?;
            let output = dist.tensor("output", Float64, 8, Fill::Zeros);
            let x = tensor(dist, "x", 4);
            dist.all_gather_into_tensor(&output, &x, InGroup::default()).map(nothing)
        }),
        case("gather_list_given_on_non_dst", |dist| {
            gloo(dist)?;
            let (outputs, x) = (lists(dist, "outputs", &[2, 2]), tensor(dist, "x", 2));
            dist.gather(&x, Some(outputs.into()), ToRank::dst(0)).map(nothing)
        }),
        but_goes_on("gather_wrong_list_length", &[1], |dist| {
            gloo(dist)?;
            let (outputs, x) = (lists(dist, "outputs", &[2]), tensor(dist, "x", 2));
            let outputs = (rank(dist) == 0).then(|| outputs.into());
            dist.gather(&x, outputs, ToRank::dst(0)).map(nothing)
        }),
        case("gather_dst_too_large", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.gather(&x, None, ToRank::dst(9)).map(nothing)
        }),
        case("scatter_list_missing_on_src", |dist| {
            gloo(dist)?;
            let x = tensor(dist, "x", 2);
            dist.scatter(&x, None, FromRank::src(0)).map(nothing)
        }),
        but_goes_on("scatter_list_given_on_non_src", &[0], |dist| {
            gloo(dist)?;
            let (inputs, x) = (lists(dist, "inputs", &[2, 2]), tensor(dist, "x", 2));
            dist.scatter(&x, Some(inputs.into()), FromRank::src(0)).map(nothing)
        }),
        case("scatter_wrong_list_length", |dist| {
            gloo(dist)?;
            let (inputs, x) = (lists(dist, "inputs", &[2]), tensor(dist, "x", 2));
            let inputs = (rank(dist) == 0).then(|| inputs.into());
            dist.scatter(&x, inputs, FromRank::src(0)).map(nothing)
        }),
        case("reduce_scatter_list", |dist| {
            gloo(dist)?;
            let (inputs, x) = (lists(dist, "inputs", &[2, 2]), tensor(dist, "x", 2));
            dist.reduce_scatter(&x, &inputs, Reduction::default()).map(nothing)
        }),
        case("reduce_scatter_wrong_list_length", |dist| {
            gloo(dist)?;
            let (inputs, x) = (lists(dist, "inputs", &[2]), tensor(dist, "x", 2));
            dist.reduce_scatter(&x, &inputs, Reduction::default()).map(nothing)
        }),
        case("all_to_all_list", |dist| {
            gloo(dist)?;
            let (inputs, outputs) = (lists(dist, "in", &[2, 2]), lists(dist, "out", &[2, 2]));
            dist.all_to_all(&outputs, &inputs, InGroup::default()).map(nothing)
        }),
        case("all_to_all_single_not_divisible", |dist| {
            gloo(dist)?;
            let (output, input) = (tensor(dist, "output", 3), tensor(dist, "input", 3));
            dist.all_to_all_single(&output, &input, None, None, InGroup::default()).map(nothing)
        }),
        case("all_to_all_single_bad_split_sum", |dist| {
            gloo(dist)?;
            let (output, input) = (tensor(dist, "output", 4), tensor(dist, "input", 4));
            let splits = Some(&[1, 1][..]);
            dist.all_to_all_single(&output, &input, splits, splits, InGroup::default()).map(nothing)
        }),
        case("all_to_all_single_wrong_number_of_splits", |dist| {
            gloo(dist)?;
            let (output, input) = (tensor(dist, "output", 4), tensor(dist, "input", 4));
            let splits = Some(&[4][..]);
            dist.all_to_all_single(&output, &input, splits, splits, InGroup::default()).map(nothing)
        }),
        case("all_to_all_single_dtype_mismatch", |dist| {
            gloo(dist)?;
            let output = dist.tensor("output", Float64, 4, Fill::Zeros);
            let input = tensor(dist, "input", 4);
            dist.all_to_all_single(&output, &input, None, None, InGroup::default()).map(nothing)
        }),
        case("all_to_all_single_split_disagree", |dist| {
            gloo(dist)?;
            // Rank 0 sends itself one element and expects two.
            let splits: [&[u64]; 2] = match rank(dist) {
                0 => [&[2, 2], &[1, 3]],
                _ => [&[3, 1], &[3, 1]],
            };
            let (output, input) = (tensor(dist, "output", 4), tensor(dist, "input", 4));
            let (to, from) = (Some(splits[0]), Some(splits[1]));
            dist.all_to_all_single(&output, &input, to, from, InGroup::default()).map(nothing)
        }),
    ]
}
