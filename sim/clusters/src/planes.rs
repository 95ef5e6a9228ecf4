//! Planes: networks of their own, each with its leaves and spine, over which every NIC spreads its bytes evenly.
//!
//! A plane that is down is left out, and the others carry its part too. A plane that is slow is not: its part
//! still goes over it, so that all wait for the slowest.

/// The most planes of a network.
pub(crate) const MOST_PLANES: u32 = 16;

/// The planes of a network, and the rate that is left of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planes {
    count: u32,
    /// Parts of the rate; 0 of a plane that is down, and behind the last.
    rates: [f64; MOST_PLANES as usize],
}

impl Planes {
    /// So many planes in order, [`MOST_PLANES`] at most.
    pub(crate) fn new(count: u32) -> Planes {
        let count = count.clamp(1, MOST_PLANES);
        let mut rates = [0.0; MOST_PLANES as usize];
        rates.iter_mut().take(count as usize).for_each(|rate| *rate = 1.0);
        Planes { count, rates }
    }

    /// The number of planes.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Leaves no more than this part of a plane's rate; 0 for a plane that is down.
    pub(crate) fn slow(&mut self, plane: u32, rate: f64) {
        if let Some(known) = self.rates.get_mut(plane as usize) {
            *known = known.min(rate);
        }
    }

    fn up(&self) -> impl Iterator<Item = f64> {
        self.rates.into_iter().filter(|rate| *rate > 0.0)
    }

    /// The part of the slowest plane's rate that is left, of those that are not down.
    fn slowest(&self) -> f64 {
        self.up().fold(1.0, f64::min)
    }

    /// True if every plane is down.
    pub(crate) fn all_are_down(&self) -> bool {
        self.up().next().is_none()
    }

    /// The part of the network's rate that is left: each plane that is up carries as much as the slowest can.
    #[must_use]
    pub(crate) fn left(&self) -> f64 {
        let up: f64 = self.up().map(|_| 1.0).sum();
        self.slowest() * up / f64::from(self.count)
    }

    /// The load of a plane's links where those of the slowest plane have `load`.
    pub(crate) fn load(&self, plane: u32, load: f64) -> f64 {
        match self.rates.get(plane as usize) {
            Some(rate) if *rate > 0.0 => load * self.slowest() / rate,
            _ => 0.0,
        }
    }
}
