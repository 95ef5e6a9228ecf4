//! Playing a simulation's moments: a reducer that knows no clock, and the hook that gives it one.

use crate::dom::{self, Frames};
use std::rc::Rc;
use yew::prelude::*;

/// Moments a second at speed 1.
const MOMENTS_PER_SECOND: f64 = 1.0;
/// Time that one step forward is seen to take, in seconds.
const GLIDE_SECONDS: f64 = 0.45;
/// The speeds that can be chosen.
pub(crate) const SPEEDS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
/// A simulation is played in about so many seconds at most, unless a speed is chosen.
const PATIENCE_SECONDS: f64 = 45.0;

/// The state of playing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Playback {
    pub(crate) moment: usize,
    /// The part of the way to the next moment that is over, below 1.
    pub(crate) fraction: f64,
    pub(crate) playing: bool,
    /// Index into [`SPEEDS`].
    pub(crate) speed: usize,
    pub(crate) last: usize,
    /// A number that changes with the trace that is played.
    pub(crate) of: Option<u64>,
    /// A single step forward that is being shown.
    gliding: bool,
    /// The user prefers no motion: moments follow each other without a way between.
    still: bool,
}

/// An event of the playback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    /// So many seconds passed.
    Tick(f64),
    Toggle,
    Forward,
    Back,
    To(usize),
    Faster,
    Slower,
    Speed(usize),
    /// Another simulation of so many moments.
    Load {
        of: Option<u64>,
        moment: usize,
        last: usize,
    },
}

impl Playback {
    fn new(still: bool) -> Playback {
        let (moment, fraction, last) = (0, 0.0, 0);
        let (of, playing, gliding) = (None, false, false);
        Playback { moment, fraction, playing, speed: 2, last, of, gliding, still }
    }

    /// True while time passes.
    pub(crate) fn moving(&self) -> bool {
        self.playing || self.gliding
    }

    /// The virtual time that is shown, given that of each moment.
    pub(crate) fn time_ps(&self, moments: &[u64]) -> u64 {
        let from = moments.get(self.moment).copied().unwrap_or(0);
        let to = moments.get(self.moment + 1).copied().unwrap_or(from);
        from + (to.saturating_sub(from) as f64 * self.shown_fraction()) as u64
    }

    /// The part of the way to the next moment that is shown: nothing of it, where the reader asked
    /// for no motion.
    pub(crate) fn shown_fraction(&self) -> f64 {
        if self.still { 0.0 } else { self.fraction }
    }

    fn at(&self, moment: usize) -> Playback {
        Playback { moment: moment.min(self.last), fraction: 0.0, gliding: false, ..self.clone() }
    }

    fn tick(&self, seconds: f64) -> Playback {
        // A tab that was in the background must not leap.
        let seconds = seconds.min(0.25);
        let rate = if self.gliding {
            1.0 / GLIDE_SECONDS
        } else {
            MOMENTS_PER_SECOND * SPEEDS[self.speed]
        };
        let way = self.fraction + seconds * rate;
        let (whole, fraction) = (way.floor() as usize, way.fract());
        if whole == 0 {
            return Playback { fraction: way, ..self.clone() };
        }
        let reached = self.at(self.moment + whole);
        if self.gliding || reached.moment == self.last {
            return Playback { playing: self.playing && reached.moment < self.last, ..reached };
        }
        Playback { fraction, ..reached }
    }
}

impl Reducible for Playback {
    type Action = Act;

    fn reduce(self: Rc<Playback>, act: Act) -> Rc<Playback> {
        let top = SPEEDS.len() - 1;
        Rc::new(match act {
            Act::Tick(seconds) if self.moving() => self.tick(seconds),
            Act::Tick(_) => return self,
            Act::Toggle if self.playing => Playback { playing: false, ..(*self).clone() },
            // From the end, playing begins again.
            Act::Toggle if self.moment == self.last => Playback { playing: true, ..self.at(0) },
            Act::Toggle => Playback { playing: true, gliding: false, ..(*self).clone() },
            Act::Forward => {
                let skipped = usize::from(self.gliding);
                let from = Playback { playing: false, ..self.at(self.moment + skipped) };
                match self.still || from.moment == from.last {
                    true => from.at(from.moment + 1),
                    false => Playback { gliding: true, ..from },
                }
            }
            Act::Back => {
                let behind = usize::from(self.fraction == 0.0);
                Playback { playing: false, ..self.at(self.moment.saturating_sub(behind)) }
            }
            Act::To(moment) => Playback { playing: false, ..self.at(moment) },
            Act::Faster => Playback { speed: (self.speed + 1).min(top), ..(*self).clone() },
            Act::Slower => Playback { speed: self.speed.saturating_sub(1), ..(*self).clone() },
            Act::Speed(speed) => Playback { speed: speed.min(top), ..(*self).clone() },
            Act::Load { of, moment, last } => {
                let in_time =
                    |speed: &f64| last as f64 <= PATIENCE_SECONDS * MOMENTS_PER_SECOND * speed;
                let patient = SPEEDS.iter().position(in_time).unwrap_or(top);
                let speed = self.speed.max(patient);
                let fresh = Playback { speed, last, of, ..Playback::new(self.still) };
                fresh.at(moment)
            }
        })
    }
}

