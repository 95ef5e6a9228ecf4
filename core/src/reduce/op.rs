//! `torch.distributed.ReduceOp`.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How elements of different ranks combine: `torch.distributed.ReduceOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the variants are PyTorch's names")]
pub enum ReduceOp {
    Sum,
    /// The mean, as NCCL forms it: floats are multiplied with 1/n before the sum, integers divided
    /// after it ([`premultiplier`](super::premultiplier), [`divisor`](super::divisor)).
    Avg,
    Product,
    Min,
    Max,
    Band,
    Bor,
    Bxor,
    /// The sum of the elements, each multiplied with the factor first
    /// (`torch.distributed._make_nccl_premul_sum`).
    #[serde(rename = "PREMUL_SUM")]
    PremulSum(Factor),
}

/// The factor of [`ReduceOp::PremulSum`]: a finite float64. Factors are the same when their bits
/// are, so that ranks which pass `0.0` and `-0.0` are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u64);

impl Factor {
    /// The factor of that value, or `None` when it is infinite or no number.
    pub fn new(value: f64) -> Option<Factor> {
        value.is_finite().then(|| Factor(value.to_bits()))
    }

    /// Its value.
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl Serialize for Factor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value())
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Factor, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Factor::new(value).ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "the factor of PREMUL_SUM is {value}, not finite"
            ))
        })
    }
}

impl ReduceOp {
    /// Every operation without a factor, in PyTorch's order.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
    ];

    /// PyTorch's name: `SUM`, `AVG`, …
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "SUM",
            ReduceOp::Avg => "AVG",
            ReduceOp::Product => "PRODUCT",
            ReduceOp::Min => "MIN",
            ReduceOp::Max => "MAX",
            ReduceOp::Band => "BAND",
            ReduceOp::Bor => "BOR",
            ReduceOp::Bxor => "BXOR",
            ReduceOp::PremulSum(_) => "PREMUL_SUM",
        }
    }

    /// True for BAND, BOR and BXOR.
    pub fn is_bitwise(self) -> bool {
        matches!(self, ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor)
    }

    /// Whether elements of `dtype` can be combined so at all; what a backend of PyTorch allows is
    /// less ([`allowed`](fn@super::allowed)). Bitwise operations need integers, a mean of booleans
    /// means nothing, a factor that is no integer needs floats, and complex numbers can be added
    /// and scaled but have no order; PyTorch refuses their product too.
    pub fn supports(self, dtype: Dtype) -> bool {
        if !Dtype::COMPUTABLE.contains(&dtype) {
            return false;
        }
        match self {
            ReduceOp::Sum => true,
            ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
                !dtype.is_float() && !dtype.is_complex()
            }
            ReduceOp::Avg => dtype != Dtype::Bool,
            ReduceOp::PremulSum(_) => dtype.is_float() || dtype.is_complex(),
            ReduceOp::Product | ReduceOp::Min | ReduceOp::Max => !dtype.is_complex(),
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn serde_and_torch_names_agree() {
        for op in ReduceOp::ALL {
            assert_eq!(serde_json::to_string(&op).unwrap(), format!("{:?}", op.name()));
        }
        let half = ReduceOp::PremulSum(Factor::new(0.5).unwrap());
        assert_eq!(serde_json::to_string(&half).unwrap(), r#"{"PREMUL_SUM":0.5}"#);
        assert!(Factor::new(f64::NAN).is_none() && Factor::new(f64::INFINITY).is_none());
        let infinite = [&postcard::to_stdvec(&half).unwrap()[..1], &[0, 0, 0, 0, 0, 0, 0xf0, 0x7f]];
        let refusal = postcard::from_bytes::<ReduceOp>(&infinite.concat());
        assert!(refusal.is_err(), "{refusal:?}");
    }

    proptest! {
        #[test]
        fn every_factor_is_the_same_bits_in_both_forms(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            let op = ReduceOp::PremulSum(Factor::new(value).unwrap());
            let json = serde_json::to_string(&op).unwrap();
            prop_assert_eq!(serde_json::from_str::<ReduceOp>(&json).unwrap(), op);
            let bytes = postcard::to_stdvec(&op).unwrap();
            prop_assert_eq!(postcard::from_bytes::<ReduceOp>(&bytes).unwrap(), op);
        }
    }
}
