//! Changes the plan of a job, and simulates and analyses both plans alike.

use crate::between::{is_kernel, is_unseen};
use crate::buckets::rebucket;
use crate::rank_programs::set_program;
use crate::recover::Recovered;
use lockstep_analysis::{Activity, Analysis, NO_KERNEL, StepOps};
use lockstep_core::plan::{Action, Call, Op, Plan, Program};
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{Outcome, Trace};
use lockstep_core::watch::Watch;
use lockstep_core::words::rank_list;
use lockstep_sim::{Link, SimConfig, SimError, Topology, simulate_watched};
use serde::{Deserialize, Serialize};

/// Something that is otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Variation {
    /// A rank computes as fast as the others do.
    WithoutStraggler(GlobalRank),
    /// Computations and pauses of ranks take so many times as long. Of a rank with a profile these are its kernels: the
    /// time without one and the time outside of the profile stay.
    Scale {
        /// The ranks; all if empty.
        ranks: Vec<GlobalRank>,
        /// The factor.
        computing: f64,
    },
    /// Links have another rate or latency.
    Links {
        /// Which.
        which: Side,
        /// Bytes a second; as it is if absent.
        bytes_per_second: Option<u64>,
        /// In picoseconds; as it is if absent.
        latency_ps: Option<u64>,
    },
    /// Other links altogether.
    Topology(Topology),
    /// Collectives that it can carry out use this algorithm.
    Algorithm(Algorithm),
    /// DDP's buckets are cut anew, at so many bytes.
    BucketBytes(u64),
}

/// The links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Inside nodes.
    Inside,
    /// Between nodes; all links where there are no nodes.
    Across,
}

/// The reason that a job cannot be changed so.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VariationError {
    /// A rank that the job does not have.
    #[error("there is no rank {rank}: the job has {world_size} ranks, from 0")]
    NoRank {
        /// The rank.
        rank: GlobalRank,
        /// The number of ranks in the job.
        world_size: u32,
    },
    /// No other rank calls as the straggler does.
    #[error("rank {rank} is alone: no other rank tells how long it would compute")]
    Alone {
        /// The rank.
        rank: GlobalRank,
    },
    /// No collective of the job can be carried out by the algorithm.
    #[error("{algorithm} carries out none of the job's collectives")]
    NoCollective {
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// There are no nodes.
    #[error(
        "there are no links inside nodes: say with --ranks-per-node which ranks share one, or change inter"
    )]
    NoNodes,
    /// No step has asynchronous all_reduces.
    #[error("the job has no buckets of DDP: its steps have no asynchronous all_reduces")]
    NoBuckets,
    /// The job hangs as it is.
    #[error("the job does not complete as it is simulated: `lockstep sim` says why")]
    Hangs,
    /// The job hangs with the changes.
    #[error("with this change the job does not complete: its ranks no longer make the same calls")]
    HangsChanged,
    /// The other machine does not take the job.
    #[error("{0}")]
    Elsewhere(String),
    /// The plan cannot be simulated.
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// A job, simulated, before or after a change.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The simulation.
    pub trace: Trace,
    /// The analysis of the time that it took.
    pub analysis: Analysis,
}

impl Compared {
    fn of(
        plan: &Plan,
        config: SimConfig,
        steps: &StepOps,
        watch: &mut dyn Watch,
    ) -> Result<Compared, SimError> {
        let trace = simulate_watched(plan, &config, watch)?;
        let analysis = Analysis::with_steps(&Activity::of_trace(&trace), steps);
        Ok(Compared { trace, analysis })
    }

    fn completes(&self) -> bool {
        self.trace.end.as_ref().is_some_and(|end| end.outcome == Outcome::Completed)
    }
}

/// The machine that a plan is simulated on, where it depends on the plan: a cluster has a time for each of its calls.
/// Refused in a sentence.
pub type Elsewhere<'a> = dyn Fn(&Plan) -> Result<SimConfig, String> + 'a;

/// The job on its links before and after the changes, and what they assume. With `elsewhere` the changed job runs there.
/// Steps that are known from a recording are the same before and after; without them they are those of the plan as it is.
///
/// # Errors
/// When a change does not apply, or a plan cannot be simulated; [`SimError::Stopped`] of the simulation that the watch
/// ended.
pub fn what_if(
    (plan, steps): (&Plan, Option<&StepOps>),
    topology: Topology,
    variations: &[Variation],
    elsewhere: Option<&Elsewhere<'_>>,
    watch: &mut dyn Watch,
) -> Result<(Compared, Compared, Vec<String>), VariationError> {
    let on = |topology| SimConfig { topology, record_messages: false, ..SimConfig::default() };
    let simulated = simulate_watched(plan, &on(topology), watch)?;
    let activity = Activity::of_trace(&simulated);
    let mut steps = match steps {
        Some(steps) => steps.clone(),
        None => steps_of_plan(&activity),
    };
    let analysis = Analysis::with_steps(&activity, &steps);
    let before = Compared { trace: simulated, analysis };
    let mut changed = plan.clone();
    let mut links = topology;
    let mut assumed = Vec::new();
    for variation in variations {
        variation.apply((&mut changed, &mut steps), &mut links, &mut assumed)?;
    }
    changed.check().map_err(SimError::from)?;
    if !before.completes() {
        return Err(VariationError::Hangs);
    }
    let machine = match elsewhere {
        Some(elsewhere) => elsewhere(&changed).map_err(VariationError::Elsewhere)?,
        None => on(links),
    };
    let machine = SimConfig { record_messages: false, ..machine };
    let after = Compared::of(&changed, machine, &steps, watch)?;
    if !after.completes() {
        return Err(VariationError::HangsChanged);
    }
    Ok((before, after, assumed))
}

