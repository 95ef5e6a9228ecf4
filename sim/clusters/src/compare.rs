//! Predictions beside a table's measured times, and the medians over many tables.

use crate::catalog::{Catalog, CatalogError, PlaceError};
use crate::choice::{NoChoice, float};
use crate::cluster::Cluster;
use crate::collective::Collective;
use crate::given::{Calibration, GivenError, Point, check_points};
use crate::placement::Placement;
use crate::predict::{Prediction, predict};
use crate::recognised::{Recognised, Understood};
use crate::settings::Settings;
use crate::table::Table;

/// From this size on a time counts as bandwidth-bound in the medians, bytes.
pub const LARGE_BYTES: u64 = 16 << 20;

/// A table's machine, as the catalogue knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The cluster.
    pub cluster: Cluster,
    /// Its ranks.
    pub placement: Placement,
    /// NCCL's variables.
    pub settings: Settings,
    /// The collective that was asked for.
    pub collective: Collective,
    /// The reading of a table's header, in sentences; empty where nobody had to guess.
    pub understood: Understood,
}

/// A measured point and its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The prediction.
    pub prediction: Prediction,
    /// The measured time, microseconds.
    pub measured_us: f64,
}

impl Compared {
    /// Predicted over measured time, less one.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.prediction.time_us / self.measured_us - 1.0
    }
}

/// The reason that a table cannot be compared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// The machine is not known, or does not hold the ranks.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The settings leave no choice.
    #[error(transparent)]
    NoChoice(#[from] NoChoice),
    /// A measured time cannot be.
    #[error(transparent)]
    Given(#[from] GivenError),
}

impl From<CatalogError> for CompareError {
    fn from(error: CatalogError) -> Self {
        Self::Place(error.into())
    }
}

impl Site {
    /// The machine of `table`.
    ///
    /// # Errors
    /// If the catalogue does not know it.
    pub fn of_table(catalog: &Catalog, table: &Table) -> Result<Self, CompareError> {
        let Recognised { cluster, understood } = table.recognise(catalog)?;
        let per_node = table.ranks_per_node();
        let mut placement = catalog.place(&cluster, u64::from(table.nodes), per_node)?;
        placement.launcher = table.launcher();
        table.adjust(&mut placement.card);
        let settings = table.environment();
        Ok(Self { cluster, placement, settings, collective: table.collective, understood })
    }

    /// The prediction for a size.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn predict(&self, bytes: u64, calibration: &Calibration) -> Result<Prediction, NoChoice> {
        predict(&self.placement, &self.settings, self.collective, bytes, calibration)
    }

    /// Points (bytes, microseconds) that were given for this machine.
    ///
    /// # Errors
    /// If they cannot have been measured.
    pub fn given(&self, points: &[(u64, f64)]) -> Result<Vec<Point>, GivenError> {
        let point = |&(bytes, us): &(u64, f64)| {
            let (placement, collective) = (self.placement.clone(), self.collective);
            Point { placement, collective, bytes, us }
        };
        let points: Vec<Point> = points.iter().map(point).collect();
        check_points(&points)?;
        Ok(points)
    }

    /// Fits the model's correction for this machine to `given` points (bytes, microseconds), which are believed.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn calibrate(&self, given: &[(u64, f64)]) -> Result<Calibration, NoChoice> {
        Calibration::fit(&self.placement, &self.settings, self.collective, given)
    }

    /// True if no measured table of such a machine backs a prediction for it.
    #[must_use]
    pub fn extrapolated(&self) -> bool {
        !self.cluster.backs(self.collective, self.placement.domains)
    }

    /// True if no measured table of such a machine backs a prediction for a call of `bytes`: none at all, or none
    /// of about that size.
    #[must_use]
    pub fn extrapolated_at(&self, bytes: u64) -> bool {
        !self.cluster.backs_size(self.collective, self.placement.domains, bytes)
    }

    /// Every point of `table` with its prediction.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn compare(
        &self,
        table: &Table,
        calibration: &Calibration,
    ) -> Result<Vec<Compared>, NoChoice> {
        let one = |(bytes, measured_us): &(u64, f64)| {
            let prediction = self.predict(*bytes, calibration)?;
            Ok(Compared { prediction, measured_us: *measured_us })
        };
        table.points.iter().map(one).collect()
    }
}

