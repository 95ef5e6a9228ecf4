//! The stretch of time that is shown.

/// A stretch of time, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Stretch {
    /// All of it, and a little more.
    pub(super) fn whole(end_ps: u64) -> Stretch {
        Stretch { from: 0.0, to: end_ps.max(1) as f64 * 1.01 }
    }

    /// Scaled by `factor` around a time, within what there is.
    pub(super) fn zoomed(self, factor: f64, around: f64, end_ps: u64) -> Stretch {
        let most = Stretch::whole(end_ps).to;
        let span = ((self.to - self.from) * factor).clamp((most / 1e6).max(1.0), most);
        let share = (around - self.from) / (self.to - self.from);
        Stretch { from: around - share * span, to: around - share * span + span }.moved(0.0, end_ps)
    }

    /// Moved by so many picoseconds, within what there is.
    pub(super) fn moved(self, by: f64, end_ps: u64) -> Stretch {
        let (span, most) = (self.to - self.from, Stretch::whole(end_ps).to);
        let from = (self.from + by).clamp(0.0, (most - span).max(0.0));
        Stretch { from, to: from + span }
    }

    /// The same, moved so that a time is in it.
    pub(super) fn following(self, time: f64, end_ps: u64) -> Stretch {
        let span = self.to - self.from;
        match time {
            _ if time < self.from => self.moved(time - self.from - span * 0.1, end_ps),
            _ if time > self.to => self.moved(time - self.from - span * 0.1, end_ps),
            _ => self,
        }
    }

    /// The pixel of a time in `width` pixels.
    pub(super) fn x(self, time: f64, width: f64) -> f64 {
        (time - self.from) / (self.to - self.from) * width
    }

    /// The time at a pixel.
    pub(super) fn time(self, x: f64, width: f64) -> f64 {
        self.from + x / width.max(1.0) * (self.to - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_stays_within_what_there_is() {
        let whole = Stretch::whole(1000);
        let zoomed = whole.zoomed(0.1, 900.0, 1000);
        assert!((zoomed.to - zoomed.from - 101.0).abs() < 1e-6 && zoomed.from <= 900.0);
        assert_eq!(zoomed.zoomed(1e9, 900.0, 1000), whole);
        assert_eq!(zoomed.moved(-1e9, 1000).from, 0.0);
        assert!(zoomed.moved(1e9, 1000).to <= whole.to + 1e-6);
        let followed = zoomed.following(10.0, 1000);
        assert!(followed.from <= 10.0 && followed.to >= 10.0);
        assert_eq!(zoomed.following(zoomed.from + 1.0, 1000), zoomed);
    }
}
