//! Calibration by measured points: what they say about latency and rates corrects every prediction.

use crate::choice::{NoChoice, float};
use crate::collective::Collective;
use crate::expected::expected_parts;
use crate::model::Parts;
use crate::placement::Placement;
use crate::quantity::{bytes_text, us_text};
use crate::settings::Settings;

/// A correction of the model's times at other sizes, from measured points.
///
/// The logarithm of measured over modelled time is taken to be a factor on the latency, a factor on
/// the transfer, a smooth remainder over size, and bumps such as those at a switch of protocol (a Gaussian
/// process with the covariances of [`Kernel`]); the given points narrow them. The variances were fitted on the
/// public tables: a point says much about sizes near it, and little about others. A point speaks less for another
/// collective, for another number of nodes and of ranks on each, and least for one node if it was
/// measured over several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// The given points and the weight of each in a prediction.
    sites: Vec<(Site, f64)>,
    kernel: Kernel,
}

/// A point as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Site {
    /// Share of latency in the modelled time.
    latency: f64,
    /// Base-2 logarithm of the size.
    size: f64,
    /// Base-2 logarithms of the nodes (domains of NVLink) and of the ranks on each.
    nodes: f64,
    per_node: f64,
    collective: Collective,
}

/// A measured time, with where it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The placement of its ranks.
    pub placement: Placement,
    /// The collective that was measured.
    pub collective: Collective,
    /// Size, as nccl-tests counts it.
    pub bytes: u64,
    /// Microseconds.
    pub us: f64,
}

/// A measured time that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GivenError {
    /// Faster than the links.
    #[error(
        "{} in {} would be {bus_gbps:.0} GB/s of bus bandwidth, and the {links} carry {most_gbps:.0} \
         GB/s at most: is it another size, another unit, or another number of nodes?",
        bytes_text(*bytes), us_text(*us)
    )]
    TooFast {
        /// The size.
        bytes: u64,
        /// The time, microseconds.
        us: f64,
        /// The bus bandwidth of both, GB/s.
        bus_gbps: f64,
        /// The links that are too slow for it.
        links: &'static str,
        /// Their most, GB/s.
        most_gbps: f64,
    },
    /// Faster than a kernel starts.
    #[error("{} in {}: no call takes less than {LEAST_US} µs", bytes_text(*bytes), us_text(*us))]
    TooShort {
        /// The size.
        bytes: u64,
        /// The time, microseconds.
        us: f64,
    },
    /// Two times that cannot both be.
    #[error(
        "{} in {} contradicts {} in {}: leave one of them out",
        bytes_text(one.0), us_text(one.1), bytes_text(other.0), us_text(other.1)
    )]
    Contradiction {
        /// A size and its time.
        one: (u64, f64),
        /// The same for another point.
        other: (u64, f64),
    },
}

/// The least time of a call: that of starting a kernel, microseconds.
const LEAST_US: f64 = 1.0;
/// Measured rates above those of data sheets that are believed: bursts, and NICs that were counted wrong.
const TOLERANCE: f64 = 1.1;
/// Times of one size that still agree, as a ratio.
const AGREE: f64 = 1.25;
/// A smaller call that takes so many times as long as a larger one contradicts it. Real tables have spikes of
/// eight times.
const SPIKE: f64 = 16.0;

