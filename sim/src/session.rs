//! Sessions: a simulation that can be viewed at any of its moments.
//!
//! A moment is a virtual time at which something happens, with all events of that time; moment 0 is before
//! the first. In a plan with lines of source, an operation that a process hands to its device, or does
//! asynchronously, is a moment too, though it takes no time: the process is shown at its line. Going back
//! restores the nearest checkpoint and replays the moments since, never from zero: checkpoints lie at most
//! [`Session::checkpoint_spacing`] moments apart.

use super::config::{SimConfig, SimError};
use super::record::Recorder;
use super::state::Engine;
use super::view::View;
use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::{Rounds, Schedule};
use lockstep_core::trace::{Event, Trace};
use std::sync::Arc;

/// The most checkpoints kept; when there are more, every other one goes and the spacing doubles.
const MAX_CHECKPOINTS: usize = 64;

/// A simulation that can be stepped and scrubbed in both directions.
#[derive(Debug)]
pub struct Session {
    config: SimConfig,
    /// Stands at `moment`.
    engine: Engine,
    /// The rounds of each schedule that was looked at: counting them walks over its actions.
    rounds: Vec<(Schedule, Rounds)>,
    moment: usize,
    /// The furthest that the simulation has been run; it stands there while it is being recorded.
    front: Engine,
    recorder: Recorder,
    /// The same simulation without steps laid over the times of calls, where they are: it orders the trace's events
    /// as for one who does not look.
    unlaid: Option<Box<(Engine, Recorder)>>,
    /// Per moment, its virtual time and the number of events recorded up to its end.
    moments: Vec<Moment>,
    /// Engines at moments 0, spacing, 2 * spacing, …
    checkpoints: Vec<Engine>,
    spacing: usize,
}

/// A time at which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The virtual time, in picoseconds.
    pub time_ps: u64,
    /// The number of the trace's events that have happened by its end.
    pub events: usize,
}

impl Session {
    /// A session at moment 0 of a plan, of which nothing has been run; see [`Session::run`].
    ///
    /// # Errors
    /// When the plan cannot be run.
    pub fn new(plan: &Plan, config: SimConfig) -> Result<Session, SimError> {
        plan.check()?;
        let mut engine = Engine::new(Arc::new(plan.clone()), &config);
        engine.lay_steps(&config);
        let unlaid = engine.lays_steps.then(|| {
            let unlaid = Engine { lays_steps: false, ..engine.clone() };
            Box::new((unlaid, Recorder::new(&config)))
        });
        engine.stands = !plan.sources.is_empty();
        let recorder = Recorder::new(&config);
        Ok(Session {
            front: engine.clone(),
            checkpoints: vec![engine.clone()],
            engine,
            rounds: Vec::new(),
            moment: 0,
            recorder,
            unlaid,
            moments: vec![Moment { time_ps: 0, events: 0 }],
            spacing: 1,
            config,
        })
    }

    /// Runs the simulation on by at least one moment and until it has recorded about `events`
    /// more, so that a caller can do something else in between. True once it has ended.
    ///
    /// # Errors
    /// When it records more than [`SimConfig::max_events`].
    pub fn run(&mut self, events: usize) -> Result<bool, SimError> {
        let until = self.recorder.events.len().saturating_add(events);
        loop {
            if !self.front.advance(&mut self.recorder) {
                return Ok(self.order_events(events));
            }
            let recorded = self.recorder.events.len();
            if recorded > self.config.max_events {
                return Err(SimError::TooManyEvents { limit: self.config.max_events });
            }
            self.moments.push(Moment { time_ps: self.front.now, events: recorded });
            if (self.moments.len() - 1).is_multiple_of(self.spacing) {
                self.checkpoint();
            }
            if recorded >= until {
                return Ok(self.front.outcome().is_some() && self.unlaid.is_none());
            }
        }
    }

