//! The number of a job's ranks, from its log: in torchrun's, Lightning's and Accelerate's words, and in
//! common prints of scripts.

use super::line_words::{after, number};
use lockstep_core::rank::MAX_WORLD_SIZE;

/// Whatever their letters, a number comes behind these.
const SAID: [&str; 4] = ["global_world_sizes", "world_size", "world size", "Num processes"];

/// The number of ranks that a line names.
pub(super) fn size(line: &str) -> Option<u32> {
    let is_size = |size: u64| u32::try_from(size).ok().filter(|it| *it <= MAX_WORLD_SIZE);
    // Most lines are none of these.
    if !["orld", "ORLD", "rocesses", "MEMBER: "].iter().any(|part| line.contains(part)) {
        return None;
    }
    if let Some(rest) = after(line, "GLOBAL_RANK: ") {
        // `Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4`
        return after(rest, "MEMBER: ")?.split_once('/').and_then(|(_, all)| is_size(number(all)?));
    }
    if let Some(rest) = after(line, "All distributed processes registered. Starting with ") {
        return is_size(number(rest)?);
    }
    let at = SAID.iter().find_map(|said| end_of(line, said))?;
    let rest = line.get(at..)?;
    // `world_size=4`, `"world_size": 4`, `WORLD_SIZE 4`, `global_world_sizes=[4, 4]`.
    let value = rest.trim_start_matches(['"', '\'', ' ', '=', ':', '[', '(']);
    is_size(number(value)?).filter(|_| (1..6).contains(&(rest.len() - value.len())))
}

/// The end of a word in a line; `dp_world_size` and `local_world_size` are others.
fn end_of(line: &str, said: &str) -> Option<usize> {
    let (bytes, what) = (line.as_bytes(), said.as_bytes());
    let alone = |at: &usize| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        before.is_none_or(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-'))
    };
    let same = |window: &[u8]| window.eq_ignore_ascii_case(what);
    let mut found =
        bytes.windows(what.len()).enumerate().filter(|(_, window)| same(window)).map(|(at, _)| at);
    found.find(alone).map(|at| at + what.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_and_people_say_how_many_ranks_there_are() {
        for (line, ranks) in [
            ("  global_world_sizes=[4, 4, 4, 4]", Some(4)),
            ("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8", Some(8)),
            ("All distributed processes registered. Starting with 4 processes", Some(4)),
            ("Num processes: 2", Some(2)),
            ("world size: 16, rank: 3", Some(16)),
            ("{'WORLD_SIZE': '8'}", Some(8)),
            ("export WORLD_SIZE=8", Some(8)),
            ("dp_world_size=2", None),
            ("  group_world_size=1", None),
            ("local_world_size: 4", None),
            ("world_size 99999999999", None),
            ("a brave new world size", None),
        ] {
            assert_eq!(size(line), ranks, "{line}");
        }
    }
}
