//! The links of the machine on which a job was recorded, fitted from the recording itself.
//!
//! A kind of call takes, in the simulator, so many latencies and so many bytes one after the other (the path of
//! messages that ends last). The latencies and rates are sought with which that is the median of the recorded times:
//! least squares of the errors, each relative to both the recorded and the simulated time, so that half the time is as
//! wrong as twice the time; no parameter is negative. The path itself depends on the links, so it is found anew a few
//! times.

use crate::recover::Recovered;
use lockstep_analysis::{Activity, transfers};
use lockstep_core::plan::{Action, Call, Op, Plan, Program};
use lockstep_core::rank::GlobalRank;
use lockstep_core::watch::{Reached, Unwatched, Watch};
use lockstep_sim::{Cost, Link, Path, Topology};
use serde::{Deserialize, Serialize};

/// So many kinds of calls are fitted at most, those that took longest in all.
const KINDS: usize = 48;

/// So often the paths are found anew.
const ROUNDS: u64 = 8;

/// Weight of a parameter that no call depends on: nearly nothing, so that it keeps its usual value.
const HELD: f64 = 1e-6;

/// Links that were fitted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    /// The links.
    pub topology: Topology,
    /// The number of kinds of calls they were fitted on.
    pub kinds: usize,
    /// The mean relative error of the simulated times of those, each kind counted by its calls: 1 for half of the recorded
    /// time, or twice.
    pub error: f64,
    /// True if there are too few kinds to tell latency from rate: then the rest is a usual value.
    pub is_underdetermined: bool,
}

/// Links whose calls are off by more than this in the mean are not those of the recording.
const FAR_OFF: f64 = 0.5;

impl Fitted {
    /// True if the recorded calls do not take what any links give them: then the links tell nothing.
    pub fn is_far_off(&self) -> bool {
        self.error > FAR_OFF
    }
}

/// A kind of call, and the times that calls of it took.
struct Kind {
    plan: Plan,
    count: usize,
    median_ps: f64,
}

/// The links with which the calls of a recovered plan take as long as they did by `activity`, of the same recording;
/// `None` if no call tells of them.
pub fn fit_links(recovered: &Recovered, activity: &Activity) -> Option<Fitted> {
    fit_links_watched(recovered, activity, &mut Unwatched)
}

/// The same, watched: if the watch ends the fit, the best links so far.
pub fn fit_links_watched(
    recovered: &Recovered,
    activity: &Activity,
    watch: &mut dyn Watch,
) -> Option<Fitted> {
    let kinds = kinds(recovered, activity);
    if kinds.is_empty() {
        return None;
    }
    let start = Topology::of_ranks_per_node(recovered.plan.ranks_per_node);
    let usual = parameters(&start);
    let mut best: Option<Fitted> = None;
    let mut topology = start;
    let of_kinds = kinds.len() as u64;
    for round in 0..ROUNDS {
        let mut paths: Vec<(Path, u64)> = Vec::with_capacity(kinds.len());
        for kind in &kinds {
            let cost = Cost::of(&kind.plan, topology).ok()?;
            paths.push((cost.path, cost.time_ps));
            let done = round * of_kinds + paths.len() as u64;
            let (total, what) = (ROUNDS * of_kinds, "calls simulated, to fit the links");
            if watch.reached(Reached { done, total, what }).is_break() {
                return best;
            }
        }
        let calls: usize = kinds.iter().map(|kind| kind.count).sum();
        let errors = kinds.iter().zip(&paths).map(|(kind, (_, time_ps))| {
            let times = *time_ps as f64 / kind.median_ps;
            (times.max(1.0 / times.max(1e-6)) - 1.0) * kind.count as f64
        });
        let error = errors.sum::<f64>() / calls.max(1) as f64;
        if best.is_none_or(|best| error < best.error) {
            let is_underdetermined = kinds.len() < usual.len();
            best = Some(Fitted { topology, kinds: kinds.len(), error, is_underdetermined });
        }
        let rows: Vec<([f64; 4], f64)> = kinds
            .iter()
            .zip(&paths)
            .map(|(kind, (path, time_ps))| {
                // The first links are a guess, by which no error is measured.
                let simulated_ps = if round == 0 { kind.median_ps } else { *time_ps as f64 };
                let scale = (kind.count as f64 / (kind.median_ps * simulated_ps.max(1.0))).sqrt();
                let row = coefficients(path, &topology).map(|coefficient| coefficient * scale);
                (row, (kind.median_ps - path.other_ps as f64).max(0.0) * scale)
            })
            .collect();
        topology = with_parameters(&start, &solved(&rows, &usual));
    }
    best
}