    /// Takes the order of the events from the simulation without laid steps, which it runs on by about so many events:
    /// those of one time come in another order there. True once it has.
    fn order_events(&mut self, events: usize) -> bool {
        let Some(unlaid) = &mut self.unlaid else { return true };
        let (engine, recorder) = &mut **unlaid;
        let until = recorder.events.len().saturating_add(events);
        while engine.advance(recorder) {
            if recorder.events.len() >= until {
                return false;
            }
        }
        self.recorder.events = std::mem::take(&mut recorder.events);
        self.unlaid = None;
        true
    }

    /// Runs the simulation to its end.
    ///
    /// # Errors
    /// When it records more than [`SimConfig::max_events`].
    pub fn run_to_end(&mut self) -> Result<(), SimError> {
        while !self.run(usize::MAX)? {}
        Ok(())
    }

    fn checkpoint(&mut self) {
        self.checkpoints.push(self.front.clone());
        if self.checkpoints.len() > MAX_CHECKPOINTS {
            let mut index = 0;
            self.checkpoints.retain(|_| {
                index += 1;
                (index - 1) % 2 == 0
            });
            self.spacing *= 2;
        }
    }

    /// Every moment that has been run, in order.
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// The moment that the session stands at.
    pub fn moment(&self) -> usize {
        self.moment
    }

    /// The number of moments between two checkpoints: a seek replays at most so many.
    pub fn checkpoint_spacing(&self) -> usize {
        self.spacing
    }

    /// The last moment that is not after a virtual time.
    pub fn moment_at(&self, time_ps: u64) -> usize {
        self.moments.partition_point(|moment| moment.time_ps <= time_ps).saturating_sub(1)
    }

    /// Goes to a moment and returns how many moments had to be replayed for it.
    ///
    /// # Errors
    /// When the simulation has not been run so far.
    pub fn seek(&mut self, moment: usize) -> Result<usize, SimError> {
        let last = self.moments.len() - 1;
        if moment > last {
            return Err(SimError::NoSuchMoment { moment, last });
        }
        let checkpoint = moment / self.spacing;
        let near = checkpoint * self.spacing;
        if moment < self.moment || near > self.moment {
            // A checkpoint exists for every multiple of the spacing that has been run.
            if let Some(engine) = self.checkpoints.get(checkpoint) {
                self.engine = engine.clone();
                self.moment = near;
            }
        }
        let replayed = moment - self.moment;
        let mut quiet = Recorder::default();
        while self.moment < moment {
            self.engine.advance(&mut quiet);
            self.moment += 1;
        }
        Ok(replayed)
    }

    /// The state of the simulation at the session's moment.
    pub fn view(&mut self) -> View {
        self.engine.view(self.moment, &mut self.rounds)
    }

    /// When each round of the schedules begins, the steps in which messages move: when its first
    /// message is sent, by a rank or a switch, in picoseconds; meant for plans of one call.
    pub fn round_begins(&self) -> Vec<u64> {
        let mut before = 0;
        let sent = self.recorder.step_begins.iter().filter(|begin| **begin != u64::MAX);
        let in_order = sent.map(|begin| {
            before = before.max(*begin);
            before
        });
        in_order.collect()
    }

    /// All bytes of a rank's tensor at the session's moment; `None` when the plan carries no
    /// values or the rank does not use the tensor.
    pub fn tensor(&self, rank: GlobalRank, tensor: TensorId) -> Option<&[u8]> {
        self.engine.ranks.get(rank.index())?.memory.get(tensor)
    }

    /// The events of everything that has been run; [`Moment::events`] says how many of them have
    /// happened by a moment.
    pub fn events(&self) -> &[Event] {
        &self.recorder.events
    }

    /// The trace of everything that has been run: the same bytes as
    /// [`simulate`](crate::simulate)'s once it has ended.
    pub fn trace(&self) -> Trace {
        Trace {
            header: self.front.header(&self.config),
            events: self.recorder.events.clone(),
            end: self.front.end(),
        }
    }
}
