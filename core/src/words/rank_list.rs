//! Lists of ranks as people write them.

use crate::rank::GlobalRank;
use std::fmt::Write;

/// `0-1, 3` for ascending ranks; beyond eight runs the rest is counted.
pub fn rank_list(ranks: &[GlobalRank]) -> String {
    const MAX_RUNS: usize = 8;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank.0) => *last = rank.0,
            _ => runs.push((rank.0, rank.0)),
        }
    }
    let mut text = String::new();
    let mut named = 0;
    for (first, last) in runs.iter().take(MAX_RUNS) {
        let separator = if text.is_empty() { "" } else { ", " };
        named += (last - first + 1) as usize;
        let _ = match last - first {
            0 => write!(text, "{separator}{first}"),
            _ => write!(text, "{separator}{first}-{last}"),
        };
    }
    if named < ranks.len() {
        let _ = write!(text, " and {} more", ranks.len() - named);
    }
    text
}
