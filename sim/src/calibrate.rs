//! From measured times to a topology: the parameters with which the simulator's times of the same plans come
//! closest to the measured ones.
//!
//! The simulator itself is fitted, not a formula beside it: every candidate is simulated, with the plans that
//! were run and their times read from the traces in the same way. Distance is a sum of how many times too
//! long or too short they are, so that a call of 1 µs counts as much as one of 100 ms. Outliers count by
//! their distance and not by its square, so that one disturbed measurement bends little else. The search is a
//! pattern search, from several starts (Hooke and Jeeves 1961) by factors: no derivatives, nothing random.

use crate::config::SimConfig;
use crate::engine::simulate;
use crate::link::Link;
use crate::shared_memory::SharedMemory;
use crate::topology::Topology;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder, PlanError};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Trace, What};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Calls that a candidate is simulated with: the first ones find the ranks together.
const SIMULATED_CALLS: u32 = 3;

/// The parameters from this one on are bytes that fit into caches …
const FIRST_KNEE: usize = 8;

/// … which move by at most this factor at once.
const KNEE_FACTOR: f64 = 1.2;

/// Distances up to about this count by their squares, which a search finds its way down; larger ones
/// by themselves.
const NEAR: f64 = 0.05;

/// Factors by which the search multiplies or divides a parameter; the last are smaller than
/// measurements can show.
const FACTORS: [f64; 9] = [4.0, 2.0, 1.4, 1.2, 1.1, 1.05, 1.02, 1.007, 1.002];

/// Divisors of a cache's size that give the bytes that ranks' calls may touch before the cache is too small:
/// it holds the bytes' source and target, and data of other processes.
const CACHE_SHARES: [u64; 3] = [2, 4, 8];

/// Rounds with one factor: a search that gains less and less ends all the same.
const MOST_ROUNDS: u32 = 30;

/// The collectives that are measured: one that stores, one that adds, one that does both, and one that keeps
/// one rank busy while the others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// float32, SUM, in place.
    AllReduce,
    /// From rank 0, after a barrier, as its root need not wait for anybody.
    Broadcast,
    /// All ranks' equal parts, gathered on every rank.
    AllGather,
}

impl Probe {
    /// All of them.
    pub const ALL: [Probe; 3] = [Probe::AllReduce, Probe::Broadcast, Probe::AllGather];

    /// torch.distributed's name.
    pub fn name(self) -> &'static str {
        match self {
            Probe::AllReduce => "all_reduce",
            Probe::Broadcast => "broadcast",
            Probe::AllGather => "all_gather",
        }
    }
}

/// A call that is timed: `bytes` is the whole buffer, as nccl-tests counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// The collective.
    pub probe: Probe,
    /// float32 elements' bytes.
    pub bytes: u64,
}

impl Point {
    /// A plan of so many calls one after the other.
    ///
    /// # Errors
    /// When there cannot be so many ranks.
    pub fn plan(
        self,
        backend: BackendName,
        world_size: u32,
        calls: u32,
    ) -> Result<Plan, PlanError> {
        let count = (self.bytes / 4).max(1);
        let part = count.div_ceil(u64::from(world_size.max(1)));
        let name = format!("calibrate {}", self.probe.name());
        let mut plan = PlanBuilder::new(name, world_size, backend)?;
        // Zeros: sums of them do not overflow, however many calls.
        let mut tensor =
            |name: &str, numel| Some(plan.tensor(name, Dtype::Float32, numel, Fill::Zeros));
        let whole = part.saturating_mul(u64::from(world_size));
        let (collective, count, input, output) = match self.probe {
            Probe::AllReduce => {
                let sum = Collective::AllReduce { op: ReduceOp::Sum };
                (sum, count, None, tensor("t", count))
            }
            Probe::Broadcast => {
                (Collective::Broadcast { root: GroupRank(0) }, count, None, tensor("t", count))
            }
            Probe::AllGather => {
                (Collective::AllGather, part, tensor("in", part), tensor("out", whole))
            }
        };
        let broadcast = self.probe == Probe::Broadcast;
        plan.every_rank(|_, program| {
            for _ in 0..calls {
                if broadcast {
                    program.barrier(GroupId::WORLD);
                }
                program.collective(GroupId::WORLD, collective, count, input, output);
            }
        })
    }

    /// The median time of a plan's calls but for the first `skipped`, in picoseconds. A call's time is the
    /// mean over its ranks, as nccl-tests reports it (if ranks take turns on cores, the first rank changes
    /// from call to call). `None` if the trace has no such call.
    pub fn call_ps(self, trace: &Trace, skipped: u32) -> Option<u64> {
        let ops_a_call = 1 + u32::from(self.probe == Probe::Broadcast);
        let mut began: BTreeMap<(GlobalRank, u32), u64> = BTreeMap::new();
        let mut took: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for event in &trace.events {
            match event.what {
                What::OpBegan { op } => {
                    began.insert((event.rank, op), event.time_ps);
                }
                What::OpEnded { op } => {
                    let since = began.get(&(event.rank, op)).copied().unwrap_or(event.time_ps);
                    let (sum, ranks) = took.entry(op).or_default();
                    *sum = sum.saturating_add(event.time_ps.saturating_sub(since));
                    *ranks += 1;
                }
                _ => {}
            }
        }
        let measured = |op: &u32| op / ops_a_call >= skipped && op % ops_a_call + 1 == ops_a_call;
        let taken = took.into_iter().filter(|(op, _)| measured(op));
        median(taken.map(|(_, (sum, ranks))| sum / ranks.max(1)).collect())
    }