/// The steps of a recording, by the operations of the plan that was recovered from it; `activity` is of the same
/// recording.
pub fn recorded_steps(recovered: &Recovered, activity: &Activity) -> StepOps {
    StepOps::of(activity, |rank, at| {
        let call = activity.ranks.get(rank.index())?.calls.get(at)?;
        call.plan_op.or_else(|| recovered.calls.op_of_record(rank, at))
    })
}

/// The steps of a simulated plan, by its operations.
fn steps_of_plan(activity: &Activity) -> StepOps {
    StepOps::of(activity, |rank, at| activity.ranks.get(rank.index())?.calls.get(at)?.plan_op)
}

impl Variation {
    /// The change in words: `without straggler 3`.
    pub fn words(&self) -> String {
        match self {
            Variation::WithoutStraggler(rank) => {
                format!("rank {rank} computes as fast as the others")
            }
            Variation::Scale { ranks, computing } => {
                let ranks = match ranks.as_slice() {
                    [] => "all ranks compute".to_owned(),
                    [rank] => format!("rank {rank} computes"),
                    ranks => format!("ranks {} compute", rank_list(ranks)),
                };
                format!("{ranks} {computing} times as long")
            }
            Variation::Links { which, bytes_per_second, latency_ps } => {
                let which = if *which == Side::Inside { "inside nodes" } else { "between nodes" };
                let rate = bytes_per_second.map(|rate| format!("{:.3} GB/s", rate as f64 / 1e9));
                let latency = latency_ps.map(|ps| format!("{} µs", ps as f64 / 1e6));
                let parts: Vec<String> = rate.into_iter().chain(latency).collect();
                format!("links {which} have {}", parts.join(" and "))
            }
            Variation::Topology(topology) => format!("links: {topology}"),
            Variation::Algorithm(algorithm) => format!("collectives use {}", algorithm.name()),
            Variation::BucketBytes(bytes) => {
                format!("DDP's buckets have {:.1} MiB", *bytes as f64 / f64::from(1 << 20))
            }
        }
    }

