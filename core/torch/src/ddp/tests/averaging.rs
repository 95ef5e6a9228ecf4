//! `averaging.json`: which formulas of the mean give the recorded gradients' bits.

use super::{list, recorded};
use crate::ddp::averaging::Scaling;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Fill, Tensor};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::{ReduceOp, combine};

const NUMEL: u64 = 4096;

fn gradients(world_size: u32) -> Vec<Vec<u8>> {
    let (name, dtype, fill) = ("grad".into(), Dtype::Float32, Fill::Seeded { seed: 5 });
    let tensor = Tensor { name, dtype, numel: NUMEL, fill, data: Default::default() };
    (0..world_size).map(|rank| initial_bytes(&tensor, GlobalRank(rank))).collect()
}

fn sum(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut total = parts[0].clone();
    for part in &parts[1..] {
        combine(Dtype::Float32, ReduceOp::Sum, &mut total, part);
    }
    total
}

/// A formula, element by element in plain floats.
fn formula(name: &str, world_size: u32) -> Vec<u8> {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    let bytes =
        |floats: Vec<f32>| -> Vec<u8> { floats.iter().flat_map(|f| f.to_le_bytes()).collect() };
    let world = world_size as f32;
    let scaled = |f: &dyn Fn(f32) -> f32| -> Vec<Vec<u8>> {
        let all = gradients(world_size);
        all.iter().map(|g| bytes(floats(g).into_iter().map(f).collect())).collect()
    };
    match name {
        "sum(g*float(1/w))" => sum(&scaled(&|g| g * (1.0 / f64::from(world_size)) as f32)),
        "sum(g/w)" => sum(&scaled(&|g| g / world)),
        "sum(g)/w" => {
            bytes(floats(&sum(&gradients(world_size))).into_iter().map(|g| g / world).collect())
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_mean_has_the_recorded_bits() {
    let all = ["sum(g*float(1/w))", "sum(g/w)", "sum(g)/w"];
    let file = recorded("averaging.json");
    let cases = file["cases"]["averaging_bits"]["result"]["rank0"].as_object().unwrap();
    let mut formulas = 0;
    for (name, truth) in cases {
        let field = |key: &str| {
            let (_, rest) = name.split_once(key).unwrap();
            rest.split(',').next().unwrap().to_owned()
        };
        let world_size: u32 = field("world=").parse().unwrap();
        let mut own = gradients(world_size);
        if truth == true {
            let before = own.clone();
            for gradient in &mut own {
                Scaling::of(true, true, true).apply(Dtype::Float32, world_size, gradient);
            }
            assert_eq!(own, before, "{name}");
            continue;
        }
        let flag = |key| field(key) == "True";
        let scaling = Scaling::of(flag("bucket_view="), flag("steady_state="), false);
        for gradient in &mut own {
            scaling.apply(Dtype::Float32, world_size, gradient);
        }
        let mean = sum(&own);
        let matching: Vec<_> =
            all.into_iter().filter(|name| formula(name, world_size) == mean).collect();
        let truth: Vec<_> = list(truth).iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(matching, truth, "{name}");
        formulas += 1;
    }
    assert_eq!(formulas, 20);
}
