//! The events of a step, in plain language.

mod claims;
mod parallelism;

pub(crate) use claims::{latencies, sentence as difference, volumes};
pub(crate) use parallelism::parallelism;

use lockstep_core::collective::Collective;
use lockstep_core::schedule::{RoundPlace, Rounds, Schedule};
use lockstep_core::trace::Outcome;
use lockstep_core::words::sentence;
use lockstep_sim::View;
use lockstep_sim::view::Doing;

/// The position of a call among its steps: `step 2 of 4`. A step is a round everywhere on the page:
/// one in which messages move. What ranks and switches add and copy by themselves lies between.
pub(crate) fn place(place: RoundPlace, rounds: u32) -> String {
    match place {
        RoundPlace::In(round) => format!("step {} of {rounds}", round + 1),
        RoundPlace::After(_) if rounds == 0 => "nothing is sent".to_owned(),
        RoundPlace::After(0) => format!("before step 1 of {rounds}"),
        RoundPlace::After(round) => format!("after step {round} of {rounds}"),
        RoundPlace::Over => format!("after step {rounds} of {rounds}"),
    }
}

/// A sentence for one of the schedule's own steps, whose `rounds` are counted.
fn of_step(schedule: &Schedule, rounds: &Rounds, step: u32) -> String {
    let place = place(rounds.place(step), rounds.count());
    let place = place[..1].to_uppercase() + &place[1..];
    format!("{place}{}: {}", schedule.phase(step), schedule.step_text(step))
}

/// A sentence for a round of a collective on its own: what the messages do that leave in it.
pub(crate) fn round(schedule: &Schedule, rounds: &Rounds, round: u32) -> Option<String> {
    let step = rounds.steps().nth(round as usize)?;
    Some(of_step(schedule, rounds, step))
}

/// A sentence for what a collective on its own, whose `rounds` are counted, does at a moment.
pub(crate) fn moment(schedule: &Schedule, rounds: &Rounds, view: &View) -> String {
    let calls: Vec<_> = view.ranks.iter().filter_map(|rank| rank.calls.last()).collect();
    let (n, name) = (schedule.size(), schedule.collective().name());
    if calls.is_empty() {
        return match view.outcome {
            None if n == 1 => format!("Before the call: the only rank is about to call {name}."),
            None => format!("Before the call: {n} ranks are about to call {name}."),
            Some(_) => "There is nothing to do.".to_owned(),
        };
    }
    // Ranks that have sent to a switch already wait for its answer, steps further on.
    let on_their_way = view.messages.iter().map(|message| message.step);
    let step = calls.iter().map(|call| call.step).chain(on_their_way).min().unwrap_or(0);
    if step >= schedule.steps() {
        // On a cluster the values move when the call begins, and the call ends later, as a whole.
        if view.ranks.iter().any(|rank| matches!(rank.doing, Doing::Waiting { .. })) {
            return format!("{name} is under way, and takes its time as a whole.");
        }
        let after = time(view.time_ps);
        return format!("Done after {after}: {}", promise(schedule.collective(), n));
    }
    let mut sentence = of_step(schedule, rounds, step);
    let ahead = calls.iter().filter(|call| call.step > step).count();
    if ahead > 0 && schedule.keeps_all_ranks_busy() {
        sentence.push_str(&format!(" {ahead} of {n} ranks are further on already."));
    }
    sentence
}

fn promise(collective: Collective, n: u32) -> String {
    match collective {
        Collective::Broadcast { root } => format!("every rank holds rank {root}'s tensor."),
        Collective::AllReduce { op } => {
            format!("every rank holds the {op} of all {n} ranks' tensors.")
        }
        Collective::Reduce { op, root } => {
            format!("rank {root} holds the {op} of all {n} ranks' tensors.")
        }
        Collective::AllGather => {
            format!("every rank holds all {n} ranks' tensors, one after the other.")
        }
        Collective::Gather { root } => {
            format!("rank {root} holds all {n} ranks' tensors, one after the other.")
        }
        Collective::Scatter { root } => {
            format!("every rank holds its part of rank {root}'s tensor.")
        }
        Collective::ReduceScatter { op } => {
            format!("every rank holds its part of the {op} of all {n} ranks' tensors.")
        }
        Collective::AllToAll => "every rank holds the part meant for it from every rank.".into(),
        Collective::Barrier | Collective::MonitoredBarrier { .. } => {
            "every rank knows that every rank has come.".into()
        }
    }
}

/// The label, in a form, for a number of elements.
pub(crate) fn count_label(collective: Collective) -> &'static str {
    match collective {
        Collective::AllToAll => "Elements a pair of ranks",
        Collective::Scatter { .. } | Collective::ReduceScatter { .. } => {
            "Elements of a rank's part"
        }
        _ => "Elements a rank",
    }
}