    fn apply(
        &self,
        (plan, steps): (&mut Plan, &mut StepOps),
        links: &mut Topology,
        assumed: &mut Vec<String>,
    ) -> Result<(), VariationError> {
        match self {
            Variation::WithoutStraggler(rank) => without_straggler(plan, *rank)?,
            Variation::Scale { ranks, computing } => {
                assumed.extend(scale(plan, ranks, *computing)?);
            }
            Variation::Links { which, bytes_per_second, latency_ps } => {
                let link = match (links, which) {
                    (Topology::Uniform(link), Side::Across) => link,
                    (Topology::Nodes { inside, .. }, Side::Inside) => inside,
                    (Topology::Nodes { across, .. }, Side::Across) => across,
                    (Topology::Uniform(_) | Topology::SharedMemory(_), _) => {
                        return Err(VariationError::NoNodes);
                    }
                };
                *link = Link {
                    latency_ps: latency_ps.unwrap_or(link.latency_ps),
                    bytes_per_second: bytes_per_second.unwrap_or(link.bytes_per_second),
                };
            }
            Variation::Topology(topology) => *links = *topology,
            Variation::Algorithm(algorithm) => use_algorithm(plan, *algorithm)?,
            Variation::BucketBytes(bytes) => {
                let smallest = rebucket(plan, steps, *bytes).ok_or(VariationError::NoBuckets)?;
                assumed.push(
                    "gradients become ready evenly between the launches of two buckets".to_owned(),
                );
                if *bytes < smallest {
                    assumed.push(format!(
                        "no bucket is cut below the smallest recorded one, {:.2} MiB: DDP never splits a parameter, and \
                         the recording does not say how large the parameters are",
                        smallest as f64 / f64::from(1 << 20)
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Changes the program of every rank.
fn every_program(plan: &mut Plan, mut change: impl FnMut(GlobalRank, &mut Program)) {
    let before = plan.clone();
    plan.programs.clear();
    for rank in (0..before.world_size).map(GlobalRank) {
        let mut program = before.program(rank).cloned().unwrap_or_default();
        change(rank, &mut program);
        set_program(plan, rank, program);
    }
}

fn duration_of(op: &Op) -> Option<u64> {
    match &op.action {
        Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. } => {
            Some(*duration_ns)
        }
        _ => None,
    }
}

fn scale_op(op: &mut Op, factor: f64) {
    if let Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. } = &mut op.action
        // A rank that never goes on in the recording never does here.
        && *duration_ns < u64::MAX
    {
        *duration_ns = (*duration_ns as f64 * factor) as u64;
    }
}

/// Scales the computations of ranks; all of them if there are none. Of a rank with a profile these are its kernels, of
/// others all that they did between their calls. Returns what that assumes, in sentences.
fn scale(
    plan: &mut Plan,
    ranks: &[GlobalRank],
    factor: f64,
) -> Result<Vec<String>, VariationError> {
    for rank in ranks {
        check_rank(plan, *rank)?;
    }
    let (mut has_idle, mut has_unseen) = (false, false);
    let mut without_profile = Vec::new();
    every_program(plan, |rank, program| {
        if !ranks.is_empty() && !ranks.contains(&rank) {
            return;
        }
        let has_profile = program.ops.iter().any(is_kernel);
        if !has_profile && program.ops.iter().any(is_unseen) {
            without_profile.push(rank);
        }
        for op in &mut program.ops {
            match &op.action {
                Action::Compute { name, .. } if **name == *NO_KERNEL => has_idle = true,
                _ if has_profile && is_unseen(op) => has_unseen = true,
                _ => scale_op(op, factor),
            }
        }
    });
    let mut assumed = Vec::new();
    if has_idle {
        assumed.push(
            "the time in which a device had no kernel stays as it was recorded: only kernels are scaled"
                .to_owned(),
        );
    }
    if has_unseen {
        assumed.push(
            "the time outside of a rank's profile stays as it was recorded: which kernels ran then is not known"
                .to_owned(),
        );
    }
    if (has_idle || has_unseen) && !without_profile.is_empty() {
        let (ranks, have) = match without_profile.as_slice() {
            [rank] => (format!("rank {rank}"), "has"),
            several => (format!("ranks {}", rank_list(several)), "have"),
        };
        assumed.push(format!(
            "{ranks} {have} no profile: all of the time between two calls is scaled there"
        ));
    }
    Ok(assumed)
}

fn check_rank(plan: &Plan, rank: GlobalRank) -> Result<(), VariationError> {
    match rank.0 < plan.world_size {
        true => Ok(()),
        false => Err(VariationError::NoRank { rank, world_size: plan.world_size }),
    }
}

/// The time that a program computes before each of its calls, and behind the last one, in nanoseconds.
fn gaps(program: &Program) -> Vec<u64> {
    let mut gaps = vec![0u64];
    for op in &program.ops {
        if !op.action.calls().is_empty() {
            gaps.push(0);
        } else if let (Some(duration_ns), Some(gap)) = (duration_of(op), gaps.last_mut()) {
            *gap = gap.saturating_add(duration_ns);
        }
    }
    gaps
}

/// Makes the computations of a rank between two calls as long as the median of the ranks that make as many calls.
fn without_straggler(plan: &mut Plan, straggler: GlobalRank) -> Result<(), VariationError> {
    check_rank(plan, straggler)?;
    let of = |rank: GlobalRank| plan.program(rank).map(gaps).unwrap_or_default();
    let own = of(straggler);
    let others = (0..plan.world_size).map(GlobalRank).filter(|rank| *rank != straggler);
    let others: Vec<Vec<u64>> = others.map(of).filter(|gaps| gaps.len() == own.len()).collect();
    if others.is_empty() {
        return Err(VariationError::Alone { rank: straggler });
    }
    let factors: Vec<f64> = own
        .iter()
        .enumerate()
        .map(|(at, own)| {
            let mut usual: Vec<u64> =
                others.iter().filter_map(|gaps| gaps.get(at).copied()).collect();
            usual.sort_unstable();
            let usual = usual.get(usual.len() / 2).copied().unwrap_or(*own);
            if *own == 0 { 1.0 } else { usual as f64 / *own as f64 }
        })
        .collect();
    every_program(plan, |rank, program| {
        if rank != straggler {
            return;
        }
        let mut gap = 0;
        for op in &mut program.ops {
            if op.action.calls().is_empty() {
                scale_op(op, factors.get(gap).copied().unwrap_or(1.0));
            } else {
                gap += 1;
            }
        }
    });
    Ok(())
}

fn use_algorithm(plan: &mut Plan, chosen: Algorithm) -> Result<(), VariationError> {
    let mut changed = false;
    let mut change = |call: &mut Call| {
        if let Call::Collective { collective, algorithm, schedule, .. } = call
            && chosen.carries_out(*collective)
        {
            (*algorithm, *schedule, changed) = (Some(chosen), None, true);
        }
    };
    for op in plan.programs.iter_mut().flat_map(|program| &mut program.ops) {
        op.action.calls_mut().iter_mut().for_each(&mut change);
    }
    if changed { Ok(()) } else { Err(VariationError::NoCollective { algorithm: chosen.name() }) }
}
