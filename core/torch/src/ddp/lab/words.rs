//! Times and sizes for people.

/// Picoseconds with three digits that count: `12.5 µs`.
pub fn time(ps: u64) -> String {
    let (unit, per_unit) = match ps {
        0 => return "0".into(),
        1..1_000 => ("ps", 1),
        1_000..1_000_000 => ("ns", 1_000),
        1_000_000..1_000_000_000 => ("µs", 1_000_000),
        1_000_000_000..1_000_000_000_000 => ("ms", 1_000_000_000),
        _ => ("s", 1_000_000_000_000),
    };
    format!("{} {unit}", three_digits(ps, per_unit))
}

/// Bytes in binary units: `27.5 MiB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", three_digits(bytes, 1 << 10)),
        0x10_0000..0x4000_0000 => format!("{} MiB", three_digits(bytes, 1 << 20)),
        _ => format!("{} GiB", three_digits(bytes, 1 << 30)),
    }
}

/// With separators: `28,852,224`.
pub(super) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 bucket`, `2 buckets`.
pub(super) fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", with_commas(number), if number == 1 { "" } else { "s" })
}

/// A rounded quotient, without a fraction of nothing.
fn three_digits(value: u64, unit: u64) -> String {
    let (value, unit) = (u128::from(value), u128::from(unit));
    let parts = |per: u128| (value * per + unit / 2) / unit;
    let whole = |number: u128| with_commas(u64::try_from(number).unwrap_or(u64::MAX));
    let (hundredths, tenths) = (parts(100), parts(10));
    match () {
        () if tenths >= 1000 => whole(parts(1)),
        () if hundredths % 100 == 0 => whole(hundredths / 100),
        () if hundredths < 1000 => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        () if tenths.is_multiple_of(10) => whole(tenths / 10),
        () => format!("{}.{}", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let times = [0, 7, 12_000, 12_345_678, 123_456_789, 1_500_000_000, 61_000_000_000_000];
        let told = ["0", "7 ps", "12 ns", "12.3 µs", "123 µs", "1.50 ms", "61 s"];
        assert_eq!(times.map(time), told);
        assert_eq!(bytes(28_852_224), "27.5 MiB");
        assert_eq!(with_commas(28_852_224), "28,852,224");
        assert_eq!(
            (count(1, "bucket"), count(0, "bucket")),
            ("1 bucket".into(), "0 buckets".into())
        );
        assert!(time(u64::MAX).ends_with(" s"));
    }
}
