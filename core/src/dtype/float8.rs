//! The two 8-bit floats of PyTorch and NCCL: `float8_e4m3fn` and `float8_e5m2` (Micikevicius et al., "FP8
//! Formats for Deep Learning", 2022).
//!
//! Implementations disagree about values that do not fit. PyTorch's cast (`c10/util/Float8_e4m3fn.h`,
//! `Float8_e5m2.h`) makes them NaN or infinity; NCCL reduces with CUDA's `__nv_fp8_e4m3` and `__nv_fp8_e5m2`,
//! whose constructors saturate to the largest finite value. Both are here, as [`Overflow`].

/// The conversion of a value beyond the largest finite one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// As `tensor.to(torch.float8_…)`: NaN in e4m3fn, which has no infinity; infinity in e5m2.
    Torch,
    /// As CUDA's `__NV_SATFINITE`, with which NCCL reduces: the largest finite value.
    Saturate,
}

/// One of the two formats. A code is a sign bit, then the exponent, then the mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float8 {
    mantissa_bits: u32,
    bias: i32,
    /// The code of the largest finite value.
    largest: u8,
    /// The code above it when nothing saturates: NaN or infinity.
    beyond: u8,
}

/// NaN, in both formats; CUDA and PyTorch write this one.
const NAN: u8 = 0x7f;

impl Float8 {
    /// 4 exponent bits, 3 mantissa bits, no infinities ("fn": finite), largest value 448.
    pub(crate) const E4M3FN: Float8 =
        Float8 { mantissa_bits: 3, bias: 7, largest: 0x7e, beyond: NAN };
    /// 5 exponent bits, 2 mantissa bits, IEEE's rules, largest finite value 57344.
    pub(crate) const E5M2: Float8 =
        Float8 { mantissa_bits: 2, bias: 15, largest: 0x7b, beyond: 0x7c };

    /// The values of all codes.
    pub(crate) fn values(self) -> &'static [f32; 256] {
        static E4M3FN: [f32; 256] = Float8::E4M3FN.table();
        static E5M2: [f32; 256] = Float8::E5M2.table();
        if self == Float8::E4M3FN { &E4M3FN } else { &E5M2 }
    }

    const fn table(self) -> [f32; 256] {
        let mut values = [0.0; 256];
        let mut code = 0;
        while code < values.len() {
            values[code] = self.to_f32(code as u8);
            code += 1;
        }
        values
    }

    /// The value of a code; exact.
    pub const fn to_f32(self, code: u8) -> f32 {
        let sign = ((code & 0x80) as u32) << 24;
        let magnitude = code & 0x7f;
        if magnitude > self.largest {
            let special = if magnitude == self.beyond && self.beyond != NAN {
                f32::INFINITY.to_bits()
            } else {
                f32::NAN.to_bits()
            };
            return f32::from_bits(sign | special);
        }
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let mantissa = magnitude as u32 & ((1 << self.mantissa_bits) - 1);
        if exponent == 0 {
            let unit = power_of_two(1 - self.bias - self.mantissa_bits as i32);
            let value = mantissa as f32 * unit;
            return if sign == 0 { value } else { -value };
        }
        let bits = ((exponent - self.bias + 127) as u32) << 23;
        f32::from_bits(sign | bits | mantissa << (23 - self.mantissa_bits))
    }

    /// The nearest code, ties to the even one. A NaN stays one and keeps its sign.
    pub fn from_f32(self, value: f32, overflow: Overflow) -> u8 {
        let bits = value.to_bits();
        let sign = (bits >> 24) as u8 & 0x80;
        if value.is_nan() {
            return sign | NAN;
        }
        let exponent = (bits >> 23 & 0xff) as i32 - 127;
        // A float32 subnormal lies far below half of the smallest value: it rounds to zero either
        // way.
        let significand = 0x80_0000 | (bits & 0x7f_ffff);
        let smallest_normal = 1 - self.bias;
        // The number of the 24 significant bits that are dropped; all of them past 25.
        let gone = 23 - self.mantissa_bits + (smallest_normal - exponent).clamp(0, 25) as u32;
        let gone = gone.min(25);
        let kept = significand >> gone;
        let rest = significand & ((1 << gone) - 1);
        let half = 1 << (gone - 1);
        let rounded = kept + u32::from(rest > half || (rest == half && kept & 1 == 1));
        // The leading bit of a normal significand counts as one in the exponent field, and so does
        // a carry out of the mantissa.
        let field = (exponent - smallest_normal).max(0) as u32;
        let magnitude = (field << self.mantissa_bits) + rounded;
        sign | match u8::try_from(magnitude) {
            Ok(code) if code <= self.largest => code,
            _ => match overflow {
                Overflow::Torch => self.beyond,
                Overflow::Saturate => self.largest,
            },
        }
    }
}