/// The kinds of calls of which times were recorded, those that took longest first.
fn kinds(recovered: &Recovered, activity: &Activity) -> Vec<Kind> {
    let plan = &recovered.plan;
    let mut seen: Vec<(&Call, u32, Vec<u64>)> = Vec::new();
    for transfer in transfers(activity).into_iter().filter(|transfer| transfer.time_ps > 0) {
        let own = activity.ranks.get(transfer.rank.index());
        let recorded = own.and_then(|own| own.calls.get(transfer.call));
        let op = recorded
            .and_then(|call| call.plan_op)
            .or_else(|| recovered.calls.op_of_record(transfer.rank, transfer.call));
        let op = op.and_then(|op| plan.program(transfer.rank)?.ops.get(op as usize));
        // Of calls that are made together none has a time of its own.
        let Some([call]) = op.map(|op| op.action.calls()) else { continue };
        let Some(group) = plan.group(call.group()) else { continue };
        let same = seen.iter_mut().rev().find(|(known, size, _)| {
            *size == group.size()
                && alike(known, call)
                && (*known == call || spans_alike(plan, known, call))
        });
        match same {
            Some((_, _, times)) => times.push(transfer.time_ps),
            None => seen.push((call, group.size(), vec![transfer.time_ps])),
        }
    }
    seen.sort_by_key(|(_, _, times)| {
        std::cmp::Reverse(times.iter().map(|it| u128::from(*it)).sum::<u128>())
    });
    let kinds = seen.into_iter().take(KINDS).filter_map(|(call, _, mut times)| {
        times.sort_unstable();
        let median_ps = *times.get(times.len() / 2)? as f64;
        Some(Kind { plan: alone(plan, call)?, count: times.len(), median_ps })
    });
    kinds.collect()
}

/// True of calls that differ in their groups and tensors only, which do not matter for the time.
fn alike(one: &Call, other: &Call) -> bool {
    match (one, other) {
        (
            Call::Collective {
                collective: a,
                count: n,
                algorithm: x,
                channels: p,
                segments: q,
                ..
            },
            Call::Collective {
                collective: b,
                count: m,
                algorithm: y,
                channels: r,
                segments: s,
                ..
            },
        ) => (a, n, x, p, q) == (b, m, y, r, s),
        (Call::Recv { tensor: a, .. }, Call::Recv { tensor: b, .. }) => a == b,
        _ => false,
    }
}

/// True if the groups of two calls have as many ranks in as many nodes.
fn spans_alike(plan: &Plan, one: &Call, other: &Call) -> bool {
    let each = plan.ranks_per_node.max(1);
    let nodes = |call: &Call| {
        let ranks = plan.group(call.group()).map(|group| group.ranks()).unwrap_or_default();
        let mut nodes: Vec<u32> = ranks.iter().map(|rank| rank.0 / each).collect();
        nodes.dedup();
        nodes.len()
    };
    plan.ranks_per_node == 0 || nodes(one) == nodes(other)
}

