//! GOAL: the text in which LogGOPSim and its kin take what every rank does.
//!
//! A GOAL file gives each rank operations (`send`, `recv`, `calc`) and what they wait for
//! (`requires`: it has ended; `irequires`: it has begun); whatever is not ordered may go at once
//! (Hoefler, Siebert, Lumsdaine 2009, "Group Operation Assembly Language"; the grammar is
//! `txt2bin.re` of LogGOPSim). [`write`](fn@write) expands a plan's collectives into their messages, so that
//! another simulator can be asked about the same schedule; [`read`] makes a plan of a file.

mod error;
mod graph;
mod plan;
mod text;
mod write;

pub use error::{GoalError, GoalWriteError, LineError};
pub use plan::{Goal, read};
pub use write::{GoalWriter, write};

/// Longer files are refused.
pub(crate) const MAX_GOAL_BYTES: usize = 256 << 20;

/// True for bytes that begin like a GOAL text: `num_ranks` or `rank 0 {`, after comments. Logs begin with
/// `rank 0:` as well.
pub fn looks_like_goal(bytes: &[u8]) -> bool {
    let mut rest = &bytes[..bytes.len().min(1 << 16)];
    loop {
        rest = rest.trim_ascii_start();
        let end: &[u8] = match rest {
            [b'/', b'/', ..] => b"\n",
            [b'/', b'*', ..] => b"*/",
            _ => break,
        };
        let Some(at) = rest.windows(end.len()).position(|text| text == end) else { return false };
        rest = &rest[at + end.len()..];
    }
    rest.starts_with(b"num_ranks") || rest.strip_prefix(b"rank ").is_some_and(opens_a_rank)
}

fn opens_a_rank(rest: &[u8]) -> bool {
    let rest = rest.trim_ascii_start();
    let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    let (_, behind) = rest.split_at(digits);
    digits > 0 && behind.trim_ascii_start().starts_with(b"{")
}

#[cfg(test)]
mod tests;