/// 2 to the `exponent`, by the exponent field of a normal float32.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Float8; 2] = [Float8::E4M3FN, Float8::E5M2];

    /// Values of the paper's table 1.
    #[test]
    fn the_formats_are_those_of_the_paper() {
        let values = |format: Float8, codes: [u8; 4]| codes.map(|code| format.to_f32(code));
        assert_eq!(
            values(Float8::E4M3FN, [0x7e, 0x08, 0x07, 0x01]),
            [448.0, 0.015625, 0.875 * 0.015625, 0.001953125]
        );
        assert_eq!(
            values(Float8::E5M2, [0x7b, 0x04, 0x03, 0x01]),
            [57344.0, 1.0 / 16384.0, 0.75 / 16384.0, 1.0 / 65536.0]
        );
        assert!(Float8::E4M3FN.to_f32(0xff).is_nan() && Float8::E5M2.to_f32(0x7d).is_nan());
        assert_eq!(Float8::E5M2.to_f32(0xfc), f32::NEG_INFINITY);
    }

    #[test]
    fn every_code_survives_the_way_through_f32() {
        for format in FORMATS {
            for code in 0..=255 {
                let value = format.to_f32(code);
                if value.is_nan() {
                    assert_eq!(format.from_f32(value, Overflow::Torch), code & 0x80 | NAN);
                } else {
                    assert_eq!(format.from_f32(value, Overflow::Torch), code);
                }
            }
        }
    }

    /// The definition: the nearest finite value, ties to the even code; beyond the largest by half
    /// a step or more, it overflows. (All 2^32 floats were compared with ml_dtypes 0.6 once, too.) A
    /// result depends on the upper 16 bits of a float32 and on whether any lower bit is set, so
    /// these are all cases.
    #[test]
    fn every_f32_rounds_to_the_nearest() {
        for format in FORMATS {
            let values: Vec<f64> =
                (0..=format.largest).map(|code| f64::from(format.to_f32(code))).collect();
            let last = values.len() - 1;
            let limit = values[last] + (values[last] - values[last - 1]) / 2.0;
            for upper in 0..=u16::MAX {
                for lower in [0, 1, 0x8000, 0xffff] {
                    let value = f32::from_bits(u32::from(upper) << 16 | lower);
                    if value.is_nan() {
                        continue;
                    }
                    let size = f64::from(value.abs());
                    let above = values.partition_point(|v| *v < size).min(last);
                    let below = above.saturating_sub(1);
                    let (up, down) = ((values[above] - size).abs(), (size - values[below]).abs());
                    let nearest = match up.total_cmp(&down) {
                        std::cmp::Ordering::Less => above,
                        std::cmp::Ordering::Greater => below,
                        std::cmp::Ordering::Equal => above & !1,
                    } as u8;
                    // At the very limit the tie goes to the even code, which in e5m2 is infinity.
                    let over = size > limit || (size == limit && format.largest & 1 == 1);
                    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
                    for (overflow, beyond) in
                        [(Overflow::Torch, format.beyond), (Overflow::Saturate, format.largest)]
                    {
                        let expected = sign | if over { beyond } else { nearest };
                        assert_eq!(
                            format.from_f32(value, overflow),
                            expected,
                            "{format:?} {value} {overflow:?}"
                        );
                    }
                }
            }
        }
    }
}
