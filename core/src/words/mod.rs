//! Words that every room writes alike: numbers with their nouns, lists of ranks, and the name that
//! was meant by one that does not exist.

mod nearest;
mod rank_list;

pub use nearest::nearest;
pub use rank_list::rank_list;

use std::fmt::Display;

/// `1 rank`, `4 ranks`, `2 processes`; `noun` forms its plural with an s.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = match number == N::from(1) {
        true => "",
        false if noun.ends_with('s') => "es",
        false => "s",
    };
    format!("{number} {noun}{plural}")
}

/// Somebody's words as a sentence, which some end themselves.
pub fn sentence(words: &str) -> String {
    let words = words.trim_end_matches('.').trim_end();
    let end = if words.ends_with(['!', '?']) { "" } else { "." };
    format!("{words}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(0u32, "message"), "0 messages");
        assert_eq!(counted(1u64, "rank"), "1 rank");
        assert_eq!(counted(2usize, "step"), "2 steps");
        assert_eq!(counted(2u32, "process"), "2 processes");
        assert_eq!(counted(1u32, "process"), "1 process");
    }

    #[test]
    fn who_ends_a_sentence_has_ended_it() {
        for (words, expected) in [
            ("no data", "no data."),
            ("no data.", "no data."),
            ("found 12 ranks!", "found 12 ranks!"),
            ("why?", "why?"),
        ] {
            assert_eq!(sentence(words), expected);
        }
    }
}