/// Refuses a point that cannot have been measured.
///
/// # Errors
/// If it is faster than the links or than a kernel starts.
pub(crate) fn check_point(point: &Point) -> Result<(), GivenError> {
    let Point { placement, collective, bytes, us } = point;
    let (bytes, us) = (*bytes, *us);
    if us < LEAST_US {
        return Err(GivenError::TooShort { bytes, us });
    }
    let bus_gbps = float(bytes) / (us * 1000.0) * collective.bus_factor(placement.ranks);
    let card = &placement.card;
    // A switch that reduces carries a byte once where nccl-tests count two.
    let times =
        if card.switch.is_some() && *collective == Collective::AllReduce { 2.0 } else { 1.0 };
    let inside = ("links of a GPU", card.gpu_gbps() * times);
    let (ranks, local) = (f64::from(placement.ranks), f64::from(placement.per_domain));
    let outside = match collective {
        Collective::AllToAll => {
            placement.net_gbps / local * (ranks - 1.0) / (ranks - local).max(1.0)
        }
        // A tree over two nodes sends everything once, where nccl-tests count it twice.
        Collective::AllReduce if placement.domains == 2 => placement.net_gbps * 2.0,
        _ => placement.net_gbps,
    };
    let mut bounds = Vec::new();
    if placement.per_domain > 1 {
        bounds.push(inside);
    }
    if placement.domains > 1 {
        bounds.push(("NICs of a node", outside));
    }
    for (links, most_gbps) in bounds {
        if bus_gbps > most_gbps * TOLERANCE {
            return Err(GivenError::TooFast { bytes, us, bus_gbps, links, most_gbps });
        }
    }
    Ok(())
}

/// Refuses points that cannot have been measured together.
///
/// # Errors
/// If one cannot be, or two of one placement and collective contradict each other.
pub fn check_points(points: &[Point]) -> Result<(), GivenError> {
    for (at, point) in points.iter().enumerate() {
        check_point(point)?;
        for known in &points[..at] {
            if known.collective != point.collective || known.placement != point.placement {
                continue;
            }
            let in_order = known.bytes <= point.bytes;
            let (less, more) = if in_order { (known, point) } else { (point, known) };
            let slower = less.us / more.us;
            let is_same = less.bytes == more.bytes;
            if slower > SPIKE || is_same && !(1.0 / AGREE..=AGREE).contains(&slower) {
                let (one, other) = ((less.bytes, less.us), (more.bytes, more.us));
                return Err(GivenError::Contradiction { one, other });
            }
        }
    }
    Ok(())
}

/// Variance of the factors of latency and of transfer, which grows with the square of the given points, and its
/// most: one or two points cannot tell a slow machine from a bump, many can.
const FACTORS: f64 = 0.0025;
const MOST_FACTORS: f64 = 0.1;
/// Variances of the remainder and of a bump, with their reach in powers of two; and of a measurement.
const REMAINDER: f64 = 0.05;
const REACH: f64 = 2.0;
const BUMP: f64 = 0.05;
const BUMP_REACH: f64 = 0.7;
const NOISE: f64 = 0.001;
/// Weight of a point for another collective, and for one node where it was measured over several.
const OTHER_COLLECTIVE: f64 = 0.5;
const OTHER_REACH: f64 = 0.3;
/// Powers of two of nodes, and of ranks on each, over which a point says less and less.
const NODES_REACH: f64 = 3.0;

impl Site {
    fn new(placement: &Placement, collective: Collective, parts: Parts, bytes: f64) -> Self {
        let transfer = parts.transfer_us;
        let latency = (parts.time_us() - transfer).max(0.0);
        let log = |count: u32| libm::log2(f64::from(count.max(1)));
        Self {
            latency: latency / (latency + transfer).max(1e-9),
            size: libm::log2(bytes.max(1.0)),
            nodes: log(placement.domains),
            per_node: log(placement.per_domain),
            collective,
        }
    }

    /// Likeness of two placements and collectives, as a weight: 1 for the same.
    fn likeness(self, other: Self) -> f64 {
        let near = |apart: f64| libm::exp(-0.5 * apart * apart);
        let nodes = near((self.nodes - other.nodes) / NODES_REACH);
        let per_node = near((self.per_node - other.per_node) / NODES_REACH);
        let reach = if (self.nodes > 0.0) == (other.nodes > 0.0) { 1.0 } else { OTHER_REACH };
        let same = if self.collective == other.collective { 1.0 } else { OTHER_COLLECTIVE };
        nodes * per_node * reach * same
    }
}

