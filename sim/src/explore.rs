//! Looking for a way to run a plan in which it does not end well.
//!
//! The search takes every choice that a plan leaves open ([`Choice`]) at every point where nothing else can
//! happen. Everything in between happens in one order only, since it commutes: a rank's actions affect other
//! ranks only through messages, and a message is taken by the rank that it is for. That is partial-order
//! reduction with the choices as the only points of branching; of ranks whose other calls cannot move before
//! one of their own is chosen, one is enough (a persistent set; P. Godefroid, *Partial-Order Methods for the
//! Verification of Concurrent Systems*, 1996). States that were seen before are not entered again.
//!
//! The result is an [`Order`]: a simulation with it runs the plan exactly that way.

use super::choice::{Choice, Devices, Order};
use super::config::{SimConfig, SimError};
use super::record::Recorder;
use super::state::Engine;
use lockstep_core::plan::Plan;
use lockstep_core::trace::Outcome;
use lockstep_core::watch::{Reached, Unwatched, Watch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The order in which devices run calls of several groups.
    pub devices: Devices,
    /// States that are entered at most.
    pub states: usize,
    /// The order in which choices are tried: 0 for the order in which they are listed, any other number
    /// shuffles them. The findings within the bounds depend on the order; whether the whole was searched does
    /// not.
    pub seed: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { devices: Devices::SideBySide, states: 20_000, seed: 0 }
    }
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explored {
    /// The bounds that it kept.
    pub bounds: Bounds,
    /// States that it entered.
    pub states: usize,
    /// Runs that it followed to their end.
    pub ended: usize,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Run in this order, the plan does not complete.
    Fails {
        /// The order, as far as it matters.
        order: Order,
        /// The end of the run in that order.
        outcome: Outcome,
        /// The frequency of such orders.
        common: Common,
    },
    /// In every order, the plan completes.
    Completes,
    /// Nothing was found, but the search was not over: it came to its bounds, or was stopped.
    Unknown,
}

/// In how many of so many runs, in which each choice is drawn at random, a plan does not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Common {
    /// Runs that were followed to their end.
    pub runs: u32,
    /// Those that did not complete.
    pub failed: u32,
}

impl Common {
    /// It as a sentence.
    pub fn words(self) -> String {
        let Common { runs, failed } = self;
        match failed {
            _ if runs == 0 => {
                "The search was stopped before random runs told how common such orders are."
                    .to_owned()
            }
            _ if failed == runs => {
                format!("Not one of {runs} runs in which choices were drawn at random completed.")
            }
            0 => {
                format!("It is rare: {runs} runs in which choices were drawn at random completed.")
            }
            _ => format!(
                "Of {runs} runs in which choices were drawn at random, {failed} did not complete."
            ),
        }
    }
}

/// Runs that are drawn once a search has found an order that fails.
const RUNS: u32 = 100;
/// Moments of such runs at most, all together.
const MOMENTS: u64 = 20_000_000;

/// A failing order that a search has found. The search then draws random runs to see how common such orders are.
#[derive(Clone, Debug)]
struct Found {
    order: Order,
    outcome: Outcome,
    common: Common,
    moments: u64,
}

impl Found {
    fn verdict(self) -> Verdict {
        let Found { order, outcome, common, .. } = self;
        Verdict::Fails { order, outcome, common }
    }
}

/// A search that is on its way.
#[derive(Debug)]
pub struct Explorer {
    bounds: Bounds,
    start: Engine,
    found: Option<Found>,
    /// Points to go on from, the next one last, with the choices on the way there.
    ahead: Vec<(Engine, Vec<Choice>)>,
    seen: BTreeSet<Vec<u64>>,
    states: usize,
    ended: usize,
    verdict: Option<Verdict>,
    /// Tries every choice everywhere, also in states that were seen before.
    #[cfg(test)]
    exhaustive: bool,
}

impl Explorer {
    /// A search that has not begun. Values and messages are left out of it.
    ///
    /// # Errors
    /// When the plan is not one.
    pub fn new(plan: &Plan, config: &SimConfig, bounds: Bounds) -> Result<Explorer, SimError> {
        plan.check()?;
        let order = Order { devices: bounds.devices, choices: Vec::new() };
        let config = SimConfig { max_value_bytes: 0, order: Some(order), ..config.clone() };
        let engine = Engine::new(Arc::new(plan.clone()), &config);
        Ok(Explorer {
            bounds,
            ahead: vec![(engine.clone(), Vec::new())],
            start: engine,
            found: None,
            seen: BTreeSet::new(),
            states: 0,
            ended: 0,
            verdict: None,
            #[cfg(test)]
            exhaustive: false,
        })
    }

    /// States entered so far.
    pub fn states(&self) -> usize {
        self.states
    }

    /// The states entered so far; for an order that fails, the random runs that show how common it is.
    fn reached(&self) -> Reached {
        match &self.found {
            Some(found) => Reached {
                done: found.common.runs.into(),
                total: RUNS.into(),
                what: "random runs followed, to see how common the order is that was found",
            },
            None => Reached {
                done: self.states as u64,
                total: self.bounds.states as u64,
                what: "states entered",
            },
        }
    }

    /// Enters up to so many states more; returns the result once the search is over.
    pub fn run(&mut self, states: usize) -> Option<Explored> {
        for _ in 0..states {
            if self.verdict.is_some() {
                break;
            }
            if let Some(found) = self.found.take() {
                self.draw_a_run(found);
                continue;
            }
            match self.ahead.pop() {
                None => self.verdict = Some(Verdict::Completes),
                Some(_) if self.states >= self.bounds.states => {
                    self.verdict = Some(Verdict::Unknown);
                }
                Some((engine, chosen)) => self.enter(engine, chosen),
            }
        }
        let verdict = self.verdict.clone()?;
        Some(self.explored(verdict))
    }