/// A sentence for what a job of several calls does at a moment.
pub(crate) fn job(view: &View) -> String {
    let n = view.ranks.len();
    let count =
        |like: fn(&Doing) -> bool| view.ranks.iter().filter(|rank| like(&rank.doing)).count();
    let waiting = count(|doing| matches!(doing, Doing::Waiting { .. }));
    let busy = count(|doing| matches!(doing, Doing::Busy));
    let stopped = count(|doing| matches!(doing, Doing::Stopped));
    let finished = count(|doing| matches!(doing, Doing::Finished));
    let at = match view.time_ps {
        0 => "At the start".to_owned(),
        ps => time(ps),
    };
    if let Some(outcome) = &view.outcome {
        return format!("{at}: {}", ending(outcome));
    }
    if view.moment == 0 {
        return match n {
            1 => "Before the start: the only rank is about to run the program.".to_owned(),
            _ => format!("Before the start: {n} ranks are about to run the program."),
        };
    }
    let mut parts = Vec::new();
    let streams = count(|doing| matches!(doing, Doing::Synchronizing));
    let draining = count(|doing| matches!(doing, Doing::Draining));
    let running = count(|doing| matches!(doing, Doing::Running));
    for (ranks, does) in [
        (busy, "busy or idle in their own code"),
        (stopped, "stopped by a signal"),
        (running, "going on"),
        (waiting, "in a call"),
        (streams, "waiting for their streams"),
        (draining, "past their program while their streams are at work"),
        (finished, "finished"),
    ] {
        if ranks > 0 {
            parts.push(format!("{ranks} {does}"));
        }
    }
    let messages = view.messages.len();
    let moving = match messages {
        0 => "nothing is on its way".to_owned(),
        1 => "1 message is on its way".to_owned(),
        _ => format!("{messages} messages are on their way"),
    };
    let of = if n == 1 { "of 1 rank".to_owned() } else { format!("of {n} ranks") };
    format!("{at}: {of}, {}; {moving}.", parts.join(", "))
}

/// The end of a job, in words.
pub(crate) fn ending(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed => "every rank finished its program.".to_owned(),
        Outcome::TimedOut => {
            "a call did not complete within its group's timeout; the watchdog ended the job."
                .to_owned()
        }
        Outcome::RankDied { rank, how } => format!("rank {rank} died: {}", sentence(how)),
        Outcome::RankStopped { rank, how } => {
            format!("rank {rank} never goes on, and nobody waits for it: {}", sentence(how))
        }
        Outcome::Cancelled => "its user ended it before it was done.".to_owned(),
        Outcome::Failed { why } => format!("the executor failed: {}", sentence(why)),
        Outcome::Unknown => "the recording does not say how the job ended.".to_owned(),
    }
}

/// Picoseconds for people: `12.5 µs`.
pub(crate) fn time(ps: u64) -> String {
    let ps = ps as f64;
    let (value, unit) = match ps {
        _ if ps < 1e3 => (ps, "ps"),
        _ if ps < 1e6 => (ps / 1e3, "ns"),
        _ if ps < 1e9 => (ps / 1e6, "µs"),
        _ if ps < 1e12 => (ps / 1e9, "ms"),
        _ => (ps / 1e12, "s"),
    };
    match value {
        0.0 => "0".to_owned(),
        _ if value >= 100.0 || value.fract() == 0.0 => format!("{value:.0} {unit}"),
        _ if value >= 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

/// The duration of a call, for people.
pub(crate) fn took(from_ps: u64, to_ps: Option<u64>) -> String {
    to_ps.map_or_else(|| "has not ended".to_owned(), |to_ps| time(to_ps.saturating_sub(from_ps)))
}

/// A time on an axis, told apart from one `step_ps` later: `1.7702 s`.
pub(crate) fn time_on_axis(ps: f64, step_ps: f64) -> String {
    let (scale, unit) = match ps {
        _ if ps < 1e3 => (1.0, "ps"),
        _ if ps < 1e6 => (1e3, "ns"),
        _ if ps < 1e9 => (1e6, "µs"),
        _ if ps < 1e12 => (1e9, "ms"),
        _ => (1e12, "s"),
    };
    let decimals = (scale / step_ps.max(1.0)).log10().ceil().clamp(0.0, 12.0) as usize;
    match ps {
        0.0 => "0".to_owned(),
        _ => format!("{:.decimals$} {unit}", ps / scale),
    }
}

/// Bytes for people: `64 KiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0).replace(".0 ", " "),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Ranks for people: `0–3, 7`.
pub(crate) fn ranks(ranks: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let words = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
