//! An analysis as text for a terminal.

use crate::analysis::{Analysis, RankTime, Share};
use crate::critical_path::{Cause, PathKind};
use lockstep_core::rank::GlobalRank;
use lockstep_core::words::counted;
use std::fmt::Write;

/// The most rows of a table that are shown.
const SHOWN: usize = 12;

/// The most ranks that are shown one by one; of more, those that differ most are shown.
const RANKS_SHOWN: usize = 16;

impl Analysis {
    /// The analysis as text: shares of time, kinds of calls, late ranks and the critical path.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        write!(out, "{} in {}", counted(self.world_size, "rank"), duration(self.time_ps))?;
        match (self.step_ps, self.steps.len()) {
            (Some(step_ps), steps) => {
                writeln!(out, ", {} of {}", counted(steps, "step"), duration(step_ps))?;
            }
            (None, _) => writeln!(
                out,
                "; no steps are seen: the calls do not repeat, or nothing shows where a step begins"
            )?,
        }
        if self.unfinished > 0 {
            writeln!(
                out,
                "\nThe job did not complete: {} never ended. `lockstep diagnose` says why; the times are of the calls \
                 that did.",
                counted(self.unfinished, "call")
            )?;
        }
        let missing = u64::from(self.world_size).saturating_sub(self.ranks.len() as u64);
        if missing > 0 {
            writeln!(
                out,
                "\n{} left no recording: the time in which others waited for them counts as communication.",
                counted(missing, "rank")
            )?;
        }
        if !self.knows_ends {
            writeln!(
                out,
                "\nThe recorder tells when calls were issued and not when they ended, as gloo's does: nothing is known of \
                 communication. Profile the job with torch.profiler instead."
            )?;
        }
        self.write_shares(out)?;
        self.write_calls(out)?;
        self.write_late(out)?;
        self.write_path(out)
    }

    fn write_shares(&self, out: &mut String) -> std::fmt::Result {
        let per = if self.step_ps.is_some() { "in a step (median)" } else { "in all" };
        let idle = if self.knows_computations { "idle" } else { "outside of calls" };
        writeln!(out, "\nWhere the time went, {per}")?;
        writeln!(
            out,
            "{:>9} {:>12} {:>12} {:>12} {:>16}",
            "rank", "computing", "exposed", "waiting", idle
        )?;
        let of =
            |rank: &RankTime| if self.step_ps.is_some() { rank.step } else { Some(rank.total) };
        let mut rows: Vec<(GlobalRank, Share)> =
            self.ranks.iter().filter_map(|rank| Some((rank.rank, of(rank)?))).collect();
        let without = self.ranks.len() - rows.len();
        let all = rows.len();
        if all > RANKS_SHOWN {
            // Those that wait least hold up the others.
            rows.sort_by_key(|(rank, share)| (share.waiting_ps, *rank));
            let most = rows.split_off(all - RANKS_SHOWN / 2);
            rows.truncate(RANKS_SHOWN / 2);
            rows.extend(most);
        }
        for (rank, share) in &rows {
            let computing = match self.knows_computations {
                true => duration(share.computing_ps),
                false => "–".to_owned(),
            };
            writeln!(
                out,
                "{:>9} {:>12} {:>12} {:>12} {:>16}",
                rank.0,
                computing,
                duration(share.communicating_ps),
                duration(share.waiting_ps),
                duration(share.idle_ps)
            )?;
        }
        if without > 0 {
            writeln!(out, "  {} without steps", counted(without as u64, "rank"))?;
        }
        if all > rows.len() {
            writeln!(out, "  the {} that wait least and most of {all}", rows.len())?;
        }
        Ok(())
    }

    fn write_calls(&self, out: &mut String) -> std::fmt::Result {
        if self.calls.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nCollectives, a member's share")?;
        writeln!(
            out,
            "{:>7} {:>10} {:>11} {:>11} {:>10} {:>10}  call",
            "count", "bytes", "median", "bus", "exposed", "waiting"
        )?;
        for kind in self.calls.iter().take(SHOWN) {
            let line = kind.line.as_deref().map(|line| format!(" ({line})")).unwrap_or_default();
            let last = kind
                .last
                .filter(|(_, times)| *times * 2 > kind.count)
                .map(|(rank, times)| format!(", rank {rank} last in {times} of {}", kind.count));
            writeln!(
                out,
                "{:>7} {:>10} {:>11} {:>11} {:>10} {:>10}  {} of {}{line}{}",
                kind.count,
                bytes(kind.bytes),
                duration(kind.median_ps),
                kind.busbw.map_or("–".to_owned(), rate),
                duration(kind.exposed_ps),
                duration(kind.waiting_ps),
                kind.op,
                kind.group,
                last.unwrap_or_default(),
            )?;
        }
        more(out, self.calls.len(), "kind")
    }

    fn write_late(&self, out: &mut String) -> std::fmt::Result {
        // Somebody always comes last; a hundredth of the time is worth a line.
        let worth = |late: &&crate::late::LateRank| late.behind_ps >= self.time_ps / 100;
        let late: Vec<_> = self.late.iter().filter(worth).collect();
        if late.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nLate ranks")?;
        for late in late.iter().take(SHOWN) {
            writeln!(
                out,
                "  rank {} came last in {} of {} collectives, {} behind the next in all; others waited {} for it",
                late.rank,
                late.came_last,
                late.of,
                duration(late.behind_ps),
                duration(late.waited_ps)
            )?;
        }
        more(out, late.len(), "rank")
    }

    fn write_path(&self, out: &mut String) -> std::fmt::Result {
        let path = &self.critical_path;
        if path.parts.is_empty() {
            return Ok(());
        }
        let of = |cause| duration(path.time_of(cause));
        let idle = if self.knows_computations { "idle" } else { "outside of calls" };
        writeln!(
            out,
            "\nCritical path: {} = computing {} + communicating {} + pauses {} + {idle} {}",
            duration(path.time_ps()),
            of(Cause::Computing),
            of(Cause::Communicating),
            of(Cause::Pause),
            of(Cause::Idle)
        )?;
        let kinds = path.kinds();
        for PathKind { longest, time_ps, count, by_rank } in kinds.iter().take(SHOWN) {
            let name = match longest.cause {
                Cause::Idle => idle,
                _ => &longest.name,
            };
            let line = longest.line.as_deref().map(|line| format!(" ({line})")).unwrap_or_default();
            let most = by_rank.iter().max_by_key(|(_, time_ps)| **time_ps);
            let on = match (most, by_rank.len()) {
                (Some((rank, _)), 1) => format!("rank {rank}"),
                (Some((rank, most_ps)), ranks) => {
                    format!("{ranks} ranks, {}% on rank {rank}", most_ps * 100 / (*time_ps).max(1))
                }
                (None, _) => String::new(),
            };
            writeln!(out, "{:>11} {count:>6}×  {name}{line}, {on}", duration(*time_ps))?;
        }
        more(out, kinds.len(), "kind")
    }
}

fn more(out: &mut String, all: usize, noun: &str) -> std::fmt::Result {
    match all.checked_sub(SHOWN) {
        Some(more) if more > 0 => writeln!(out, "  and {} more", counted(more, noun)),
        _ => Ok(()),
    }
}

/// A time with three digits: `1.23 ms`.
fn duration(ps: u64) -> String {
    scaled(ps as f64, &[(1e12, "s"), (1e9, "ms"), (1e6, "µs"), (1e3, "ns"), (1.0, "ps")])
}

fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, &[(1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")])
}

fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s"), (1.0, "B/s")])
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let fits = units.iter().find(|(unit, _)| value >= *unit).or(units.last());
    let Some((unit, name)) = fits else { return String::new() };
    let value = value / unit;
    let digits = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    let digits = if *unit == 1.0 { 0 } else { digits };
    format!("{value:.digits$} {name}")
}
