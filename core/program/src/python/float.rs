//! `float` as Python writes and reads it. Starlark's own texts have six digits.

use starlark::values::float::StarlarkFloat;
use starlark::values::{Value, ValueLike};

/// The float of a value.
pub(crate) fn float_of(value: Value<'_>) -> Option<f64> {
    value.downcast_ref::<StarlarkFloat>().map(|float| float.0)
}

/// `repr(float)`: the shortest text that reads as the same number.
pub(crate) fn repr(number: f64) -> String {
    if !number.is_finite() {
        return not_finite(number).to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let text = format!("{number}");
        return if text.contains('.') { text } else { text + ".0" };
    }
    format!("{digits}{}", power(exponent))
}

/// The text of a NaN or an infinity.
pub(super) fn not_finite(number: f64) -> &'static str {
    match number {
        _ if number.is_nan() => "nan",
        _ if number < 0.0 => "-inf",
        _ => "inf",
    }
}

/// `e+07`.
pub(super) fn power(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("e{sign}{:02}", exponent.abs())
}

/// `float(text)`.
pub(super) fn read(text: &str) -> Option<f64> {
    let plain = text.trim().replace('_', "");
    let digits = plain.trim_start_matches(['+', '-']).to_ascii_lowercase();
    match digits.as_str() {
        "inf" | "infinity" | "nan" => plain.to_ascii_lowercase().parse().ok(),
        _ if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') => plain.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `repr(…)` of CPython 3.11.
    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (number, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (123_456_789.123, "123456789.123"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (1e-4, "0.0001"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(repr(number), text);
        }
        assert_eq!((read(" 1_0.5 "), read("-inf"), read("x"), read("+.5")), {
            (Some(10.5), Some(f64::NEG_INFINITY), None, Some(0.5))
        });
    }
}
