//! A job under recording: the state that its ranks share, the calls of each rank, and the resulting plan.
//!
//! Ranks run one after the other, as ordinary code. A call's answer to its own rank is therefore known at
//! once, but not the data that another rank would have sent: those are values of the simulation or the run.
//! Facts that only the whole job knows are settled in [`Job::finish`]: the sizes that object calls learn from
//! each other, and groups whose members did not all make them.

use super::backend::Machine;
use super::dist::Dist;
use super::error::DistError;
use super::fingerprint::{VARIABLE, compare};
use super::group_table::{GroupEntry, GroupTable};
use super::issue::collective_call;
use super::pairs::{Pair, never_made};
use super::recorded::{Noted, Recorded};
use super::remark::{Whole, groups_made_alike, tags_ignored};
use super::sizes::SizeTable;
use super::state::{RankState, Shared};
use super::tensors::TensorTable;
use lockstep_core::collective::Collective;
use lockstep_core::group::{BackendName, GroupError, GroupId, ProcessGroup};
use lockstep_core::plan::{Action, Call, Op, Plan, PlanError, Program, Source};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::Algorithm;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A job whose ranks call torch.distributed. See the [module's example](super).
#[derive(Debug)]
pub struct Job {
    name: String,
    pub(super) shared: Shared,
    ranks: Vec<RankState>,
}

impl Job {
    /// A job of `world_size` processes on one node without GPUs, started as torchrun would: with
    /// `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` set.
    ///
    /// # Errors
    /// When `world_size` is 0 or more than a plan can have.
    pub fn new(name: impl Into<String>, world_size: u32) -> Result<Job, PlanError> {
        if world_size == 0 {
            return Err(PlanError::EmptyWorld);
        }
        if world_size > lockstep_core::rank::MAX_WORLD_SIZE {
            return Err(PlanError::WorldTooLarge(world_size));
        }
        let world: Arc<[GlobalRank]> = (0..world_size).map(GlobalRank).collect();
        Ok(Job {
            name: name.into(),
            shared: Shared {
                world_size,
                ranks_per_node: world_size,
                machine: Machine { cuda_devices: 0, mpi: false },
                groups: GroupTable::new(world),
                tensors: TensorTable::default(),
                sizes: SizeTable::default(),
                sources: Vec::new(),
                environment: BTreeMap::new(),
                timeout_ms: None,
            },
            ranks: (0..world_size).map(|_| RankState::default()).collect(),
        })
    }

    /// The number of processes.
    pub fn world_size(&self) -> u32 {
        self.shared.world_size
    }

    /// Spreads the ranks over nodes, in rank order. 0 means one node.
    pub fn ranks_per_node(&mut self, ranks: u32) -> &mut Job {
        self.shared.ranks_per_node = if ranks == 0 { self.shared.world_size } else { ranks };
        self
    }

    /// Sets the hardware and libraries that PyTorch finds on the ranks' machines.
    pub fn machine(&mut self, machine: Machine) -> &mut Job {
        self.shared.machine = machine;
        self
    }

    /// Sets or removes an environment variable of every process.
    pub fn environment(&mut self, name: &str, value: Option<&str>) -> &mut Job {
        self.shared.environment.insert(name.to_owned(), value.map(str::to_owned));
        self
    }

    /// Sets `TORCH_DISTRIBUTED_DEBUG=DETAIL`: before each collective its ranks compare their calls, and raise
    /// if they do not agree, instead of hanging. [`Job::run`] compares once all ranks have run.
    pub fn debug_detail(&mut self) -> &mut Job {
        self.environment(VARIABLE, Some("DETAIL"))
    }

    /// Gives every group of the plan this timeout, in milliseconds, instead of its own. A
    /// simulation takes as long either way; a real run that hangs ends sooner.
    pub fn timeout_ms(&mut self, timeout_ms: u64) -> &mut Job {
        self.shared.timeout_ms = Some(timeout_ms);
        self
    }

    /// A source text that [`Dist::at`] can point into; returns its index.
    pub fn source(&mut self, path: impl Into<String>, text: impl Into<String>) -> u32 {
        self.shared.sources.push(Source { path: path.into(), text: text.into() });
        self.shared.sources.len() as u32 - 1
    }

    /// The handle of one process; `None` outside the job.
    pub fn rank(&mut self, rank: GlobalRank) -> Option<Dist<'_>> {
        let state = self.ranks.get_mut(rank.index())?;
        Some(Dist { rank, shared: &mut self.shared, state })
    }

    /// Runs the same script on every rank, in rank order. A rank whose script is refused stops there, like a
    /// process that raises; the others go on, and the plan shows their further waits. The refusal is kept:
    /// see [`Job::raised`].
    pub fn run(
        &mut self,
        mut script: impl FnMut(&mut Dist<'_>) -> Result<(), DistError>,
    ) -> &mut Job {
        for (rank, state) in self.ranks.iter_mut().enumerate() {
            if state.outcome.is_some() {
                continue;
            }
            let rank = GlobalRank(rank as u32);
            let outcome = script(&mut Dist { rank, shared: &mut self.shared, state });
            state.outcome = outcome.err();
        }
        self.compare_fingerprints();
        self
    }

    /// Compares calls as the wrapper of `TORCH_DISTRIBUTED_DEBUG=DETAIL` does: ranks whose calls do
    /// not agree raise there, and do nothing any more.
    fn compare_fingerprints(&mut self) {
        if !self.shared.debug_detail() {
            return;
        }
        let checks: Vec<_> = self.ranks.iter().map(|state| state.checks.clone()).collect();
        for raised in compare(&checks, &self.shared.groups.members()) {
            let Some(state) = self.ranks.get_mut(raised.rank.index()) else { continue };
            if let Some(check) = state.checks.get(raised.check) {
                state.recorded.truncate(check.before);
            }
            state.checks.truncate(raised.check);
            state.outcome = Some(raised.error);
        }
    }

    /// The error that refused the rank's script, if any.
    pub fn raised(&self, rank: GlobalRank) -> Option<&DistError> {
        self.ranks.get(rank.index())?.outcome.as_ref()
    }

    /// Python's warnings on a rank, in order.
    pub fn warnings(&self, rank: GlobalRank) -> &[String] {
        self.ranks.get(rank.index()).map(|state| &state.warnings[..]).unwrap_or_default()
    }

    /// The plan of the ranks' calls.
    ///
    /// If a member of a group never made it (or made another one of that name), the ranks that did make it
    /// wait for that member in a barrier `via` `new_group`: PyTorch's gloo connects there and hangs. Ranks
    /// that come to NCCL's communicators of two in a circle wait in the same way.
    ///
    /// # Errors
    /// The plan is past a plan's limits.
    pub fn finish(self) -> Result<Plan, PlanError> {
        self.finish_with(std::iter::empty())
    }

    /// As [`Job::finish`], with moments of ranks in rank order, each the number of operations that the rank
    /// had done: they become places in the plan's programs, where some of those are left out.
    ///
    /// # Errors
    /// When the plan is past a plan's limits.
    pub fn finish_with<'m>(
        self,
        moments: impl Iterator<Item = (GlobalRank, &'m mut u32)>,
    ) -> Result<Plan, PlanError> {
        let Job { name, mut shared, ranks } = self;
        let mut moments = moments.peekable();
        let tensors = shared.tensors.finish(&shared.sizes);
        let mut programs: Vec<Program> = Vec::new();
        let mut program_of = Vec::new();
        let pairs = shared.circles_of_pairs(&ranks);
        let alike = groups_made_alike(&ranks);
        let tags = tags_ignored(&ranks);
        for ((rank, state), tags) in (0..).map(GlobalRank).zip(ranks).zip(tags) {
            let RankState { recorded, works, .. } = state;
            let whole = Whole::of(alike, &works, &recorded);
            let is_said = |noted: &Noted| noted.is_said(&whole);
            let (program, moved) = shared.program(recorded, &pairs, &tags, is_said);
            while let Some((_, moment)) = moments.next_if(|(of, _)| *of == rank) {
                *moment = moved.get(*moment as usize).copied().unwrap_or(program.ops.len() as u32);
            }
            // The newest is the likeliest to be equal; odd ranks out are few.
            let index = programs.iter().rposition(|known| *known == program).unwrap_or_else(|| {
                programs.push(program);
                programs.len() - 1
            });
            program_of.push(index as u32);
        }
        let per_node = shared.ranks_per_node;
        let plan = Plan {
            name,
            world_size: shared.world_size,
            ranks_per_node: if per_node == shared.world_size { 0 } else { per_node },
            groups: shared.process_groups()?,
            tensors,
            programs,
            program_of,
            sources: shared.sources,
            schedules: Vec::new(),
            callers: Vec::new(),
        };
        plan.check()?;
        Ok(plan)
    }
}

impl Shared {
    fn process_groups(&self) -> Result<Vec<ProcessGroup>, GroupError> {
        let groups = self.groups.groups.iter().map(|entry| {
            // A job that never called init_process_group has a world all the same.
            let backend = match entry.backend {
                BackendName::Unknown => BackendName::Host,
                backend => backend,
            };
            let group = ProcessGroup::new(entry.name.clone(), backend, entry.ranks.to_vec())?;
            let timeout_ms = self.timeout_ms.unwrap_or(entry.timeout_ms);
            Ok(group.with_desc(entry.desc.clone()).with_timeout_ms(timeout_ms))
        });
        groups.collect()
    }

    /// A group for each communicator of two ranks that is never made.
    fn circles_of_pairs(&mut self, ranks: &[RankState]) -> BTreeMap<Pair, GroupId> {
        if ranks.iter().all(|state| state.pairs.is_empty()) {
            return BTreeMap::new();
        }
        let order = |state: &RankState| -> VecDeque<Pair> {
            let pairs = state.recorded.iter().filter_map(|recorded| match recorded {
                Recorded::Pair { pair, .. } => Some(*pair),
                _ => None,
            });
            pairs.collect()
        };
        let stuck = never_made(ranks.iter().map(order).collect());
        let groups = &mut self.groups.groups;
        let group = |pair: Pair| {
            let timeout_ms = groups.get(pair.group.index()).map(|entry| entry.timeout_ms);
            let (low, high) = (pair.low, pair.high);
            groups.push(GroupEntry {
                name: format!("{low}:{high}"),
                desc: format!("the communicator of ranks {low} and {high}"),
                backend: BackendName::Host,
                timeout_ms: timeout_ms.unwrap_or(BackendName::Nccl.default_timeout_ms()),
                ranks: [low, high].into(),
                made: 2,
            });
            (pair, GroupId(groups.len() as u32 - 1))
        };
        stuck.into_iter().map(group).collect()
    }

    /// A rank's operations, with the facts that only the whole job knows, and the rank's last position.
    fn program(
        &self,
        recorded: Vec<Recorded>,
        pairs: &BTreeMap<Pair, GroupId>,
        tags: &BTreeMap<usize, i64>,
        is_said: impl Fn(&Noted) -> bool,
    ) -> (Program, Vec<u32>) {
        let barrier = |group, via: &str, at| Op {
            via: Some(via.into()),
            ..Op::new(
                Action::call(
                    collective_call(group, Collective::Barrier, 0, None, None, None),
                    false,
                ),
                at,
            )
        };
        let mut ops: Vec<Op> = Vec::new();
        let mut moved: Vec<u32> = Vec::with_capacity(recorded.len());
        for (index, one) in recorded.into_iter().enumerate() {
            moved.push(ops.len() as u32);
            let mut op = match one {
                Recorded::Op(op) => op,
                Recorded::Sized(mut op, size) => {
                    if let [Call::Collective { count, .. }] = op.action.calls_mut() {
                        *count = self.sizes.elements(size);
                    }
                    op
                }
                Recorded::Connect { group, .. } if self.groups.complete(group) => continue,
                Recorded::Connect { group, via, at } => barrier(group, via, at),
                Recorded::Remark(noted) => match is_said(&noted) {
                    true => noted.op(),
                    false => continue,
                },
                Recorded::Tag(given) => match tags.get(&index) {
                    Some(sent) => given.op(*sent),
                    None => continue,
                },
                Recorded::Pair { pair, at } => match pairs.get(&pair) {
                    Some(group) => barrier(*group, "ncclCommInitRank", at),
                    None => continue,
                },
            };
            if let Action::Wait { op, .. } | Action::Query { op, .. } = &mut op.action {
                *op = moved.get(*op as usize).copied().unwrap_or(*op);
            }
            ops.push(op);
        }
        (Program { ops }, moved)
    }

    /// Gives a call the schedule of its backend, where that decides the bits: gloo's ring.
    pub(super) fn as_the_backend_does(&self, call: &mut Call) {
        let Call::Collective { group, collective, algorithm, .. } = call else { return };
        let entry = self.groups.groups.get(group.index());
        let gloo = entry.is_some_and(|entry| entry.backend == BackendName::Gloo);
        if gloo && Algorithm::of(*collective).contains(&Algorithm::GlooRing) {
            *algorithm = Some(Algorithm::GlooRing);
        }
    }

    /// The backend of a group of the plan.
    pub(super) fn backend(&self, group: GroupId) -> BackendName {
        let entry = self.groups.groups.get(group.index());
        entry.map_or(BackendName::Unknown, |entry| entry.backend)
    }

    /// True if NCCL carries out a group's calls.
    pub(super) fn is_on_nccl(&self, group: GroupId) -> bool {
        self.backend(group) == BackendName::Nccl
    }

    /// Every rank of the job.
    pub(super) fn world(&self) -> Arc<[GlobalRank]> {
        self.groups.world.clone()
    }

    /// The timeout of a group of the plan, in milliseconds.
    pub(super) fn timeout_of(&self, group: GroupId) -> Option<u64> {
        self.groups.groups.get(group.index()).map(|entry| entry.timeout_ms)
    }

    /// True if every rank of the job is in a group of the plan.
    pub(super) fn is_of_all(&self, group: GroupId) -> bool {
        let entry = self.groups.groups.get(group.index());
        entry.is_some_and(|entry| entry.ranks.len() == self.world_size as usize)
    }

    /// A rank's place in a group of the plan.
    pub(super) fn group_rank(&self, group: GroupId, rank: GlobalRank) -> Option<GroupRank> {
        let ranks = &self.groups.groups.get(group.index())?.ranks;
        ranks.binary_search(&rank).ok().map(|place| GroupRank(place as u32))
    }
}
