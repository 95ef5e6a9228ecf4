//! Sizes and times as people type them: `64K`, `1.5G`, `76us`, `1.1ms`.

/// A size or time that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} is no {what}: say for example {example}")]
pub struct QuantityError {
    /// As it was typed.
    pub text: String,
    /// `size` or `time`.
    pub what: &'static str,
    /// One that is understood.
    pub example: &'static str,
}

/// The largest size of a call, bytes.
const MOST_BYTES: f64 = 1e15;
/// The longest time of a call, microseconds.
const MOST_US: f64 = 1e12;

/// Bytes of `text`: a number with `K`, `M`, `G`, `T` (powers of 1024, as in nccl-tests) or none; `1.5e6` too.
///
/// # Errors
/// If it is not such a number, or not between 1 byte and 1 PB.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let wrong = || QuantityError { text: text.to_owned(), what: "size", example: "64K or 1G" };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = match unit.to_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1_048_576.0,
        "g" | "gb" | "gib" => 1_073_741_824.0,
        "t" | "tb" | "tib" => 1_099_511_627_776.0,
        _ => return Err(wrong()),
    };
    let bytes = number * factor;
    if (1.0..=MOST_BYTES).contains(&bytes) { Ok(rounded(bytes)) } else { Err(wrong()) }
}

/// Microseconds of `text`: a number with `ns`, `us`, `µs`, `ms` or `s`.
///
/// # Errors
/// If it is not such a number, or not above 0.
pub fn parse_us(text: &str) -> Result<f64, QuantityError> {
    let wrong = || QuantityError { text: text.to_owned(), what: "time", example: "76us or 1.1ms" };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let us = number
        * match unit {
            "ns" => 1e-3,
            "us" | "µs" | "μs" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            _ => return Err(wrong()),
        };
    if us > 0.0 && us <= MOST_US { Ok(us) } else { Err(wrong()) }
}

/// A measured point, `SIZE=TIME`: bytes and microseconds.
///
/// # Errors
/// If either half is not understood.
pub fn parse_point(text: &str) -> Result<(u64, f64), QuantityError> {
    let (size, time) = text.split_once('=').ok_or_else(|| QuantityError {
        text: text.to_owned(),
        what: "measured point",
        example: "1M=76us",
    })?;
    Ok((parse_bytes(size)?, parse_us(time)?))
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let is_number = |it: char| it.is_ascii_digit() || it == '.';
    let digits = |text: &str| text.find(|it: char| !is_number(it)).unwrap_or(text.len());
    let mut end = digits(text);
    // An exponent: `1.5e6`.
    if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.starts_with(|it: char| it.is_ascii_digit()) {
            end = text.len() - unsigned.len() + digits(unsigned);
        }
    }
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within MOST_BYTES")]
fn rounded(bytes: f64) -> u64 {
    libm::round(bytes) as u64
}

/// A size as people read it: `64K`, `1G`, `1000`.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes >> shift > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A time as people read it: `12.3 µs`, `4.56 ms`.
#[must_use]
pub fn us_text(us: f64) -> String {
    match us {
        _ if us < 999.95 => format!("{us:.1} µs"),
        _ if us < 999_995.0 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}
