//! Operations on two elements, as PyTorch computes them on a CPU; `None` where its last bit hangs
//! on code that is not followed.

use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::{number, number_bytes};

/// An operator, or its like with the operands swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Sub,
    Mul,
    Div,
    /// `right - left`.
    FromRight,
    /// `right / left`.
    RightBy,
    Pow,
    /// `right ** left`.
    RightPow,
    FloorDiv,
    Mod,
}

/// A number as a type holds it.
pub(crate) fn rounded(dtype: Dtype, value: f64) -> Option<f64> {
    number(dtype, &number_bytes(dtype, value))
}

/// Whole numbers up to here are exact in a float64.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Operation {
    /// The one that Python writes like this.
    pub(crate) fn named(operator: &str) -> Option<Operation> {
        Some(match operator {
            "+" => Operation::Add,
            "-" => Operation::Sub,
            "*" => Operation::Mul,
            "/" => Operation::Div,
            "**" => Operation::Pow,
            _ => return None,
        })
    }

    /// True if the operation makes floats of whole numbers.
    pub(crate) fn divides(self) -> bool {
        matches!(self, Operation::Div | Operation::RightBy)
    }

    /// The element of a result of that type. `right` may be a number of Python's, which halves are not
    /// rounded to.
    pub(crate) fn of(self, dtype: Dtype, left: f64, right: f64, of_python: bool) -> Option<f64> {
        let wide = if dtype.is_float() && dtype != Dtype::Float64 { Dtype::Float32 } else { dtype };
        let (a, b) = (rounded(dtype, left)?, rounded(if of_python { wide } else { dtype }, right)?);
        let value = match self {
            Operation::Add => a + b,
            Operation::Sub => a - b,
            Operation::Mul => a * b,
            Operation::Div => a / b,
            Operation::FromRight => b - a,
            Operation::RightBy => b / a,
            Operation::Pow => power(dtype, a, right)?,
            Operation::RightPow if dtype.is_float() => return None,
            Operation::RightPow => power(dtype, b, a)?,
            Operation::FloorDiv => floor_division(dtype, a, b)?,
            Operation::Mod => remainder(dtype, a, b)?,
        };
        (dtype.is_float() || value.abs() < EXACT).then_some(value)
    }
}

/// `a ** b`: of floats, the exponents that PyTorch has a formula of its own for.
fn power(dtype: Dtype, a: f64, b: f64) -> Option<f64> {
    if !dtype.is_float() {
        let exponent = (0.0..=64.0).contains(&b).then_some(b as u32)?;
        let mut power = 1.0;
        for _ in 0..exponent {
            power *= a;
            (power.abs() < EXACT).then_some(())?;
        }
        return Some(power);
    }
    let whole = matches!(dtype, Dtype::Float32 | Dtype::Float64);
    let square = || rounded(dtype, a * a);
    Some(match b {
        _ if b == 0.0 => 1.0,
        _ if b == 1.0 => a,
        _ if b == 2.0 => a * a,
        _ if !whole => return None,
        _ if b == 3.0 => square()? * a,
        _ if b == 0.5 => libm::sqrt(a),
        _ if b == -1.0 => 1.0 / a,
        _ if b == -2.0 => 1.0 / square()?,
        _ => return None,
    })
}

/// `c10::div_floor_floating` and `div_floor_integer`.
fn floor_division(dtype: Dtype, a: f64, b: f64) -> Option<f64> {
    if !dtype.is_float() {
        return (b != 0.0).then(|| libm::floor(a / b));
    }
    if !matches!(dtype, Dtype::Float32 | Dtype::Float64) {
        return None;
    }
    if b == 0.0 {
        return Some(a / b);
    }
    let rest = libm::fmod(a, b);
    let mut quotient = rounded(dtype, rounded(dtype, a - rest)? / b)?;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return Some(0.0_f64.copysign(a / b));
    }
    let floor = libm::floor(quotient);
    Some(if quotient - floor > 0.5 { floor + 1.0 } else { floor })
}