    /// The time of one call in the simulator, in picoseconds.
    pub fn simulated_ps(
        self,
        topology: Topology,
        backend: BackendName,
        world_size: u32,
    ) -> Option<u64> {
        let plan = self.plan(backend, world_size, SIMULATED_CALLS).ok()?;
        self.simulated_plan_ps(&plan, topology)
    }

    fn simulated_plan_ps(self, plan: &Plan, topology: Topology) -> Option<u64> {
        let config = SimConfig {
            topology,
            max_value_bytes: 0,
            record_messages: false,
            ..SimConfig::default()
        };
        self.call_ps(&simulate(plan, &config).ok()?, SIMULATED_CALLS - 1)
    }
}

/// The middle one; `None` if there are none.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// A measured point and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The point.
    #[serde(flatten)]
    pub point: Point,
    /// The time of a call, in picoseconds.
    pub call_ps: u64,
}

/// The model whose parameters are to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// One link between every two ranks: a latency and a bandwidth.
    Link,
    /// Ranks that share a machine's memory and its cores.
    SharedMemory {
        /// The machine's cores.
        cores: u32,
        /// Its caches: of a core, and of all.
        caches: [u64; 2],
    },
}

/// The reason that there is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// Too few measurements to determine the parameters.
    #[error("{points} points are too few for {parameters} parameters; measure more sizes")]
    TooFew {
        /// Points that were measured.
        points: usize,
        /// Parameters of the model.
        parameters: usize,
    },
    /// There cannot be so many ranks.
    #[error("there is no plan of {0} ranks to measure")]
    NoPlan(u32),
    /// No parameters that a machine can have lead to such times.
    #[error(
        "calls that took up to {} s fit no machine: this one was too busy to be measured; calibrate again \
         when it has less to do, or with more --rounds, of which the fastest counts",
        slowest_ps / 1_000_000_000_000
    )]
    NoMachine {
        /// The longest time that was measured, in picoseconds.
        slowest_ps: u64,
    },
}

/// Finds the topology on which the simulator takes the times that were measured with so many ranks
/// of a backend. Points that took no time at all are left out.
///
/// # Errors
/// When there are fewer points than parameters, or the times are none that a machine can have.
pub fn fit(
    model: Model,
    backend: BackendName,
    world_size: u32,
    measured: &[Measured],
) -> Result<Topology, FitError> {
    let mut search = Search { model, points: Vec::new() };
    for measured in measured.iter().filter(|measured| measured.call_ps > 0) {
        let plan = measured.point.plan(backend, world_size, SIMULATED_CALLS);
        let plan = plan.map_err(|_| FitError::NoPlan(world_size))?;
        search.points.push((measured.point, plan, measured.call_ps));
    }
    let parameters = model.parameters();
    if search.points.len() < parameters {
        return Err(FitError::TooFew { points: search.points.len(), parameters });
    }
    let slowest_ps = search.points.iter().map(|(_, _, took)| *took).max().unwrap_or_default();
    search.find().ok_or(FitError::NoMachine { slowest_ps })
}

impl Model {
    /// The number of parameters to find: at least as many points have to be measured.
    pub fn parameters(self) -> usize {
        match self {
            Model::Link => 2,
            Model::SharedMemory { .. } => 10,
        }
    }

    /// The topology of some parameters, all of them at least 1 and in whole units.
    fn topology(self, at: &[u64]) -> Topology {
        let of = |index: usize| at.get(index).copied().unwrap_or(1);
        match self {
            Model::Link => Topology::Uniform(Link { latency_ps: of(0), bytes_per_second: of(1) }),
            Model::SharedMemory { cores, .. } => Topology::SharedMemory(SharedMemory {
                cores,
                latency_ps: of(0),
                call_ps: of(1),
                store_bytes_per_second: [of(2), of(3), of(4)],
                reduce_bytes_per_second: [of(5), of(6), of(7)],
                cached_bytes: [of(8), of(8).saturating_add(of(9))],
            }),
        }
    }

    /// True if a parameter is tried at this factor. The sizes of caches are searched only nearby, because
    /// sizes far away fit as well with wrong rates.
    fn goes(self, index: usize, factor: f64) -> bool {
        index < FIRST_KNEE || factor <= KNEE_FACTOR
    }

