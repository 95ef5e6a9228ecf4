//! Where a plan comes from: a file, one of the shipped scenarios, or one collective on its own.
//! The command line and `POST /api/runs` say it in the same words.

use crate::{files, terminal};
use anyhow::{Context, Result, bail};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::goal;
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::scenario::{
    self, CollectiveLab, Scenario, ScenarioOptions, TorchCall, torch_call, torch_calls,
};
use lockstep_core::schedule::{Algorithm, ProvedTable, msccl};
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Plan files past this are refused: the largest that make sense have a few megabytes.
const MAX_PLAN_BYTES: u64 = 256 << 20;

/// The collectives by name.
const COLLECTIVES: [&str; 9] = [
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
];

/// What can be said of a scenario or a collective. What is not said has the default of
/// [`ScenarioOptions`] and [`CollectiveLab`].
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default)]
pub(crate) struct PlanOptions {
    /// The number of ranks [default: 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) world_size: Option<u32>,
    /// The timeout of every group in milliseconds; for a plan file only when given
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub(crate) timeout_ms: Option<u64>,
    /// The repaired program of a scenario
    #[arg(long)]
    pub(crate) repaired: bool,
    /// Elements a rank of a collective [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) count: Option<u64>,
    /// How a collective is carried out: ring, tree, direct, recursive_doubling, bruck, … [default: its first]
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    /// Element type of a collective [default: float32]
    #[arg(long, value_name = "NAME")]
    pub(crate) dtype: Option<String>,
    /// Plan the call as torch.distributed makes it with this backend: gloo, nccl, host, cpu:gloo,cuda:nccl
    #[arg(long, value_name = "NAME")]
    pub(crate) dist_backend: Option<String>,
    /// Reduction of a collective: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR [default: SUM]
    #[arg(long, value_name = "NAME")]
    pub(crate) reduce_op: Option<String>,
    /// Root rank of a collective [default: 0]
    #[arg(long, value_name = "RANK", allow_negative_numbers = true)]
    pub(crate) root: Option<u32>,
    /// Fill a collective's tensors with this seed's numbers instead of rank * count + index
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
}

/// A plan as the command line names it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlanArguments {
    /// A plan file (`-` for standard input), a scenario or a call of torch.distributed
    /// (`lockstep plan --list` names them: all_reduce, all_gather_object, …)
    #[arg(value_name = "PLAN|SCENARIO|CALL")]
    pub(crate) what: String,
    #[command(flatten)]
    pub(crate) options: PlanOptions,
    /// An MSCCL XML file that says how a collective is carried out; its world size is the file's
    #[arg(long, value_name = "FILE")]
    pub(crate) schedule: Option<PathBuf>,
}

/// The proved schedule of an MSCCL XML file.
///
/// # Errors
/// When it cannot be read, or does not do what it claims.
pub(crate) fn proved_schedule(path: &Path) -> Result<ProvedTable> {
    let bytes = files::read(path, msccl::MAX_XML_BYTES as u64)?;
    let text =
        String::from_utf8(bytes).ok().with_context(|| format!("{} is no text", path.display()))?;
    let shown = || format!("cannot use {}", path.display());
    let table = msccl::read(&text).with_context(shown)?;
    ProvedTable::new(table).with_context(shown)
}

impl PlanArguments {
    /// The plan.
    ///
    /// # Errors
    /// When there is no such thing, or it is no plan that can be run.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let path = Path::new(&self.what);
        if let Some(schedule) = &self.schedule {
            if !COLLECTIVES.contains(&self.what.as_str()) {
                bail!("--schedule says how a collective is carried out; {} is none", self.what);
            }
            return self.options.collective_with(&self.what, &proved_schedule(schedule)?);
        }
        if self.what != "-" && !path.exists() {
            return self.options.named(&self.what);
        }
        let bytes = if self.what == "-" {
            let mut bytes = Vec::new();
            let mut input = std::io::stdin().lock().take(MAX_PLAN_BYTES);
            input.read_to_end(&mut bytes).context("cannot read standard input")?;
            bytes
        } else {
            files::read(path, MAX_PLAN_BYTES)?
        };
        self.options.only_for_names(&self.what)?;
        let plan = self.read(&bytes).with_context(|| format!("cannot use {}", self.what))?;
        Ok(match self.options.timeout_ms {
            Some(timeout_ms) => with_timeout(plan, timeout_ms),
            None => plan,
        })
    }

    /// A plan of ours, or what a GOAL file says as one.
    fn read(&self, bytes: &[u8]) -> Result<Plan> {
        if !goal::looks_like_goal(bytes) {
            return Ok(Plan::read(bytes)?);
        }
        let text = std::str::from_utf8(bytes).context("a GOAL file is text")?;
        let goal = goal::read(&self.what, text)?;
        if goal.held_back > 0 {
            terminal::note(&format!(
                "lockstep: {}: {} operations start later than GOAL lets them, because a rank's \
                 program does one thing after the other",
                self.what, goal.held_back
            ));
        }
        Ok(goal.plan)
    }
}

