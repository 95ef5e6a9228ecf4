//! The reasons that one of two algorithms is faster: the parts of the chains of messages that end
//! last, and the saving or cost of each. Every word is about a counted number, and the parts add up
//! to the difference.

use super::{bytes, time};
use crate::sets::sort_few;
use lockstep_sim::{Cost, Leg, Path};

/// A part of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Latencies, inside the nodes or between them.
    Latency { across: bool },
    /// Bytes on their way, inside the nodes or between them.
    Bytes { across: bool },
    /// Waiting for ports that carry other messages.
    Waiting,
}

impl Part {
    const ALL: [Part; 5] = [
        Part::Latency { across: false },
        Part::Latency { across: true },
        Part::Bytes { across: false },
        Part::Bytes { across: true },
        Part::Waiting,
    ];

    /// The time of the part, in picoseconds.
    pub(crate) fn of(self, path: &Path) -> u64 {
        match self {
            Part::Latency { across } => leg(path, across).latency_ps,
            Part::Bytes { across } => leg(path, across).transmit_ps,
            Part::Waiting => path.waiting_ps,
        }
    }

    /// The count behind the part's time: half messages, bytes, or picoseconds.
    fn counted(self, path: &Path) -> u64 {
        match self {
            Part::Latency { across } => {
                let Leg { messages, switch_hops, .. } = *leg(path, across);
                2 * messages + switch_hops
            }
            Part::Bytes { across } => leg(path, across).bytes,
            Part::Waiting => path.waiting_ps,
        }
    }
}

fn leg(path: &Path, across: bool) -> &Leg {
    if across { &path.across } else { &path.inside }
}

/// The effect of one part on the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) part: Part,
    /// Picoseconds that the faster one saves by it; below 0 for what it costs.
    pub(crate) saves_ps: i128,
    pub(crate) words: String,
}

/// The parts that make `fast` faster than `slow`, the largest first; parts below a hundredth are
/// left out.
pub(crate) fn claims(fast: &Path, slow: &Path, nodes: bool) -> Vec<Claim> {
    let saves = |part: Part| i128::from(part.of(slow)) - i128::from(part.of(fast));
    let all: i128 = Part::ALL.iter().map(|part| saves(*part).abs()).sum();
    let told = Part::ALL.into_iter().filter(|part| {
        // Picoseconds of rounding are no reason.
        let counted = i128::from(part.counted(slow)) - i128::from(part.counted(fast));
        counted.signum() == saves(*part).signum() && saves(*part).abs() * 100 > all
    });
    let mut told: Vec<Claim> = told
        .map(|part| Claim { part, saves_ps: saves(part), words: words(part, fast, slow, nodes) })
        .collect();
    sort_few(&mut told, |claim| std::cmp::Reverse(claim.saves_ps.abs()));
    told
}

fn words(part: Part, fast: &Path, slow: &Path, nodes: bool) -> String {
    let place = |across: bool| match (nodes, across) {
        (false, _) => "",
        (true, false) => " inside nodes",
        (true, true) => " between nodes",
    };
    match part {
        Part::Latency { across } => {
            let (few, many) = (leg(fast, across), leg(slow, across));
            let (one, other) = (messages(few), messages(many));
            match (is_empty(few), is_empty(many)) {
                (true, _) => {
                    format!("its longest chain has no message{} instead of {other}", place(across))
                }
                (_, true) => {
                    format!("its longest chain has {one}{}, the other's none", place(across))
                }
                // One alone follows nothing.
                _ if few.messages + few.switch_hops == 1 => {
                    format!("its longest chain has {one}{} instead of {other}", place(across))
                }
                _ => format!("{one} follow one another{} instead of {other}", place(across)),
            }
        }
        Part::Bytes { across } => {
            let (few, many) = (leg(fast, across).bytes, leg(slow, across).bytes);
            let (mut one, mut other) = (bytes(few), bytes(many));
            if one == other {
                (one, other) = (format!("{few} B"), format!("{many} B"));
            }
            match (few, many) {
                (0, _) => {
                    format!("none of that chain's bytes pass{} instead of {other}", place(across))
                }
                (_, 0) => format!("{one} of that chain pass{}, the other's none", place(across)),
                _ => format!("{one} pass one after the other{} instead of {other}", place(across)),
            }
        }
        Part::Waiting => match (fast.waiting_ps, slow.waiting_ps) {
            (0, waits) => format!("no message waits for a busy port, instead of {}", time(waits)),
            (waits, 0) => {
                format!("messages wait {} for busy ports instead of not at all", time(waits))
            }
            (few, many) => {
                format!("messages wait {} for busy ports instead of {}", time(few), time(many))
            }
        },
    }
}

