//! The cost of a layer, and the time that a device takes for it.
//!
//! An estimate from shapes: multiplications and additions of the matrix products, and the bytes
//! that have to pass through memory once. Elementwise work that frameworks fuse is left out. The
//! time is the larger of the two on a device, at a stated share of its peak (a roofline: Williams,
//! Waterman, Patterson 2009). A backward pass makes two products for every product of the forward
//! pass, so it costs twice as much.

use lockstep_core::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// The cost of a layer's forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations a sample; a multiplication with its addition counts as 2.
    pub flops: u64,
    /// Bytes of activations a sample, read and written.
    pub activation_bytes: u64,
    /// Bytes of weights, read once whatever the batch.
    pub weight_bytes: u64,
}

/// A device, as the estimate knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The name for people: `A100`.
    pub name: String,
    /// Peak of dense float32, without TF32, in operations a second.
    pub float32_flops: u64,
    /// Peak of dense 16-bit floats, in operations a second.
    pub half_flops: u64,
    /// Peak of its memory, in bytes a second.
    pub bytes_per_second: u64,
    /// The share of both peaks that is reached, in percent.
    pub efficiency_percent: u32,
}

const TERA: u64 = 1_000_000_000_000;
const GIGA: u64 = 1_000_000_000;

impl Device {
    /// The devices that ship, with the peaks of NVIDIA's data sheets and 40% of them reached.
    pub fn known() -> Vec<Device> {
        let device = |name: &str, float32_flops, half_flops, bytes_per_second| Device {
            name: name.into(),
            float32_flops,
            half_flops,
            bytes_per_second,
            efficiency_percent: 40,
        };
        vec![
            device("V100", 15_700 * GIGA, 125 * TERA, 900 * GIGA),
            device("A100", 19_500 * GIGA, 312 * TERA, 2_039 * GIGA),
            device("H100", 67 * TERA, 989 * TERA, 3_350 * GIGA),
            device("H200", 67 * TERA, 989 * TERA, 4_800 * GIGA),
        ]
    }

    /// The device of that name, in any case.
    pub fn named(name: &str) -> Option<Device> {
        Device::known().into_iter().find(|device| device.name.eq_ignore_ascii_case(name))
    }

    /// Nanoseconds of a layer's forward pass for `batch` samples of weights of `dtype`, at least 1.
    pub fn forward_ns(&self, cost: &Cost, dtype: Dtype, batch: u64) -> u64 {
        let peak = match dtype {
            Dtype::Float16 | Dtype::Bfloat16 => self.half_flops,
            // Tensor cores have none of it: half the rate of float32, as on data-centre devices.
            Dtype::Float64 => self.float32_flops / 2,
            _ => self.float32_flops,
        };
        let flops = u128::from(cost.flops) * u128::from(batch);
        let bytes =
            u128::from(cost.activation_bytes) * u128::from(batch) + u128::from(cost.weight_bytes);
        let share = u128::from(self.efficiency_percent.clamp(1, 100));
        let ns = |work: u128, per_second: u64| {
            let reached = u128::from(per_second.max(1)) * share;
            work.saturating_mul(u128::from(GIGA) * 100) / reached
        };
        let ns = ns(flops, peak).max(ns(bytes, self.bytes_per_second));
        u64::try_from(ns).unwrap_or(u64::MAX).max(1)
    }

    /// Nanoseconds of a layer's backward pass: twice the forward pass.
    pub fn backward_ns(&self, cost: &Cost, dtype: Dtype, batch: u64) -> u64 {
        self.forward_ns(cost, dtype, batch).saturating_mul(2)
    }
}
