//! The subcommands, a file each. Each returns its exit code; an error ends the process with 2 and
//! its one sentence on standard error.

pub(crate) mod analyze;
pub(crate) mod attach;
pub(crate) mod calibrate;
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod ddp;
pub(crate) mod diagnose;
pub(crate) mod dumps;
pub(crate) mod elsewhere;
pub(crate) mod explain;
pub(crate) mod explore;
pub(crate) mod export;
mod gathered_folder;
pub(crate) mod gpu_check;
pub(crate) mod measured_cluster;
pub(crate) mod nccl;
pub(crate) mod plan;
pub(crate) mod rank;
pub(crate) mod record;
pub(crate) mod repair;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod signals;
pub(crate) mod sim;
pub(crate) mod time;
pub(crate) mod version;
pub(crate) mod watch;
pub(crate) mod whatif;

use lockstep_core::trace::{Outcome, TraceEnd};
use lockstep_gpu_exec::RankLauncher;

/// The launcher of a real run's ranks: this binary again.
pub(crate) fn rank_launcher() -> anyhow::Result<RankLauncher> {
    let program = std::env::current_exe()
        .map_err(|error| anyhow::anyhow!("cannot find the lockstep binary itself: {error}"))?;
    Ok(RankLauncher { program, args: vec!["rank".into()] })
}

/// No job takes so long: 11 days, in picoseconds. A rank that stays where its recording ends stays longer.
const FOR_EVER_PS: u64 = 1_000_000_000_000_000_000;

/// The end of the run, for people.
fn describe(outcome: Option<&Outcome>) -> String {
    ended(outcome, "")
}

/// The end of the run, and its time: `timed out after 2.00 s`.
fn describe_end(end: Option<&TraceEnd>) -> String {
    let after = end.map_or(0, |end| end.time_ps);
    if after >= FOR_EVER_PS {
        return "stands still for ever: no wait in it has a timeout".to_owned();
    }
    ended(end.map(|end| &end.outcome), &format!(" after {}", describe_ps(after)))
}

fn ended(outcome: Option<&Outcome>, after: &str) -> String {
    match outcome {
        Some(Outcome::Completed) => format!("completed{after}"),
        Some(Outcome::TimedOut) => format!("timed out{after}"),
        Some(Outcome::RankDied { rank, how }) => format!("rank {rank} died{after}: {how}"),
        Some(Outcome::RankStopped { rank, how }) => {
            format!("ended{after}; rank {rank} never goes on, and nobody waits for it: {how}")
        }
        Some(Outcome::Cancelled) => format!("cancelled{after}"),
        Some(Outcome::Failed { why }) => format!("failed{after}: {why}"),
        Some(Outcome::Unknown) | None => "its end was not recorded".into(),
    }
}

/// A time for people: `12.3 ms`.
fn describe_ps(ps: u64) -> String {
    // From where two digits behind the point round up to 1000, the next unit.
    let (unit, per_unit) = match ps {
        0..999_995 => ("ns", 1_000),
        999_995..999_995_000 => ("µs", 1_000_000),
        999_995_000..999_995_000_000 => ("ms", 1_000_000_000),
        _ => ("s", 1_000_000_000_000),
    };
    let hundredths = (u128::from(ps) * 100 + per_unit / 2) / per_unit;
    format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_rounded() {
        let times = [994, 48_379_300_880, 999_994_999_999, 999_995_000_000, 1_179_767_680];
        let told = ["0.99 ns", "48.38 ms", "999.99 ms", "1.00 s", "1.18 ms"];
        assert_eq!(times.map(super::describe_ps), told);
    }
}
