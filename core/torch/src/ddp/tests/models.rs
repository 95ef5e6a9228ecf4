//! The small models of the recorded cases. The recording names their parameters' numbers only;
//! these shapes have them all.

use crate::ddp::model::{Buffer, Model};
use lockstep_core::dtype::Dtype;

fn model(name: &str, params: &[(&str, &[u64])]) -> Model {
    let row = |(name, shape): &(&str, &[u64])| {
        let shape: Vec<_> = shape.iter().map(u64::to_string).collect();
        format!("{name},{}\n", shape.join("x"))
    };
    let rows: String = params.iter().map(row).collect();
    Model::read(name, &rows).unwrap()
}

/// 26,122 parameters.
pub(super) fn mlp_small() -> Model {
    crate::ddp::model::mlp("mlp-small", &[64, 128, 128, 10], Dtype::Float32)
}

/// A trunk, branches a and b, and a head.
pub(super) fn branches() -> Model {
    model(
        "branches",
        &[
            ("trunk.weight", &[16, 16]),
            ("trunk.bias", &[16]),
            ("a.weight", &[16, 16]),
            ("a.bias", &[16]),
            ("b.weight", &[16, 16]),
            ("b.bias", &[16]),
            ("head.weight", &[4, 16]),
            ("head.bias", &[4]),
        ],
    )
}

/// Two convolutions with BatchNorm, and a head.
pub(super) fn batch_norm() -> Model {
    let mut model = model(
        "batchnorm",
        &[
            ("conv1.weight", &[8, 3, 3, 3]),
            ("bn1.weight", &[8]),
            ("bn1.bias", &[8]),
            ("conv2.weight", &[8, 8, 3, 3]),
            ("bn2.weight", &[8]),
            ("bn2.bias", &[8]),
            ("head.weight", &[4, 8]),
            ("head.bias", &[4]),
        ],
    );
    for norm in ["bn1", "bn2"] {
        for (name, shape, dtype) in [
            ("running_mean", vec![8], Dtype::Float32),
            ("running_var", vec![8], Dtype::Float32),
            ("num_batches_tracked", vec![], Dtype::Int64),
        ] {
            model.buffers.push(Buffer { name: format!("{norm}.{name}"), shape, dtype });
        }
    }
    model
}

/// Six layers of 512 x 512.
pub(super) fn six_layers() -> Model {
    crate::ddp::model::mlp("six", &[512; 7], Dtype::Float32)
}

/// One weight.
pub(super) fn scalar() -> Model {
    model("scalar", &[("weight", &[1, 1])])
}

/// Two layers, for delayed reductions.
pub(super) fn two_layers() -> Model {
    model(
        "two",
        &[("t1.weight", &[16, 16]), ("t1.bias", &[16]), ("t2.weight", &[8, 16]), ("t2.bias", &[8])],
    )
}

/// One layer of 4 x 4 with a bias: 80 bytes.
pub(super) fn one_layer() -> Model {
    model("one", &[("weight", &[4, 4]), ("bias", &[4])])
}
