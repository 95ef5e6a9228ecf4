//! Rank 0's silence, as a rank that others started watches it.

use super::failure::{RankFailure, cannot};
use super::held::Held;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Time that rank 0 may take to say a word to a rank whose call is late. It says one every second.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Interval at which a rank looks whether rank 0 has said something.
const LOOK: Duration = Duration::from_millis(250);

/// The time for which rank 0 has been silent while this process was awake, and a call late.
#[derive(Debug, Default)]
struct Silence {
    words: u64,
    silent: Duration,
    late: Duration,
}

impl Silence {
    /// Another look. Time counts by looks: a process that was stopped itself has not listened.
    /// Returns why the rank is to end, if it is.
    fn look(&mut self, words: u64, is_late: bool, longest: Duration) -> Option<String> {
        self.silent = if words == self.words { self.silent + LOOK } else { Duration::ZERO };
        self.late = if is_late { self.late + LOOK } else { Duration::ZERO };
        self.words = words;
        let why = "its process is stopped, or its machine or the network is";
        let limit = longest.saturating_add(ANSWERS_WITHIN);
        let too_long = self.silent >= limit;
        if is_late && (too_long || self.silent.min(self.late) >= ANSWERS_WITHIN) {
            return Some(format!(
                "a call has timed out, and rank 0 has not answered for {} s: {why}",
                self.silent.as_secs()
            ));
        }
        too_long.then(|| {
            format!(
                "rank 0 has said nothing for {} s, longer than any call may take: {why}",
                limit.as_secs()
            )
        })
    }
}

impl Held {
    /// Ends the process of a rank that has lost rank 0, after its dump was kept. Does nothing for
    /// one that is not to end so.
    pub(super) fn end_alone(&self, why: &str) {
        let Some(alone) = &self.alone else { return };
        let _one = alone.ending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keep) = &alone.keep {
            let clerks = self.clerks.get().into_iter().flatten();
            clerks.filter_map(|clerk| clerk.last_dump()).for_each(|dump| keep(&dump));
        }
        alone.say(why);
        alone.clear();
        std::process::exit(1);
    }

    /// Watches rank 0 from here on, if this rank is to. No call may take more than `longest`.
    pub(super) fn watch_rank_zero(self: &Arc<Held>, longest: Duration) -> Result<(), RankFailure> {
        if self.alone.is_none() {
            return Ok(());
        }
        let held = self.clone();
        let watching = move || {
            let mut silence = Silence::default();
            while held.wait(LOOK, |told| (told.leave || told.over).then_some(())).is_none() {
                let words = held.words();
                let clerks = held.clerks.get().map_or(&[][..], Vec::as_slice);
                let is_late = clerks.iter().any(|clerk| clerk.is_late());
                if let Some(why) = silence.look(words, is_late, longest) {
                    held.end_alone(&why);
                }
            }
        };
        let thread = std::thread::Builder::new().name("rank 0".to_owned()).spawn(watching);
        thread.map(|_| ()).map_err(cannot("cannot start a thread"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until it ends, and in how many.
    fn looks(is_late: impl Fn(u64) -> bool, words: impl Fn(u64) -> u64) -> (u64, String) {
        let mut silence = Silence::default();
        let ends = |look| {
            let why = silence.look(words(look), is_late(look), Duration::from_secs(2))?;
            Some((look, why))
        };
        (1..200).find_map(ends).unwrap_or_default()
    }

    #[test]
    fn a_rank_ends_by_itself_only_if_rank_0_is_silent() {
        let silent = |_| 0;
        let (after, why) = looks(|_| false, silent);
        assert_eq!(after, 28);
        assert!(why.starts_with("rank 0 has said nothing for 7 s"), "{why}");
        let (after, why) = looks(|_| true, silent);
        assert_eq!(after, 20);
        assert!(why.contains("has not answered for 5 s"), "{why}");
        // The first look may come before rank 0's word: silence counts from the last one.
        assert_eq!(looks(|look| look > 4, silent).0, 24);
        assert_eq!(looks(|_| true, |look| look / 4).0, 0, "rank 0 is there, and ends the run");
        assert_eq!(looks(|_| true, |look| look.min(10)).0, 30);
    }
}
