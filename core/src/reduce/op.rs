//! `torch.distributed.ReduceOp`.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The operation that combines elements of different ranks: `torch.distributed.ReduceOp`.
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

/// The factor of [`ReduceOp::PremulSum`]: a finite float64. Factors are the same when their bits are, so
/// `0.0` and `-0.0` differ.
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

    /// As [`FromStr`] reads it, with the factor: `SUM`, `PREMUL_SUM:0.5`.
    pub fn text(self) -> String {
        match self {
            ReduceOp::PremulSum(factor) => format!("{}:{}", self.name(), factor.value()),
            _ => self.name().to_owned(),
        }
    }

    /// The expression in a script that imports `torch.distributed as dist`.
    pub fn python(self) -> String {
        match self {
            ReduceOp::PremulSum(factor) => {
                format!("dist._make_nccl_premul_sum({})", factor.value())
            }
            _ => format!("dist.ReduceOp.{}", self.name()),
        }
    }

    /// True for BAND, BOR and BXOR.
    pub(crate) fn is_bitwise(self) -> bool {
        matches!(self, ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor)
    }

    /// True if elements of `dtype` can be combined by this operation at all; PyTorch's backends allow fewer
    /// ([`allowed`](fn@super::allowed)). Bitwise operations need integers, a mean of booleans means nothing,
    /// a factor that is no integer needs floats, and complex numbers can be added and scaled but have no
    /// order; PyTorch refuses their product too.
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

/// A text that names no reduction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReduceOpError {
    /// No such operation.
    #[error(
        "there is no reduction {0:?}; choose one of SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, \
         PREMUL_SUM:FACTOR"
    )]
    Unknown(String),
    /// PREMUL_SUM without a finite factor.
    #[error("PREMUL_SUM multiplies with a finite factor first; write it as PREMUL_SUM:0.5")]
    Factor,
}

impl FromStr for ReduceOp {
    type Err = ReduceOpError;

    /// A name in any case; PREMUL_SUM with its factor behind a colon: `PREMUL_SUM:0.5`.
    fn from_str(text: &str) -> Result<ReduceOp, ReduceOpError> {
        let (name, factor) = match text.split_once(':') {
            Some((name, factor)) => (name, Some(factor)),
            None => (text, None),
        };
        if name.eq_ignore_ascii_case("PREMUL_SUM") {
            let value = factor.and_then(|factor| factor.trim().parse().ok());
            let factor = value.and_then(Factor::new).ok_or(ReduceOpError::Factor)?;
            return Ok(ReduceOp::PremulSum(factor));
        }
        let named = ReduceOp::ALL.into_iter().find(|op| op.name().eq_ignore_ascii_case(name));
        named
            .filter(|_| factor.is_none())
            .ok_or_else(|| ReduceOpError::Unknown(text.chars().take(40).collect()))
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

    #[test]
    fn what_is_no_reduction_is_refused() {
        for (text, refused) in [
            ("SUN", ReduceOpError::Unknown("SUN".into())),
            ("SUM:2", ReduceOpError::Unknown("SUM:2".into())),
            ("PREMUL_SUM", ReduceOpError::Factor),
            ("PREMUL_SUM:inf", ReduceOpError::Factor),
            ("premul_sum:x", ReduceOpError::Factor),
        ] {
            assert_eq!(text.parse::<ReduceOp>(), Err(refused), "{text}");
        }
        assert_eq!("max".parse(), Ok(ReduceOp::Max));
    }

    proptest! {
        #[test]
        fn every_text_is_read_again(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            let premul = ReduceOp::PremulSum(Factor::new(value).unwrap());
            for op in ReduceOp::ALL.into_iter().chain([premul]) {
                prop_assert_eq!(op.text().parse::<ReduceOp>(), Ok(op));
            }
        }

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