impl PlanOptions {
    /// The plan of a scenario or a collective.
    ///
    /// # Errors
    /// When there is none of that name, or the options do not fit it.
    pub(crate) fn named(&self, name: &str) -> Result<Plan> {
        if let Some(scenario) = scenario::find(name) {
            return self.of_scenario(scenario);
        }
        if let Some(call) = torch_call(name).filter(|_| self.is_torch_call(name)) {
            return self.of_torch_call(call);
        }
        if !COLLECTIVES.contains(&name) {
            let scenarios: Vec<_> = scenario::all().iter().map(|scenario| scenario.id).collect();
            bail!(
                "{name:?} is neither a file, nor a scenario ({}), nor a call of torch.distributed ({})",
                scenarios.join(", "),
                call_names().join(", ")
            );
        }
        let mut lab = self.lab(name, 4, 16)?;
        if let Some(name) = &self.algorithm {
            lab.algorithm = pick("algorithm", name, &Algorithm::ALL, Algorithm::name)?;
        }
        Ok(lab.plan()?)
    }

    /// The plan of a collective that is carried out as a file says.
    fn collective_with(&self, name: &str, schedule: &ProvedTable) -> Result<Plan> {
        let table = schedule.table();
        if self.algorithm.is_some() {
            bail!("--algorithm and --schedule both say how {name} is carried out: leave one out");
        }
        // Chunks of one size, where they have to be.
        let count = 16u64.next_multiple_of(u64::from(table.granularity()));
        let mut lab = self.lab(name, table.size(), count)?;
        if self.root.is_none() && table.collective().root().is_some() {
            lab.collective = table.collective();
        }
        Ok(lab.plan_with(schedule)?)
    }

    /// A collective with all that is said of it but its algorithm.
    fn lab(&self, name: &str, world_size: u32, count: u64) -> Result<CollectiveLab> {
        if self.repaired {
            bail!("{name} is a collective: only scenarios can be repaired");
        }
        let collective = self.collective(name)?;
        let world_size = self.world_size.unwrap_or(world_size);
        let mut lab = CollectiveLab::new(collective, world_size, self.count.unwrap_or(count));
        if let Some(name) = &self.dtype {
            lab.dtype = pick("dtype", name, &Dtype::COMPUTABLE, Dtype::name)?;
        }
        if let Some(seed) = self.seed {
            lab.fill = Fill::Seeded { seed };
        }
        if let Some(timeout_ms) = self.timeout_ms {
            lab.timeout_ms = timeout_ms;
        }
        Ok(lab)
    }

    /// The nine collectives by themselves are one operation by an algorithm; every other call, and
    /// any call with a backend, is what torch.distributed makes of it.
    fn is_torch_call(&self, name: &str) -> bool {
        !COLLECTIVES.contains(&name) || self.dist_backend.is_some()
    }

    fn of_torch_call(&self, call: &TorchCall) -> Result<Plan> {
        let name = call.name;
        if self.repaired {
            bail!("{name} is a call: only scenarios can be repaired");
        }
        if self.algorithm.is_some() {
            bail!(
                "{name} is planned as its backend makes it; algorithm is for a collective without a backend"
            );
        }
        let mut options = call.options();
        options.world_size = self.world_size.unwrap_or(options.world_size);
        options.count = self.count.unwrap_or(options.count);
        options.root = self.root.unwrap_or(options.root);
        options.timeout_ms = self.timeout_ms.unwrap_or(options.timeout_ms);
        if let Some(backend) = &self.dist_backend {
            options.backend.clone_from(backend);
        }
        if let Some(name) = &self.dtype {
            options.dtype = pick("dtype", name, &Dtype::COMPUTABLE, Dtype::name)?;
        }
        if let Some(name) = &self.reduce_op {
            options.op = pick("reduction", &name.to_uppercase(), &ReduceOp::ALL, ReduceOp::name)?;
        }
        if let Some(seed) = self.seed {
            options.fill = Fill::Seeded { seed };
        }
        Ok(call.plan(&options)?)
    }