/// The remainder, with the sign of the divisor.
fn remainder(dtype: Dtype, a: f64, b: f64) -> Option<f64> {
    let known = matches!(dtype, Dtype::Float32 | Dtype::Float64) || !dtype.is_float();
    if !known || (b == 0.0 && !dtype.is_float()) {
        return None;
    }
    let rest = libm::fmod(a, b);
    Some(if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest })
}

/// The sum, if it is the same in every order: all partial sums are exact.
pub(crate) fn exact_sum(dtype: Dtype, values: &[f64]) -> Option<f64> {
    let bits = match dtype {
        Dtype::Float64 => 53,
        Dtype::Float32 => 24,
        Dtype::Float16 => 11,
        Dtype::Bfloat16 => 8,
        dtype if dtype.is_float() => return None,
        _ => 53,
    };
    let most = values.iter().fold(0.0_f64, |sum, value| sum + value.abs());
    if values.iter().any(|value| !value.is_finite()) || most > 1e30 {
        return None;
    }
    // The largest power of two that all of them are multiples of, as far as that matters.
    let mut unit = 1.0;
    while values.iter().any(|value| libm::fmod(*value, unit) != 0.0) {
        unit /= 2.0;
        (unit > 1e-30).then_some(())?;
    }
    while most / unit >= f64::from(bits).exp2() {
        if values.iter().any(|value| libm::fmod(*value, unit * 2.0) != 0.0) {
            return None;
        }
        unit *= 2.0;
    }
    // Not `sum()`, of which nothing is -0.
    Some(values.iter().fold(0.0, |sum, value| sum + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of PyTorch 2.7.1 on a CPU.
    #[test]
    fn elements_are_pytorchs() {
        let of = |operation: Operation, dtype, a, b| operation.of(dtype, a, b, true);
        use Operation::{FloorDiv, FromRight, Mod, Mul, Pow, RightBy, RightPow};
        for (operation, dtype, a, b, expected) in [
            (Pow, Dtype::Float32, 1.1, 2.0, Some(1.21)),
            (Pow, Dtype::Float32, 1.1, 2.5, None),
            (Pow, Dtype::Int64, 3.0, 4.0, Some(81.0)),
            (RightPow, Dtype::Int64, 3.0, 2.0, Some(8.0)),
            (FloorDiv, Dtype::Float32, -7.0, 2.0, Some(-4.0)),
            (FloorDiv, Dtype::Int64, -7.0, 2.0, Some(-4.0)),
            (FloorDiv, Dtype::Int64, 1.0, 0.0, None),
            (Mod, Dtype::Float32, -7.0, 3.0, Some(2.0)),
            (Mod, Dtype::Int64, 7.0, -3.0, Some(-2.0)),
            (FromRight, Dtype::Float32, 0.5, 2.0, Some(1.5)),
            (RightBy, Dtype::Float32, 4.0, 1.0, Some(0.25)),
            (Mul, Dtype::Float32, 3.0, 0.1, Some(0.3)),
        ] {
            let found = of(operation, dtype, a, b).and_then(|value| rounded(dtype, value));
            let expected = expected.and_then(|value| rounded(dtype, value));
            assert_eq!(found, expected, "{operation:?} {a} {b}");
        }
    }

    #[test]
    fn sums_are_known_where_their_order_does_not_matter() {
        assert_eq!(exact_sum(Dtype::Float32, &[1.0, 2.0, 0.5]), Some(3.5));
        assert_eq!(exact_sum(Dtype::Float32, &[16_777_216.0, 1.0]), None);
        assert_eq!(exact_sum(Dtype::Float32, &[f64::from(0.1_f32), 1.0]), None);
        assert_eq!(exact_sum(Dtype::Float64, &[16_777_216.0, 1.0]), Some(16_777_217.0));
        assert_eq!(exact_sum(Dtype::Bfloat16, &[255.0, 2.0]), None);
        assert_eq!(exact_sum(Dtype::Float32, &[f64::NAN]), None);
        assert_eq!(exact_sum(Dtype::Float32, &[33_554_432.0, 33_554_432.0]), Some(67_108_864.0));
        assert_eq!(exact_sum(Dtype::Int64, &[]), Some(0.0));
    }
}
