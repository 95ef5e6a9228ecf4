//! The geometry of a timeline: the stretch that is shown, and how it lies on the canvas.

use super::order::Order;
use super::rows::{self, Rows};
use lockstep_web_protocol::Area;

/// The stretch that is shown: picoseconds across, rows down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) first_row: f64,
}

impl Stretch {
    pub(super) fn whole(fit: (u64, u64)) -> Stretch {
        let (from, to) = (fit.0 as f64, fit.1 as f64);
        Stretch { from, to: to.max(from + least_span(from)), first_row: 0.0 }
    }

    /// Scaled by `factor` around a time, within what there is to see.
    pub(super) fn zoomed(self, factor: f64, around: f64, end: f64) -> Stretch {
        let least = least_span(end.max(self.to));
        let span = ((self.to - self.from) * factor).clamp(least, least.max(end * 1.05));
        let share = (around - self.from) / (self.to - self.from);
        let from = around - share * span;
        Stretch { from, to: from + span, ..self }.moved(0.0, end)
    }

    /// Moved by so many picoseconds.
    pub(super) fn moved(self, by: f64, end: f64) -> Stretch {
        let span = self.to - self.from;
        let most = (end * 1.05 - span).max(0.0);
        let from = (self.from + by).clamp(0.0, most);
        Stretch { from, to: from + span, ..self }
    }

    pub(super) fn scrolled(self, by: f64, rows: u32, visible: u32) -> Stretch {
        let most = f64::from(rows.saturating_sub(visible));
        Stretch { first_row: (self.first_row + by).clamp(0.0, most), ..self }
    }

    /// Moved and widened as little as shows a span in the middle third, and its row.
    pub(super) fn showing(
        self,
        from: u64,
        to: u64,
        row: Option<u32>,
        rows: Rows,
        height: f64,
        end: f64,
    ) -> Stretch {
        let (from, to) = (from as f64, (to as f64).min(end).max(from as f64));
        let long = self.to - self.from;
        let seen = from >= self.from && to <= self.to && to - from >= long / 400.0;
        let wide = (to - from).max(long / 60.0).max(least_span(to));
        let there = match seen {
            true => self,
            // Its neighbours on both sides stay in sight.
            false => {
                let span = (to - from + 8.0 * wide).min(end * 1.05);
                let from = (from + to - span) / 2.0;
                Stretch { from, to: from + span, ..self }.moved(0.0, end)
            }
        };
        let visible = rows.visible(height);
        match row.map(f64::from) {
            Some(row)
                if row < there.first_row
                    || row + 1.0 > there.first_row.floor() + f64::from(visible) =>
            {
                let first = row - f64::from(visible) / 2.0;
                Stretch { first_row: 0.0, ..there }.scrolled(
                    first.floor().max(0.0),
                    rows.count,
                    visible,
                )
            }
            _ => there,
        }
    }
}

/// The shortest stretch at a time that can be shown, in picoseconds: a nanosecond, or where times
/// are so late that an f64 has no room for what lies between, some thousand of its steps.
fn least_span(time: f64) -> f64 {
    (time.abs() * f64::EPSILON * 8192.0).max(1000.0)
}

/// The stretch, the rows and their places on the canvas.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Geometry {
    pub(super) stretch: Stretch,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) rows: Rows,
    pub(super) order: Order,
    pub(super) end: f64,
}

impl Geometry {
    pub(super) fn visible(&self) -> u32 {
        self.rows.visible(self.height)
    }

    /// The room that the buttons take in the axis, in pixels.
    pub(super) fn tools(&self) -> f64 {
        if self.visible() < self.rows.count { 300.0 } else { 175.0 }
    }

    pub(super) fn time_at(&self, x: f64) -> f64 {
        let share = (x - self.gutter()) / (self.width - self.gutter()).max(1.0);
        self.stretch.from + share * (self.stretch.to - self.stretch.from)
    }

    pub(super) fn x_of(&self, time: f64) -> f64 {
        let share = (time - self.stretch.from) / (self.stretch.to - self.stretch.from);
        self.gutter() + share * (self.width - self.gutter())
    }

    pub(super) fn rank_height(&self) -> f64 {
        self.rows.rank_height(self.height)
    }

    /// The width of what stands left of the rows.
    pub(super) fn gutter(&self) -> f64 {
        self.rows.gutter(self.width, self.height)
    }

    /// Rank and lane under a point.
    pub(super) fn row_at(&self, y: f64) -> Option<(u32, u32)> {
        let down = (y - rows::AXIS) / self.rank_height();
        if down < 0.0 {
            return None;
        }
        let row = self.stretch.first_row.floor() + down.floor();
        let lane = (down.fract() * f64::from(self.rows.lanes)) as u32;
        let rank = self.order.rank_at(row as u32)?;
        Some((rank, lane.min(self.rows.lanes.saturating_sub(1))))
    }

    /// The area between two points.
    pub(super) fn area(&self, a: (f64, f64), b: (f64, f64)) -> Area {
        let time = |x: f64| self.time_at(x.clamp(self.gutter(), self.width)).max(0.0) as u64;
        let row = |y: f64| {
            let down = ((y - rows::AXIS) / self.rank_height()).max(0.0);
            (self.stretch.first_row.floor() + down.floor()) as u32
        };
        let (top, bottom) = (row(a.1.min(b.1)), row(a.1.max(b.1)));
        Area {
            from_ps: time(a.0.min(b.0)),
            to_ps: time(a.0.max(b.0)),
            ranks: (top..=bottom).flat_map(|row| self.order.ranks_at(row)).collect(),
        }
    }

    /// The distance from the axis down to the rows of a rank, if it is shown; above the axis if it is scrolled out.
    pub(super) fn top_of(&self, rank: u32) -> Option<f64> {
        let row = f64::from(self.order.row_of(rank)?);
        Some((row - self.stretch.first_row.floor()) * self.rank_height())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stretch_stays_one_however_far_it_is_zoomed(
            end in 1u64.., at in 0.0..1.0f64, factors in prop::collection::vec(0.01..3.0f64, 1..60),
        ) {
            let end = end as f64;
            let mut stretch = Stretch::whole((0, end as u64));
            for factor in factors {
                stretch = stretch.zoomed(factor, stretch.from + at * (stretch.to - stretch.from), end);
                // A pixel of the widest screen is still a step of the time.
                prop_assert!(stretch.from + (stretch.to - stretch.from) / 8000.0 > stretch.from);
                prop_assert!(stretch.from >= 0.0 && stretch.from.is_finite() && stretch.to.is_finite());
            }
        }

        /// A jump to a span, even to one that never ends, stays within the recording.
        #[test]
        fn a_jump_stays_within_what_there_is(end in 1_000_000u64..1 << 50, at in 0.0..1.0f64, open in any::<bool>()) {
            let from = (end as f64 * at) as u64;
            let to = if open { u64::MAX } else { from + end / 1000 };
            let rows = Rows { count: 1, lanes: 1, least: 0.0, several: false };
            let near = Stretch { from: 0.0, to: 1000.0, first_row: 0.0 };
            let shown = near.showing(from, to, None, rows, 100.0, end as f64);
            prop_assert!(shown.from >= 0.0 && shown.to <= end as f64 * 1.06, "{shown:?}");
            prop_assert!(shown.from <= from as f64 && shown.to > from as f64, "{shown:?}");
        }

        #[test]
        fn whatever_is_worth_showing_first_is_a_stretch(from in any::<u64>(), more in 0u64..5) {
            let stretch = Stretch::whole((from, from.saturating_add(more)));
            prop_assert!(stretch.to - stretch.from >= 1000.0);
        }
    }
}
