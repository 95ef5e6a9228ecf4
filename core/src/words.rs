//! Numbers with their nouns.

use std::fmt::Display;

/// `1 rank`, `4 ranks`; `noun` forms its plural with an s.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(0u32, "message"), "0 messages");
        assert_eq!(counted(1u64, "rank"), "1 rank");
        assert_eq!(counted(2usize, "step"), "2 steps");
    }
}