fn is_empty(leg: &Leg) -> bool {
    leg.messages == 0 && leg.switch_hops == 0
}

/// `6 messages`, `2 hops by a switch`.
fn messages(leg: &Leg) -> String {
    let Leg { messages, switch_hops, .. } = *leg;
    let count = |of: u64, one: &str, many: &str| match of {
        1 => format!("1 {one}"),
        _ => format!("{of} {many}"),
    };
    let hops = count(switch_hops, "hop by a switch", "hops by a switch");
    match (messages, switch_hops) {
        (0, 0) => "no message".to_owned(),
        (_, 0) => count(messages, "message", "messages"),
        (0, _) => hops,
        _ => format!("{} and {hops}", count(messages, "message", "messages")),
    }
}

/// Says in a sentence which of two is faster, and why; `None` if both take as long.
pub(crate) fn sentence(
    names: [&str; 2],
    costs: [&Cost; 2],
    nodes: bool,
) -> (String, Option<usize>) {
    let fast = match costs[0].time_ps.cmp(&costs[1].time_ps) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Greater => 1,
        std::cmp::Ordering::Equal => {
            let words = match names[0] == names[1] {
                true => format!("Both sides are {}: choose another one.", names[0]),
                false => {
                    let time = time(costs[0].time_ps);
                    format!("{} and {} take the same time here, {time}.", names[0], names[1])
                }
            };
            return (words, None);
        }
    };
    let (quick, late) = (costs[fast], costs[1 - fast]);
    let ratio = late.time_ps as f64 / quick.time_ps.max(1) as f64;
    let mut words = match ratio {
        _ if quick.time_ps == 0 => format!("{} wins", names[fast]),
        _ if ratio < 1.1 => format!("{} wins by {:.1}%", names[fast], (ratio - 1.0) * 100.0),
        _ => format!("{} is {ratio:.1} times as fast", names[fast]),
    };
    let claims = claims(&quick.path, &late.path, nodes);
    let told = |claim: &Claim| {
        let ps = time(u64::try_from(claim.saves_ps.unsigned_abs()).unwrap_or(u64::MAX));
        let does = if claim.saves_ps > 0 { "saves" } else { "costs" };
        format!("{}, which {does} {ps}", claim.words)
    };
    let (saves, costs): (Vec<_>, Vec<_>) = claims.iter().partition(|claim| claim.saves_ps > 0);
    let list = |claims: Vec<&Claim>| claims.into_iter().map(told).collect::<Vec<_>>().join("; ");
    match (saves.is_empty(), costs.is_empty()) {
        (false, true) => words += &format!(": {}.", list(saves)),
        (false, false) => words += &format!(": {}. But {}.", list(saves), list(costs)),
        (true, _) => words.push('.'),
    }
    (words, Some(fast))
}

/// `14 × 5 µs`: the latencies of a path.
pub(crate) fn latencies(path: &Path, nodes: bool) -> String {
    let mut parts = Vec::new();
    for (across, place) in [(false, " inside"), (true, " across")] {
        let Leg { messages, switch_hops, latency_ps, .. } = *leg(path, across);
        let place = if nodes { place } else { "" };
        // A hop by a switch has half of a message's latency.
        let half = latency_ps / (2 * messages + switch_hops).max(1);
        if messages > 0 {
            parts.push(format!("{messages} × {}{place}", time(2 * half)));
        }
        if switch_hops > 0 {
            parts.push(format!("{switch_hops} × {} by a switch{place}", time(half)));
        }
    }
    parts.join(" + ")
}

/// `112 KiB`: the bytes of a path.
pub(crate) fn volumes(path: &Path, nodes: bool) -> String {
    let legs = [(path.inside.bytes, " inside"), (path.across.bytes, " across")];
    let parts = legs.into_iter().filter(|(count, _)| *count > 0);
    let words =
        parts.map(|(count, place)| format!("{}{}", bytes(count), if nodes { place } else { "" }));
    words.collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests;
