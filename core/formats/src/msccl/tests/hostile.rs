//! Foreign texts: reading always ends in a table or in an error, and a table that is then proved carries out
//! its collective. Nothing panics, and no size is taken from a text unchecked.

use super::super::{MAX_XML_BYTES, MscclError, read, write};
use super::prove_table;
use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Schedule, prove};
use proptest::prelude::*;
use proptest::sample::Index;

/// Valid programs, small ones of different shapes.
fn corpus() -> Vec<String> {
    let (op, root) = (ReduceOp::Sum, GroupRank(1));
    let of = |collective, algorithm, size, channels| {
        let schedule = Schedule::new(collective, algorithm, size).unwrap();
        write(&schedule.with_channels(channels).unwrap()).unwrap()
    };
    vec![
        of(Collective::AllReduce { op }, Algorithm::Ring, 3, 2),
        of(Collective::AllReduce { op }, Algorithm::DoubleBinaryTree, 4, 1),
        of(Collective::AllReduce { op }, Algorithm::OneShot, 3, 1),
        of(Collective::AllGather, Algorithm::Pat, 5, 1),
        of(Collective::ReduceScatter { op }, Algorithm::RecursiveHalving, 4, 1),
        of(Collective::Broadcast { root }, Algorithm::Chain, 3, 1),
        of(Collective::Scatter { root }, Algorithm::Tree, 4, 1),
        of(Collective::AllToAll, Algorithm::Bruck, 3, 1),
    ]
}

/// Reads a text; proves the result.
fn survives(text: &str) -> Result<(), MscclError> {
    let table = read(text)?;
    assert!(u64::from(table.steps()) <= text.len() as u64);
    if let Ok(schedule) = prove_table(table) {
        assert!(prove(&schedule).is_ok());
    }
    Ok(())
}

/// A change to a valid text.
#[derive(Clone, Debug)]
enum Change {
    /// A byte becomes another.
    Byte(Index, u8),
    /// A number becomes another.
    Number(Index, i64),
    /// A line goes, comes twice, or changes places with another.
    Drop(Index),
    Twice(Index),
    Swap(Index, Index),
    /// The text ends early.
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let number = prop_oneof![-2i64..6, Just(i64::MAX), Just(1 << 32), Just(1 << 20), any::<i64>()];
    prop_oneof![
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        4 => (at(), number).prop_map(|(at, number)| Change::Number(at, number)),
        2 => at().prop_map(Change::Drop),
        1 => at().prop_map(Change::Twice),
        2 => (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        1 => at().prop_map(Change::Cut),
    ]
}

fn changed(text: &str, change: &Change) -> String {
    if text.is_empty() {
        return String::new();
    }
    let lines = || text.lines().map(str::to_owned).collect::<Vec<_>>();
    let joined = |lines: Vec<String>| lines.join("\n");
    match change {
        Change::Byte(at, byte) => {
            let mut bytes = text.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = *byte;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Change::Number(at, number) => {
            // The value of some attribute.
            let quotes: Vec<usize> = text.match_indices("=\"").map(|(at, _)| at + 2).collect();
            let Some(start) = (!quotes.is_empty()).then(|| quotes[at.index(quotes.len())]) else {
                return text.to_owned();
            };
            let end = text[start..].find('"').map_or(text.len(), |end| start + end);
            format!("{}{number}{}", &text[..start], &text[end..])
        }
        Change::Drop(at) => {
            let mut lines = lines();
            lines.remove(at.index(lines.len()));
            joined(lines)
        }
        Change::Twice(at) => {
            let mut lines = lines();
            let at = at.index(lines.len());
            lines.insert(at, lines[at].clone());
            joined(lines)
        }
        Change::Swap(a, b) => {
            let mut lines = lines();
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
            joined(lines)
        }
        Change::Cut(at) => {
            let at = at.index(text.len());
            text.chars().take(at).collect()
        }
    }
}

/// Words that a program is made of, and some that it is not.
const WORDS: [&str; 24] = [
    "<algo ",
    "</algo>",
    "<gpu ",
    "</gpu>",
    "<tb ",
    "</tb>",
    "<step ",
    "/>",
    ">",
    "name=\"x\" ",
    "ngpus=\"2\" ",
    "coll=\"allreduce\" ",
    "nchunksperloop=\"4294967295\" ",
    "inplace=\"1\" ",
    "outofplace=\"0\" ",
    "id=\"0\" ",
    "send=\"1\" ",
    "recv=\"-1\" ",
    "chan=\"0\" ",
    "<!-- ",
    "-->",
    "<![CDATA[",
    "&lt;",
    "&#x0;",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = survives(&text);
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60)
    ) {
        let _ = survives(&words.concat());
    }

    /// A valid file that somebody changed: still read, or refused with a place; if it is proved, it is right
    /// all the same.
    #[test]
    fn changed_programs_are_read_or_refused(
        which in any::<Index>(),
        changes in prop::collection::vec(change(), 1..5),
    ) {
        let corpus = corpus();
        let mut text = which.get(&corpus).clone();
        for change in &changes {
            text = changed(&text, change);
        }
        let _ = survives(&text);
    }
}

/// Every single number of a valid program, made one larger: a program that still passes either carries out
/// its collective or is refused by the proof, and no change that moves data goes unnoticed by both without
/// the result being right.
#[test]
fn every_number_matters_or_does_no_harm() {
    for text in corpus().iter().take(3) {
        let mut refused = 0;
        let starts: Vec<usize> = text.match_indices("=\"").map(|(at, _)| at + 2).collect();
        for start in starts {
            let end = start + text[start..].find('"').unwrap();
            let Ok(number) = text[start..end].parse::<i64>() else { continue };
            let one_more = format!("{}{}{}", &text[..start], number + 1, &text[end..]);
            match read(&one_more).map(prove_table) {
                Ok(Ok(schedule)) => assert!(prove(&schedule).is_ok()),
                Ok(Err(_)) | Err(_) => refused += 1,
            }
        }
        assert!(refused > 50, "{refused}");
    }
}

#[test]
fn long_texts_are_refused_unread() {
    let text = "<".repeat(MAX_XML_BYTES + 1);
    assert!(matches!(read(&text), Err(MscclError::TooLong { .. })));
}
