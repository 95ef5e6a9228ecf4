//! The kinds of calls that the timeline and its legend distinguish.

/// Collectives and point-to-point calls that have a colour of their own, by the beginning of
/// their name; c10d's recordings have `_allgather_base`, `ALLREDUCE` and their like.
const KINDS: [(&str, &str); 12] = [
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("broadcast", "broadcast"),
    ("alltoall", "all_to_all"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("barrier", "barrier"),
    ("send", "send"),
    ("recv", "recv"),
    ("", "other"),
];

/// The number of kinds of call that are distinguished.
pub const OP_KINDS: u8 = KINDS.len() as u8;

/// The kind of a call by its name, below [`OP_KINDS`].
pub fn op_kind(op: &str) -> u8 {
    let letters: String = op
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    let letters = letters.strip_prefix("nccl").unwrap_or(&letters);
    let letters = letters.strip_prefix("coalesced").unwrap_or(letters);
    // isend and irecv are send and recv.
    let letters = match letters {
        "isend" => "send",
        "irecv" => "recv",
        letters => letters,
    };
    let found = KINDS.iter().position(|(stem, _)| letters.starts_with(stem));
    found.unwrap_or(KINDS.len() - 1) as u8
}

/// The name of a kind.
pub fn op_kind_name(kind: u8) -> &'static str {
    KINDS.get(kind as usize).map_or("other", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_under_all_their_names() {
        for (name, kind) in [
            ("all_reduce", "all_reduce"),
            ("nccl:all_reduce", "all_reduce"),
            ("nccl:_reduce_scatter_base", "reduce_scatter"),
            ("_allgather_base", "all_gather"),
            ("reduce", "reduce"),
            ("isend", "send"),
            ("irecv", "recv"),
            ("ALLREDUCE", "all_reduce"),
        ] {
            assert_eq!(op_kind_name(op_kind(name)), kind, "{name}");
        }
    }
}