/// Mean absolute error of the points that `counts` keeps; none if it keeps none.
#[must_use]
pub fn mean_error(points: &[Compared], counts: impl Fn(u64) -> bool) -> Option<f64> {
    let errors = points.iter().filter(|one| counts(one.prediction.bytes));
    let (sum, count) =
        errors.fold((0.0, 0.0), |(sum, count), one| (sum + one.error().abs(), count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The point with the largest absolute error.
#[must_use]
pub fn worst(points: &[Compared]) -> Option<&Compared> {
    points.iter().max_by(|one, other| one.error().abs().total_cmp(&other.error().abs()))
}

/// The errors of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Mean over sizes below [`LARGE_BYTES`].
    pub small: Option<f64>,
    /// Mean over sizes from [`LARGE_BYTES`] up.
    pub large: Option<f64>,
    /// Mean over all sizes but the two that calibrated it: those nearest 1 MiB and 256 MiB.
    pub calibrated: Option<f64>,
}

impl Errors {
    /// The errors of `table`.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn of_table(site: &Site, table: &Table) -> Result<Self, NoChoice> {
        let points = site.compare(table, &Calibration::default())?;
        let given: Vec<(u64, f64)> =
            [1 << 20, 256 << 20].iter().filter_map(|size| nearest_point(table, *size)).collect();
        let calibrated = site.compare(table, &site.calibrate(&given)?)?;
        let judged = |bytes| given.iter().all(|(size, _)| *size != bytes);
        Ok(Self {
            small: mean_error(&points, |bytes| bytes < LARGE_BYTES),
            large: mean_error(&points, |bytes| bytes >= LARGE_BYTES),
            calibrated: mean_error(&calibrated, judged),
        })
    }
}

fn nearest_point(table: &Table, size: u64) -> Option<(u64, f64)> {
    let distance = |bytes: u64| (libm::log2(float(bytes)) - libm::log2(float(size))).abs();
    table.points.iter().copied().min_by(|one, other| distance(one.0).total_cmp(&distance(other.0)))
}

/// A group of tables whose median error is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// all_reduce on one node of H100 or H200.
    HopperNode,
    /// One node of A100.
    AmpereNode,
    /// One node of anything else.
    OtherNode,
    /// all_reduce, all_gather or reduce_scatter over several nodes.
    Nodes,
    /// all_to_all over several nodes.
    NodesAllToAll,
    /// Other collectives: told, without a floor.
    Other,
}

impl Class {
    /// The group of a table.
    #[must_use]
    pub fn of(site: &Site) -> Self {
        let card = site.placement.card.name.as_str();
        let several = site.placement.domains > 1;
        match site.collective {
            Collective::AllToAll if several => Self::NodesAllToAll,
            Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter
                if several =>
            {
                Self::Nodes
            }
            _ if several => Self::Other,
            Collective::AllReduce if card == "h100" || card == "h200" => Self::HopperNode,
            _ if card == "a100" || card == "a100-mesh" => Self::AmpereNode,
            _ if card == "h100" || card == "h200" => Self::Other,
            _ => Self::OtherNode,
        }
    }

    /// Its name, and the median error that is aimed at, if there is one.
    #[must_use]
    pub const fn goal(self) -> (&'static str, Option<f64>) {
        match self {
            Self::HopperNode => ("all_reduce on one node of H100 or H200, from 16 MiB", Some(0.05)),
            Self::AmpereNode => ("one node of A100, from 16 MiB", Some(0.08)),
            Self::OtherNode => ("one node of other cards, from 16 MiB", Some(0.15)),
            Self::Nodes => {
                ("all_reduce, all_gather, reduce_scatter over nodes, from 16 MiB", Some(0.15))
            }
            Self::NodesAllToAll => ("alltoall over nodes, from 16 MiB", Some(0.20)),
            Self::Other => ("other collectives, from 16 MiB", None),
        }
    }

    /// All groups.
    pub const ALL: [Self; 6] = [
        Self::HopperNode,
        Self::AmpereNode,
        Self::OtherNode,
        Self::Nodes,
        Self::NodesAllToAll,
        Self::Other,
    ];
}

/// The median; none of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied()?;
    if values.len() % 2 == 1 {
        Some(upper)
    } else {
        values.get(middle - 1).map(|lower| (lower + upper) / 2.0)
    }
}