/// A plan in which only this call is made; `None` of a message whose sender is not known.
fn alone(plan: &Plan, call: &Call) -> Option<Plan> {
    let group = plan.group(call.group())?;
    let op = |call: Call| Program { ops: vec![Op::new(Action::call(call, false), None)] };
    let programs = match call {
        Call::Collective { .. } => vec![Program::default(), op(call.clone())],
        Call::Recv { group: id, peer, tensor, tag } => {
            let sender = (*peer)?;
            let receiver =
                (0..group.size()).map(lockstep_core::rank::GroupRank).find(|it| *it != sender)?;
            let send = Call::Send { group: *id, peer: receiver, tensor: *tensor, tag: *tag };
            vec![Program::default(), op(call.clone()), op(send)]
        }
        Call::Send { .. } => return None,
    };
    let mut program_of = vec![0; plan.world_size as usize];
    let mut give = |rank: GlobalRank, program: u32| {
        if let Some(of) = program_of.get_mut(rank.index()) {
            *of = program;
        }
    };
    match call {
        Call::Recv { peer, .. } => {
            let sender = (*peer)?;
            let receiver =
                group.ranks().iter().find(|rank| group.group_rank(**rank) != Some(sender));
            give(*receiver?, 1);
            give(group.global_rank(sender)?, 2);
        }
        _ => group.ranks().iter().for_each(|rank| give(*rank, 1)),
    }
    Some(Plan { programs, program_of, ..plan.clone() })
}

/// Latency and picoseconds a byte of each link.
fn parameters(topology: &Topology) -> Vec<f64> {
    let of = |link: &Link| [link.latency_ps as f64, 1e12 / link.bytes_per_second.max(1) as f64];
    match topology {
        Topology::Nodes { inside, across, .. } => [of(inside), of(across)].concat(),
        Topology::Uniform(link) => of(link).to_vec(),
        Topology::SharedMemory(_) => Vec::new(),
    }
}

fn with_parameters(topology: &Topology, parameters: &[f64]) -> Topology {
    let link = |at: usize| {
        let [latency_ps, ps_per_byte] =
            [at, at + 1].map(|at| parameters.get(at).copied().unwrap_or(0.0));
        // From a megabyte a second to ten terabytes: anything else is no link.
        let bytes_per_second = (1e12 / ps_per_byte.max(1e-3)).clamp(1e6, 1e13) as u64;
        Link { latency_ps: latency_ps.clamp(0.0, 1e15) as u64, bytes_per_second }
    };
    match topology {
        Topology::Nodes { ranks_per_node, .. } => {
            Topology::Nodes { ranks_per_node: *ranks_per_node, inside: link(0), across: link(2) }
        }
        Topology::Uniform(_) => Topology::Uniform(link(0)),
        Topology::SharedMemory(machine) => Topology::SharedMemory(*machine),
    }
}

/// By how much of each parameter a path consists of. Waiting for a port counts as bytes of the link that has most.
fn coefficients(path: &Path, topology: &Topology) -> [f64; 4] {
    let hops = |leg: &lockstep_sim::Leg| leg.messages as f64 + leg.switch_hops as f64 / 2.0;
    let mut bytes = [path.inside.bytes as f64, path.across.bytes as f64];
    let rates = parameters(topology);
    let most = usize::from(bytes.first() < bytes.last());
    if let (Some(bytes), Some(rate)) = (bytes.get_mut(most), rates.get(2 * most + 1)) {
        *bytes += path.waiting_ps as f64 / rate.max(1e-9);
    }
    let [inside, across] = bytes;
    [hops(&path.inside), inside, hops(&path.across), across]
}

/// The parameters, none negative, with the least squares of `row · x − value`, by coordinate descent.
fn solved(rows: &[([f64; 4], f64)], usual: &[f64]) -> Vec<f64> {
    let mut x = usual.to_vec();
    for _ in 0..2000 {
        for at in 0..x.len() {
            let usual = usual.get(at).copied().unwrap_or(1.0).max(1e-9);
            // Nearly no weight on the usual value: it decides where no row does.
            let (mut square, mut product) = (HELD / (usual * usual), HELD / usual);
            for (row, value) in rows {
                let own = row.get(at).copied().unwrap_or(0.0);
                let others: f64 = row
                    .iter()
                    .zip(&x)
                    .enumerate()
                    .filter(|(other, _)| *other != at)
                    .map(|(_, (a, x))| a * x)
                    .sum();
                square += own * own;
                product += own * (value - others);
            }
            if let Some(x) = x.get_mut(at) {
                *x = (product / square).max(0.0);
            }
        }
    }
    x
}
