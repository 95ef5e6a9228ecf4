//! Tests of the explanations.

mod formula;
mod rounds;

use super::*;

#[test]
fn times_and_ranks_read_well() {
    assert_eq!(time(0), "0");
    assert_eq!(time(12_500_000), "12.5 µs");
    assert_eq!(time(3_000_000_000_000), "3 s");
    assert_eq!(ranks([0, 1, 2, 3, 7, 9, 10]), "0–3, 7, 9, 10");
    assert_eq!(bytes(65536), "64 KiB");
    // Of 1.2 MiB on 6 ranks; beside MiB with one decimal.
    assert_eq!((bytes(436_908).as_str(), bytes(1536).as_str()), ("426.7 KiB", "1.5 KiB"));
    assert_eq!(time_on_axis(1.7702e12, 1e8), "1.7702 s");
    assert_eq!(time_on_axis(5e6, 5e6), "5 µs");
}