/// The covariances of what points say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kernel {
    /// Variance of the factors of latency and of transfer.
    factors: f64,
}

impl Kernel {
    fn new(points: usize) -> Self {
        let count = (0..points).fold(0.0, |sum, _| sum + 1.0);
        Self { factors: MOST_FACTORS.min(FACTORS * count * count) }
    }

    fn covariance(self, one: Site, other: Site) -> f64 {
        let near = |apart: f64| libm::exp(-0.5 * apart * apart);
        let apart = one.size - other.size;
        let shares = one.latency * other.latency + (1.0 - one.latency) * (1.0 - other.latency);
        let own = self.factors * shares
            + REMAINDER * near(apart / REACH)
            + BUMP * near(apart / BUMP_REACH);
        own * one.likeness(other)
    }
}

impl Calibration {
    /// The time of a call of `bytes`, microseconds.
    #[must_use]
    pub fn time_us(
        &self,
        placement: &Placement,
        collective: Collective,
        parts: Parts,
        bytes: f64,
    ) -> f64 {
        parts.time_us() * self.factor(placement, collective, parts, bytes)
    }

    /// Factor to multiply the model's time by, from the points; 1 without points.
    #[must_use]
    pub fn factor(
        &self,
        placement: &Placement,
        collective: Collective,
        parts: Parts,
        bytes: f64,
    ) -> f64 {
        let here = Site::new(placement, collective, parts, bytes);
        let shift: f64 =
            self.sites.iter().map(|(site, at)| self.kernel.covariance(*site, here) * at).sum();
        libm::exp(shift.clamp(-5.0, 5.0))
    }

    /// Learns from `given`: bytes and measured microseconds.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn fit(
        placement: &Placement,
        settings: &Settings,
        collective: Collective,
        given: &[(u64, f64)],
    ) -> Result<Self, NoChoice> {
        let point = |&(bytes, us): &(u64, f64)| Point {
            placement: placement.clone(),
            collective,
            bytes,
            us,
        };
        let points: Vec<Point> = given.iter().map(point).collect();
        Self::of_points(settings, &points)
    }

    /// Learns from points of any collectives and placements.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn of_points(settings: &Settings, points: &[Point]) -> Result<Self, NoChoice> {
        let mut sites = Vec::new();
        let mut errors = Vec::new();
        for Point { placement, collective, bytes, us } in points {
            let parts = expected_parts(placement, settings, *collective, *bytes)?;
            sites.push(Site::new(placement, *collective, parts, float(*bytes)));
            errors.push(libm::log(us / parts.time_us()));
        }
        let kernel = Kernel::new(sites.len());
        let weights = solve(kernel, &sites, errors);
        Ok(Self { sites: sites.into_iter().zip(weights).collect(), kernel })
    }
}

/// Solves `(covariances + noise) · weights = errors` by elimination; the matrix is positive.
fn solve(kernel: Kernel, sites: &[Site], mut errors: Vec<f64>) -> Vec<f64> {
    let mut rows: Vec<Vec<f64>> = sites
        .iter()
        .enumerate()
        .map(|(row, one)| {
            let noise = |column| if column == row { NOISE } else { 0.0 };
            sites
                .iter()
                .enumerate()
                .map(|(at, it)| kernel.covariance(*one, *it) + noise(at))
                .collect()
        })
        .collect();
    for pivot in 0..rows.len() {
        let (above, below) = rows.split_at_mut(pivot + 1);
        let Some(pivot_row) = above.last() else { break };
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = row[pivot] / pivot_row[pivot];
            for (cell, upper) in row.iter_mut().zip(pivot_row).skip(pivot) {
                *cell -= factor * upper;
            }
            errors[pivot + 1 + offset] -= factor * errors[pivot];
        }
    }
    for row in (0..rows.len()).rev() {
        let known: f64 =
            (row + 1..rows.len()).map(|column| rows[row][column] * errors[column]).sum();
        errors[row] = (errors[row] - known) / rows[row][row];
    }
    errors
}