    /// The result if the search went no further.
    pub fn so_far(&self) -> Explored {
        let found = self.found.clone().map(Found::verdict);
        let verdict = self.verdict.clone().or(found);
        self.explored(verdict.unwrap_or(Verdict::Unknown))
    }

    fn explored(&self, verdict: Verdict) -> Explored {
        Explored { bounds: self.bounds, states: self.states, ended: self.ended, verdict }
    }

    /// Follows a run to where something is to be chosen, or to its end.
    fn enter(&mut self, mut engine: Engine, chosen: Vec<Choice>) {
        self.states += 1;
        let mut quiet = Recorder::default();
        let choices = loop {
            if engine.is_settled() {
                let choices = engine.choices();
                if !choices.is_empty() {
                    break choices;
                }
            }
            if !engine.advance(&mut quiet) {
                self.ended += 1;
                return match engine.outcome() {
                    Some(Outcome::Completed) | None => {}
                    Some(outcome) => {
                        let order = Order { devices: self.bounds.devices, choices: chosen };
                        let outcome = outcome.clone();
                        let common = Common { runs: 0, failed: 0 };
                        self.found = Some(Found { order, outcome, common, moments: 0 });
                    }
                };
            }
            quiet.events.clear();
        };
        let (exhaustive, mut choices) = match self.is_exhaustive() {
            true => (true, choices),
            false => (false, engine.enough(&choices).unwrap_or(choices)),
        };
        if !exhaustive && !self.seen.insert(engine.digest()) {
            return;
        }
        shuffle(&mut choices, self.bounds.seed, self.states as u64);
        for choice in choices.into_iter().rev() {
            let mut next = engine.clone();
            next.make(choice, &mut quiet);
            let chosen = chosen.iter().copied().chain([choice]).collect();
            self.ahead.push((next, chosen));
        }
    }

    /// Follows a run with choices drawn at random to its end.
    fn draw_a_run(&mut self, mut found: Found) {
        let mut engine = self.start.clone();
        let mut quiet = Recorder::default();
        let mut turn = u64::from(found.common.runs) << 32;
        loop {
            found.moments += 1;
            let mut choices = match engine.is_settled() {
                true => engine.choices(),
                false => Vec::new(),
            };
            if !choices.is_empty() {
                turn += 1;
                shuffle(&mut choices, self.bounds.seed.wrapping_add(1).max(1), turn);
                if let Some(choice) = choices.first() {
                    engine.make(*choice, &mut quiet);
                }
            } else if !engine.advance(&mut quiet) {
                break;
            }
            quiet.events.clear();
        }
        found.common.runs += 1;
        found.common.failed +=
            u32::from(!matches!(engine.outcome(), Some(Outcome::Completed) | None));
        // If nothing was chosen every run goes like this one.
        let over = turn & u64::from(u32::MAX) == 0 || found.order.choices.is_empty();
        if over || found.common.runs == RUNS || found.moments >= MOMENTS {
            self.verdict = Some(found.verdict());
        } else {
            self.found = Some(found);
        }
    }

    fn is_exhaustive(&self) -> bool {
        #[cfg(test)]
        return self.exhaustive;
        #[cfg(not(test))]
        false
    }
}

/// Searches to the end or to the bounds.
///
/// # Errors
/// When the plan is not one.
pub fn explore(plan: &Plan, config: &SimConfig, bounds: Bounds) -> Result<Explored, SimError> {
    explore_watched(plan, config, bounds, &mut Unwatched)
}

/// Searches to the end, to the bounds, or until its watch ends the search: then the result covers the states
/// that were searched.
///
/// # Errors
/// When the plan is not runnable.
pub fn explore_watched(
    plan: &Plan,
    config: &SimConfig,
    bounds: Bounds,
    watch: &mut dyn Watch,
) -> Result<Explored, SimError> {
    let mut explorer = Explorer::new(plan, config, bounds)?;
    loop {
        if let Some(explored) = explorer.run(1) {
            return Ok(explored);
        }
        if watch.reached(explorer.reached()).is_break() {
            return Ok(explorer.so_far());
        }
    }
}

/// Fisher and Yates' shuffle, by splitmix64.
fn shuffle(choices: &mut [Choice], seed: u64, turn: u64) {
    if seed == 0 {
        return;
    }
    let mut state = seed ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for last in (1..choices.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let other = ((mixed ^ (mixed >> 31)) % (last as u64 + 1)) as usize;
        choices.swap(last, other);
    }
}

impl Engine {
    /// Everything of a settled engine that decides how it can go on, but for the time.
    fn digest(&self) -> Vec<u64> {
        let mut digest = Vec::new();
        for rank in &self.ranks {
            let busy = u64::from(rank.doing == crate::state::Doing::Died);
            let stream = rank.stream.as_ref().map_or(0, |stream| stream.len() as u64);
            digest.extend([u64::from(rank.pc), busy, stream, rank.works.len() as u64]);
            let open = (0..).zip(&rank.works).filter(|(_, work)| !work.completed);
            digest.extend(open.map(|(number, _): (u64, _)| number + 1));
            digest.push(0);
        }
        for channel in &self.channels {
            let at = channel.active.as_ref();
            let step = at.map_or(0, |active| u64::from(active.step) + 1);
            let work = at.map_or(0, |active| active.seq + 1);
            digest.extend([channel.queued() as u64, step, work, channel.mailbox().len() as u64]);
        }
        self.digest_p2p(&mut digest);
        if let Some(choosing) = &self.choosing {
            digest.extend(choosing.busy.iter().map(|busy| u64::from(*busy)));
        }
        digest
    }
}

#[cfg(test)]
mod tests;
