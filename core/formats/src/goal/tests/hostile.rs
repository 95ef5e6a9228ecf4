//! GOAL texts of strangers: whatever they hold, reading ends in a plan that passes its check, or in
//! an error.

use super::super::{read, write};
use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use proptest::prelude::*;
use proptest::sample::Index;

fn survives(text: &str) {
    if let Ok(goal) = read("stranger.goal", text) {
        goal.plan.check().unwrap();
    }
}

/// Valid files, small ones of different shapes.
fn corpus() -> Vec<String> {
    let (op, root) = (ReduceOp::Sum, GroupRank(0));
    let of = |collective, algorithm, size| {
        let lab = CollectiveLab { algorithm, ..CollectiveLab::new(collective, size, 7) };
        write(&lab.plan().unwrap()).unwrap()
    };
    vec![
        of(Collective::AllReduce { op }, Algorithm::Ring, 3),
        of(Collective::AllReduce { op }, Algorithm::RecursiveDoubling, 5),
        of(Collective::Broadcast { root }, Algorithm::Tree, 6),
        of(Collective::AllToAll, Algorithm::Direct, 3),
        "num_ranks 2\nrank 0 {\na: calc 5 cpu 1\nb: send 3b to 1 tag 7 nic 0\nb irequires a\n}\n\
         rank 1 {\na: recv 3b from 0 tag 7\n}\n"
            .to_owned(),
    ]
}

/// A word of a text, a number of it, or a line of it, changed.
#[derive(Clone, Debug)]
enum Change {
    Byte(Index, u8),
    Word(Index, &'static str),
    Number(Index, u64),
    Drop(Index),
    Twice(Index),
    Swap(Index, Index),
    Cut(Index),
}

const WORDS: [&str; 16] = [
    "num_ranks",
    "rank",
    "{",
    "}",
    "send",
    "recv",
    "calc",
    "requires",
    "irequires",
    "to",
    "from",
    "tag",
    "8b",
    "l1:",
    "/*",
    "4294967296",
];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let number = prop_oneof![0u64..4, Just(u64::MAX), Just(1 << 32), Just(1 << 14), any::<u64>()];
    prop_oneof![
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        1 => (at(), prop::sample::select(&WORDS[..])).prop_map(|(at, word)| Change::Word(at, word)),
        4 => (at(), number).prop_map(|(at, number)| Change::Number(at, number)),
        2 => at().prop_map(Change::Drop),
        1 => at().prop_map(Change::Twice),
        2 => (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        1 => at().prop_map(Change::Cut),
    ]
}

/// The text with the `at`-th run of letters that `like` replaced.
fn replaced(text: &str, at: &Index, like: fn(char) -> bool, by: &str) -> String {
    let starts: Vec<usize> = text
        .char_indices()
        .filter(|(start, letter)| like(*letter) && !text[..*start].ends_with(like))
        .map(|(start, _)| start)
        .collect();
    if starts.is_empty() {
        return text.to_owned();
    }
    let start = starts[at.index(starts.len())];
    let end = text[start..].find(|letter| !like(letter)).map_or(text.len(), |end| start + end);
    format!("{}{by}{}", &text[..start], &text[end..])
}

fn changed(text: &str, change: &Change) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    if text.is_empty() || lines.is_empty() {
        return text.to_owned();
    }
    match change {
        Change::Byte(at, byte) => {
            let mut bytes = text.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = *byte;
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        Change::Word(at, word) => return replaced(text, at, |c| !c.is_whitespace(), word),
        Change::Number(at, number) => {
            return replaced(text, at, |c| c.is_ascii_digit(), &number.to_string());
        }
        Change::Drop(at) => _ = lines.remove(at.index(lines.len())),
        Change::Twice(at) => {
            let at = at.index(lines.len());
            lines.insert(at, lines[at]);
        }
        Change::Swap(a, b) => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
        }
        Change::Cut(at) => return text.chars().take(at.index(text.len())).collect(),
    }
    lines.join("\n")
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        survives(&text);
    }

    #[test]
    fn any_words_are_read_or_refused(
        lines in prop::collection::vec(
            prop::collection::vec(prop::sample::select(&WORDS[..]), 0..7), 0..20)
    ) {
        let lines: Vec<String> = lines.iter().map(|words| words.join(" ")).collect();
        survives(&lines.join("\n"));
        survives(&format!("num_ranks 2\nrank 0 {{\n{}\n}}\n", lines.join("\n")));
    }

    #[test]
    fn changed_files_are_read_or_refused(
        which in any::<Index>(),
        changes in prop::collection::vec(change(), 1..5),
    ) {
        let corpus = corpus();
        let mut text = which.get(&corpus).clone();
        for change in &changes {
            text = changed(&text, change);
        }
        survives(&text);
    }
}

/// A file can claim impossible sizes: it is refused, or planned, without allocating them.
#[test]
fn claims_of_size_are_not_believed() {
    survives("num_ranks 18446744073709551615\n");
    survives("num_ranks 16384\nrank 0 {\n}\n");
    survives(
        "num_ranks 2\nrank 0 {\na: send 18446744073709551615b to 1\n}\nrank 1 {\na: recv 18446744073709551615b from 0\n}\n",
    );
}