    fn of_scenario(&self, scenario: &Scenario) -> Result<Plan> {
        let mut options = ScenarioOptions { repaired: self.repaired, ..Default::default() };
        self.only_for("a scenario", scenario.id)?;
        options.world_size =
            self.world_size.unwrap_or(options.world_size.max(scenario.min_world_size));
        options.timeout_ms = self.timeout_ms.unwrap_or(options.timeout_ms);
        Ok(scenario.plan(&options)?)
    }

    fn collective(&self, name: &str) -> Result<Collective> {
        let root = GroupRank(self.root.unwrap_or(0));
        let op = match &self.reduce_op {
            Some(name) => pick("reduction", &name.to_uppercase(), &ReduceOp::ALL, ReduceOp::name)?,
            None => ReduceOp::Sum,
        };
        Ok(match name {
            "broadcast" => Collective::Broadcast { root },
            "all_reduce" => Collective::AllReduce { op },
            "reduce" => Collective::Reduce { op, root },
            "all_gather" => Collective::AllGather,
            "gather" => Collective::Gather { root },
            "scatter" => Collective::Scatter { root },
            "reduce_scatter" => Collective::ReduceScatter { op },
            "all_to_all" => Collective::AllToAll,
            "monitored_barrier" => Collective::MonitoredBarrier { wait_all_ranks: false },
            _ => Collective::Barrier,
        })
    }

    /// Refuses options of a collective, which `what` is not.
    fn only_for(&self, kind: &str, what: &str) -> Result<()> {
        let given = [
            ("count", self.count.is_some()),
            ("algorithm", self.algorithm.is_some()),
            ("dtype", self.dtype.is_some()),
            ("reduce_op", self.reduce_op.is_some()),
            ("root", self.root.is_some()),
            ("seed", self.seed.is_some()),
            ("dist_backend", self.dist_backend.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!("{what} is {kind}: {option} is for collectives"),
            None => Ok(()),
        }
    }

    fn only_for_names(&self, what: &str) -> Result<()> {
        if self.world_size.is_some() || self.repaired {
            bail!("{what} is a plan file: its world and its programs are as they are");
        }
        self.only_for("a plan file", what)
    }
}

/// Every call that can be named: torch.distributed's, and the collectives by their own names.
pub(crate) fn call_names() -> Vec<&'static str> {
    let calls = torch_calls().iter().map(|call| call.name);
    let only_here = COLLECTIVES.into_iter().filter(|name| torch_call(name).is_none());
    calls.chain(only_here).collect()
}

/// The plan with another timeout for every group.
pub(crate) fn with_timeout(mut plan: Plan, timeout_ms: u64) -> Plan {
    for group in &mut plan.groups {
        *group = group.clone().with_timeout_ms(timeout_ms);
    }
    plan
}

fn pick<T: Copy>(kind: &str, name: &str, all: &[T], name_of: fn(T) -> &'static str) -> Result<T> {
    match all.iter().find(|one| name_of(**one) == name) {
        Some(one) => Ok(*one),
        None => {
            let names: Vec<_> = all.iter().map(|one| name_of(*one)).collect();
            bail!("there is no {kind} {name:?}; choose one of {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: PlanOptions, name: &str) -> String {
        options.named(name).unwrap_err().to_string()
    }

    #[test]
    fn every_scenario_and_every_collective_is_a_plan() {
        for scenario in scenario::all() {
            PlanOptions::default().named(scenario.id).unwrap();
        }
        for name in call_names() {
            assert_eq!(PlanOptions::default().named(name).unwrap().world_size, 4, "{name}");
        }
        let gloo = PlanOptions { dist_backend: Some("gloo".into()), ..Default::default() };
        assert!(gloo.named("reduce_scatter_tensor").is_ok());
        assert!(gloo.named("all_to_all").is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused_in_a_sentence() {
        let options = PlanOptions::default;
        let texts = [
            refusal(options(), "nothing"),
            refusal(PlanOptions { world_size: Some(0), ..options() }, "all_reduce"),
            refusal(PlanOptions { root: Some(9), ..options() }, "broadcast"),
            refusal(PlanOptions { algorithm: Some("star".into()), ..options() }, "all_reduce"),
            refusal(PlanOptions { dtype: Some("float8".into()), ..options() }, "all_reduce"),
            refusal(PlanOptions { count: Some(1), ..options() }, scenario::all()[0].id),
        ];
        for text in texts {
            assert!(text.len() > 20 && !text.contains('\n'), "{text}");
        }
    }
}
