//! The mean of the gradients as DDP forms it, to the bit.
//!
//! The reducer scales every gradient before the `all_reduce` sums them. Where the gradient has to
//! be copied into its bucket it is multiplied with 1/W on the way (`mul_out` with a scalar, so the
//! factor is a float64 rounded to the type that the product is computed in); where it is a view of
//! the bucket already it is divided by W in place (`div_`). 1/3 is no float: the two differ
//! (`averaging.json`). Communication hooks get gradients unscaled.

use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::{multiply, quotient};

/// The scaling of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// `g * (1/W)`, on the way into the bucket.
    Multiply,
    /// `g / W`, in the bucket.
    Divide,
    /// Not at all: a communication hook is registered.
    None,
}

impl Scaling {
    /// DDP's scaling: `steady_state` is when the gradients of the iteration before were kept
    /// (`zero_grad(set_to_none=False)`, or accumulation), so that with `gradient_as_bucket_view`
    /// they are views of the buckets.
    pub fn of(gradient_as_bucket_view: bool, steady_state: bool, hook: bool) -> Scaling {
        match (hook, gradient_as_bucket_view && steady_state) {
            (true, _) => Scaling::None,
            (false, true) => Scaling::Divide,
            (false, false) => Scaling::Multiply,
        }
    }

    /// Scales a gradient, given as little-endian elements, for that many ranks.
    pub fn apply(self, dtype: Dtype, world_size: u32, gradient: &mut [u8]) {
        let world_size = world_size.max(1);
        match self {
            Scaling::None => {}
            // Products of half-precision floats are computed in float32, the factor too.
            Scaling::Multiply => multiply(dtype, 1.0 / f64::from(world_size), gradient),
            Scaling::Divide => quotient(dtype, world_size, gradient),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// A NaN keeps its bits but for the one that says it is quiet, as on x86, on every processor
    /// and in a browser: a trace must not differ.
    #[test]
    fn the_bits_of_no_number_are_settled() {
        for scaling in [Scaling::Multiply, Scaling::Divide] {
            let mut single = 0xffa0_1234_u32.to_le_bytes();
            scaling.apply(Dtype::Float32, 3, &mut single);
            assert_eq!(u32::from_le_bytes(single), 0xffe0_1234);
            let mut double = 0x7ff0_0000_0000_0001_u64.to_le_bytes();
            scaling.apply(Dtype::Float64, 3, &mut double);
            assert_eq!(u64::from_le_bytes(double), 0x7ff8_0000_0000_0001);
            let mut half = 0xfd01_u16.to_le_bytes();
            scaling.apply(Dtype::Float16, 3, &mut half);
            assert_eq!(u16::from_le_bytes(half), 0xff01);
            let mut brain = 0xff81_u16.to_le_bytes();
            scaling.apply(Dtype::Bfloat16, 3, &mut brain);
            assert_eq!(u16::from_le_bytes(brain), 0xffc1);
        }
    }

    /// Half precision: computed in float32, rounded once.
    #[test]
    fn halves_are_computed_in_float32() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits).to_f32();
            if !value.is_nan() {
                let mut half = bits.to_le_bytes();
                Scaling::Multiply.apply(Dtype::Float16, 3, &mut half);
                let expected = f16::from_f32(value * (1.0_f64 / 3.0) as f32);
                assert_eq!(u16::from_le_bytes(half), expected.to_bits());
            }
            let value = bf16::from_bits(bits).to_f32();
            if !value.is_nan() {
                let mut half = bits.to_le_bytes();
                Scaling::Divide.apply(Dtype::Bfloat16, 3, &mut half);
                assert_eq!(u16::from_le_bytes(half), bf16::from_f32(value / 3.0).to_bits());
            }
        }
    }
}