    /// The starting points of searches: a microsecond, the copy rate of a current core, and, because the
    /// search finds no way from one cache's share to another's, several of those.
    fn starts(self) -> Vec<Vec<u64>> {
        const RATE: u64 = 10_000_000_000;
        match self {
            Model::Link => vec![vec![1_000_000, RATE]],
            Model::SharedMemory { caches: [own, shared], .. } => {
                let start = |(own, shared): (u64, u64)| {
                    let rates = [10 * RATE, 5 * RATE, 2 * RATE, 4 * RATE, 3 * RATE, RATE];
                    let knees = [own.max(1), shared.saturating_sub(own).max(1)];
                    [500_000, 500_000].into_iter().chain(rates).chain(knees).collect()
                };
                let shares = CACHE_SHARES.into_iter();
                let knees = shares.flat_map(|of_own| {
                    CACHE_SHARES.map(|of_shared| (own / of_own, shared / of_shared))
                });
                knees.map(start).collect()
            }
        }
    }
}

struct Search {
    model: Model,
    /// The measured points, each with its plan and the time of a call.
    points: Vec<(Point, Plan, u64)>,
}

#[allow(clippy::float_arithmetic, reason = "fitting")]
impl Search {
    /// Distance of the simulator from the measurements: infinite where a call does not complete
    /// within its group's timeout, as on a machine that is slower than any.
    fn distance(&self, at: &[u64]) -> f64 {
        let topology = self.model.topology(at);
        let mut sum = 0.0;
        for (point, plan, took) in &self.points {
            let Some(simulated) = point.simulated_plan_ps(plan, topology) else {
                return f64::INFINITY;
            };
            let simulated = simulated.max(1) as f64;
            let took = *took as f64;
            // As far for twice as for half: the hyperbolic sine of the ratio's logarithm.
            let off = (simulated / took - took / simulated) / 2.0 / NEAR;
            sum += (1.0 + off * off).sqrt() - 1.0;
        }
        sum
    }

    /// The best that is found from any start; `None` if none leads anywhere.
    fn find(&self) -> Option<Topology> {
        let found = self.model.starts().into_iter().map(|at| self.find_from(at));
        let best = found.min_by(|one, other| one.0.total_cmp(&other.0))?;
        best.0.is_finite().then(|| self.model.topology(&self.settled(best)))
    }

    /// Gives rates that no measured call depends on, such as those of sizes beyond the largest, the value of
    /// the next smaller sizes: the search's starting value was never measured.
    fn settled(&self, (best, mut at): (f64, Vec<u64>)) -> Vec<u64> {
        let Model::SharedMemory { .. } = self.model else { return at };
        for rate in [3, 4, 6, 7] {
            let mut other = at.clone();
            other[rate] = (other[rate] / 2).max(1);
            if self.distance(&other).total_cmp(&best).is_eq() {
                at[rate] = at[rate - 1];
            }
        }
        at
    }

    /// The result of a search from `at`: its distance, and the parameters it ends with.
    fn find_from(&self, mut at: Vec<u64>) -> (f64, Vec<u64>) {
        let mut best = self.distance(&at);
        for factor in FACTORS {
            for _ in 0..MOST_ROUNDS {
                let (before, from) = (best, at.clone());
                for index in (0..at.len()).filter(|index| self.model.goes(*index, factor)) {
                    for by in [factor, 1.0 / factor] {
                        best = self.go(&mut at, index, by, best);
                    }
                }
                best = self.go_on(&mut at, &from, best);
                // Finer once this step gains little.
                if best > before * 0.995 {
                    break;
                }
            }
        }
        (best, at)
    }

    /// Goes on the way that a round has taken all parameters, for as long as that comes closer: along
    /// a valley that no single parameter leads through.
    fn go_on(&self, at: &mut Vec<u64>, from: &[u64], mut best: f64) -> f64 {
        let way = at.iter().zip(from).map(|(is, was)| *is as f64 / (*was).max(1) as f64);
        let way: Vec<f64> = way.collect();
        loop {
            let ahead = at.iter().zip(&way).map(|(value, by)| scaled(*value, *by));
            let ahead: Vec<u64> = ahead.collect();
            match self.distance(&ahead) {
                closer if closer < best => (best, *at) = (closer, ahead),
                _ => return best,
            }
        }
    }

    /// Multiplies a parameter for as long as that comes closer; returns how close.
    fn go(&self, at: &mut [u64], index: usize, by: f64, mut best: f64) -> f64 {
        loop {
            let held = at[index];
            at[index] = scaled(held, by);
            match self.distance(at) {
                closer if closer < best => best = closer,
                _ => {
                    at[index] = held;
                    return best;
                }
            }
        }
    }
}

/// A parameter times a factor: in whole units, at least 1, and within the range of real machines.
#[allow(clippy::float_arithmetic, reason = "fitting")]
fn scaled(value: u64, by: f64) -> u64 {
    (value as f64 * by).clamp(1.0, 1e15) as u64
}
