//! How DDP forms the mean of the gradients, to the bit.
//!
//! The reducer scales every gradient before the `all_reduce` sums them. Where the gradient has to
//! be copied into its bucket it is multiplied with 1/W on the way (`mul_out` with a scalar, so the
//! factor is a float64 rounded to the type that the product is computed in); where it is a view of
//! the bucket already it is divided by W in place (`div_`). 1/3 is no float: the two differ
//! (`averaging.json`). Communication hooks get gradients unscaled.

use crate::dtype::Dtype;
use crate::reduce::premultiply;
use half::{bf16, f16};

/// How a gradient is scaled.
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
    /// How DDP scales: `steady_state` is when the gradients of the iteration before were kept
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
        let factor = 1.0 / f64::from(world_size.max(1));
        match (self, dtype) {
            (Scaling::None, _) => {}
            // Products of half-precision floats are computed in float32, the factor too.
            (Scaling::Multiply, Dtype::Float16) => halves(gradient, |g| g * factor as f32),
            (Scaling::Multiply, Dtype::Bfloat16) => bfloats(gradient, |g| g * factor as f32),
            (Scaling::Multiply, _) => premultiply(dtype, factor, gradient),
            (Scaling::Divide, Dtype::Float16) => halves(gradient, |g| g / world_size as f32),
            (Scaling::Divide, Dtype::Bfloat16) => bfloats(gradient, |g| g / world_size as f32),
            (Scaling::Divide, _) => match dtype.as_real() {
                Dtype::Float32 => {
                    for element in gradient.as_chunks_mut().0 {
                        let quotient = f32::from_le_bytes(*element) / world_size as f32;
                        *element = quotient.to_le_bytes();
                    }
                }
                Dtype::Float64 => {
                    for element in gradient.as_chunks_mut().0 {
                        let quotient = f64::from_le_bytes(*element) / f64::from(world_size);
                        *element = quotient.to_le_bytes();
                    }
                }
                _ => {}
            },
        }
    }
}

fn halves(gradient: &mut [u8], scale: impl Fn(f32) -> f32) {
    for element in gradient.as_chunks_mut().0 {
        let scaled = scale(f16::from_le_bytes(*element).to_f32());
        *element = f16::from_f32(scaled).to_le_bytes();
    }
}

fn bfloats(gradient: &mut [u8], scale: impl Fn(f32) -> f32) {
    for element in gradient.as_chunks_mut().0 {
        let scaled = scale(bf16::from_le_bytes(*element).to_f32());
        *element = bf16::from_f32(scaled).to_le_bytes();
    }
}
