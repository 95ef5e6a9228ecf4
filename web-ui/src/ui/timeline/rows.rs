//! The division of a timeline's room: ranks, their rows, and the gutter with their names.

/// The height of the axis with the times.
pub(super) const AXIS: f64 = 20.0;
/// The width of the ranks' names, alone and with the number of ranks that a row stands for.
const RANKS: [f64; 2] = [46.0, 78.0];
/// The widths of the rows' names, in full and cut short.
const NAMES: [f64; 2] = [96.0, 36.0];
/// A timeline narrower than this has no room for whole names.
const WIDE: f64 = 620.0;
/// A row less high than this has no room for a text.
const READABLE: f64 = 9.5;

/// The rows of a timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    /// Ranks that are shown.
    pub(super) count: u32,
    /// Rows a rank.
    pub(super) lanes: u32,
    /// A row is at least this high, even if not all ranks are in sight then.
    pub(super) least: f64,
    /// Some rows stand for several ranks.
    pub(super) several: bool,
}

impl Rows {
    /// The height of a rank's rows: what is there is shared, within reason.
    pub(super) fn rank_height(self, height: f64) -> f64 {
        let lanes = f64::from(self.lanes.max(1));
        let shared = (height - AXIS) / f64::from(self.count.max(1));
        shared.clamp(3.0, (18.0 * lanes).max(72.0)).max(self.least * lanes)
    }

    /// The height of one row.
    pub(super) fn lane_height(self, height: f64) -> f64 {
        (self.rank_height(height) - 3.0) / f64::from(self.lanes.max(1))
    }

    /// The number of ranks that fit.
    pub(super) fn visible(self, height: f64) -> u32 {
        let fit = ((height - AXIS) / self.rank_height(height)).floor().max(1.0) as u32;
        self.count.min(fit)
    }

    /// True if texts can be read in the rows.
    pub(super) fn readable(self, height: f64) -> bool {
        self.lane_height(height) >= READABLE
    }

    /// True if the rows' full names fit beside them, false for short ones; `None` for no names.
    pub(super) fn named(self, width: f64, height: f64) -> Option<bool> {
        (self.lanes > 1 && self.readable(height)).then_some(width >= WIDE)
    }

    /// The width of what stands left of the rows.
    pub(super) fn gutter(self, width: f64, height: f64) -> f64 {
        let ranks = RANKS[usize::from(self.several)];
        match self.named(width, height) {
            None => ranks,
            Some(full) => ranks + NAMES[usize::from(!full)] - 10.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_the_room_and_never_get_too_low_to_read_when_they_must_not() {
        let rows = Rows { count: 4, lanes: 4, least: 0.0, several: false };
        assert_eq!(rows.visible(220.0), 4);
        assert!(rows.readable(220.0) && !Rows { count: 64, ..rows }.readable(220.0));
        let read = Rows { count: 64, least: 12.0, ..rows };
        assert!(read.readable(220.0) && read.visible(220.0) == 4);
        assert!(read.gutter(1000.0, 220.0) > read.gutter(400.0, 220.0));
        let one = Rows { lanes: 1, ..rows };
        assert_eq!(one.gutter(1000.0, 220.0), RANKS[0], "a single row needs no name");
    }
}