/// Playing, with the browser's frames as its clock.
#[hook]
pub(crate) fn use_playback() -> UseReducerHandle<Playback> {
    let playback = use_reducer(|| Playback::new(dom::media("(prefers-reduced-motion: reduce)")));
    let dispatch = playback.dispatcher();
    use_effect_with(playback.moving(), move |moving| {
        let frames = moving.then(|| {
            let mut before = None;
            Frames::start(move |now| {
                let passed = before.map_or(0.0, |before| now - before);
                before = Some(now);
                dispatch.dispatch(Act::Tick(passed / 1000.0));
            })
        });
        move || drop(frames)
    });
    playback
}

/// A callback that goes to the last moment that is not after a virtual time; `times` has that of
/// each moment.
pub(crate) fn seeking(playback: &UseReducerHandle<Playback>, times: Vec<u64>) -> Callback<u64> {
    let dispatch = playback.dispatcher();
    Callback::from(move |time_ps: u64| {
        let moment = times.partition_point(|at| *at <= time_ps).saturating_sub(1);
        dispatch.dispatch(Act::To(moment));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(acts: &[Act]) -> Playback {
        let mut playback = Rc::new(Playback::new(false));
        playback = playback.reduce(Act::Load { of: None, moment: 0, last: 3 });
        for act in acts {
            playback = playback.reduce(*act);
        }
        (*playback).clone()
    }

    #[test]
    fn playing_ends_at_the_last_moment_and_begins_again_from_there() {
        let played = after(&[Act::Toggle]);
        assert!(played.playing);
        let ticks = [vec![Act::Toggle], vec![Act::Tick(0.2); 30]].concat();
        let ended = after(&ticks);
        assert_eq!((ended.moment, ended.fraction, ended.playing), (3, 0.0, false));
        let again = after(&[ticks, vec![Act::Toggle]].concat());
        assert_eq!((again.moment, again.playing), (0, true));
    }

    #[test]
    fn without_motion_the_time_goes_from_moment_to_moment() {
        let shown = |still: bool| {
            let mut playback = Rc::new(Playback::new(still));
            for act in [Act::Load { of: None, moment: 0, last: 3 }, Act::Toggle, Act::Tick(0.1)] {
                playback = playback.reduce(act);
            }
            assert!(playback.playing && playback.moment == 0 && playback.fraction > 0.0);
            playback.time_ps(&[1000, 2000, 3000, 4000])
        };
        assert_eq!(shown(true), 1000);
        assert!(shown(false) > 1000);
    }

    #[test]
    fn a_step_forward_glides_and_a_second_one_does_not_wait_for_it() {
        let gliding = after(&[Act::Forward, Act::Tick(0.1)]);
        assert!(gliding.moving() && gliding.moment == 0 && gliding.fraction > 0.0);
        assert_eq!(after(&[Act::Forward, Act::Tick(0.25), Act::Tick(0.25)]).moment, 1);
        let second = after(&[Act::Forward, Act::Forward, Act::Tick(0.25), Act::Tick(0.25)]);
        assert_eq!((second.moment, second.moving()), (2, false));
    }

    #[test]
    fn back_returns_to_the_moment_shown_first_and_never_before_the_start() {
        assert_eq!(after(&[Act::To(2), Act::Forward, Act::Tick(0.1), Act::Back]).moment, 2);
        assert_eq!(after(&[Act::To(2), Act::Back]).moment, 1);
        assert_eq!(after(&[Act::Back]).moment, 0);
    }
}
