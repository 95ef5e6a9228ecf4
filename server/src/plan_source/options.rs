//! The options of a scenario, a call or a collective, and the plan that results from them.

use super::names::{COLLECTIVES, unknown};
use anyhow::{Result, bail};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{CollectiveLab, patience_ms};
use lockstep_core::plan::{Fill, Plan};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, ProvedTable};
use lockstep_core::words::nearest;
use lockstep_program::scenario_plan;
use lockstep_scenarios::{Scenario, ScenarioOptions, TorchCall, torch_call};
use serde::Deserialize;

/// The options of a scenario or a collective. Absent ones have the defaults of [`ScenarioOptions`] and
/// [`CollectiveLab`].
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default)]
pub(crate) struct PlanOptions {
    /// The number of ranks [default: 4]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) world_size: Option<u32>,
    /// End each rank of a program after so many optimizer steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) steps: Option<u32>,
    /// Ranks that share a node, in rank order; 0 for one node that holds all [default: 0, or the plan file's]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) ranks_per_node: Option<u32>,
    /// The timeout of every group in milliseconds, 1 at least; for a plan file only when given
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub(crate) timeout_ms: Option<u64>,
    /// The repaired program of a scenario, or a recording with the change that `lockstep repair` finds
    #[arg(long)]
    pub(crate) repaired: bool,
    /// Elements a rank of a collective, of all_to_all a pair of ranks [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) count: Option<u64>,
    /// How a collective is carried out: ring, tree, direct, recursive_doubling, bruck, … [default: its first]
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    /// Copies of the algorithm that a collective is carried out in side by side, each with a slice of every chunk
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) channels: Option<u32>,
    /// Parts of each channel's slice that follow one another through the steps [default: as many as NCCL makes]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) segments: Option<u32>,
    /// Element type of a collective [default: float32]
    #[arg(long, value_name = "NAME")]
    pub(crate) dtype: Option<String>,
    /// Plan the call as torch.distributed makes it with this backend: gloo, nccl, mpi, host, cpu:gloo,cuda:nccl
    #[arg(long, value_name = "NAME")]
    pub(crate) dist_backend: Option<String>,
    /// Reduction of a collective: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM:FACTOR [default: SUM]
    #[arg(long, value_name = "NAME")]
    pub(crate) reduce_op: Option<String>,
    /// Root rank of a collective [default: 0]
    #[arg(long, value_name = "RANK", allow_negative_numbers = true)]
    pub(crate) root: Option<u32>,
    /// Fill a collective's tensors with this seed's numbers instead of rank * count + index
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Show all that the ranks of a program print, not a hundred lines shared among them
    #[arg(long)]
    #[serde(skip)]
    pub(crate) all_output: bool,
}

impl PlanOptions {
    /// The plan of a scenario or a collective.
    ///
    /// # Errors
    /// The name is unknown, or the options do not fit it.
    pub(crate) fn named(&self, name: &str) -> Result<Plan> {
        self.check()?;
        self.no_steps(name)?;
        self.of_name(name).map(|plan| self.on_nodes(plan))
    }

    fn of_name(&self, name: &str) -> Result<Plan> {
        if let Some(scenario) = lockstep_scenarios::find(name) {
            return self.of_scenario(scenario);
        }
        if let Some(call) = torch_call(name).filter(|_| self.is_torch_call(name)) {
            return self.of_torch_call(call);
        }
        if !COLLECTIVES.contains(&name) {
            bail!("{}", unknown(name));
        }
        let mut lab = self.lab(name, 4, 16)?;
        if let Some(name) = &self.algorithm {
            // One of another collective has a refusal of its own.
            let known = Algorithm::ALL.into_iter().find(|known| known.name() == name);
            let kind = format!("algorithm for {}", lab.collective);
            lab.algorithm = match known {
                Some(known) => known,
                None => pick(&kind, name, Algorithm::of(lab.collective), Algorithm::name)?,
            };
        }
        (lab.channels, lab.segments) = (self.channels, self.segments);
        Ok(lab.plan()?)
    }

    /// Checks the options that are wrong for every plan.
    ///
    /// # Errors
    /// An option is wrong.
    pub(crate) fn check(&self) -> Result<()> {
        if self.timeout_ms == Some(0) {
            bail!(
                "timeout_ms is 0, and every call would be late before it began; give 1 or more, or \
                 leave it out"
            );
        }
        Ok(())
    }

    /// The plan with its ranks on nodes, if they were asked for.
    pub(crate) fn on_nodes(&self, plan: Plan) -> Plan {
        match self.ranks_per_node {
            Some(ranks_per_node) => Plan { ranks_per_node, ..plan },
            None => plan,
        }
    }

    /// A note on the backend that was chosen for a call, if none was asked for and it is not the usual one.
    pub(super) fn backend_unasked(&self, name: &str) -> Option<String> {
        let call = torch_call(name).filter(|_| self.is_torch_call(name))?;
        let backend = call.backends.first()?;
        (self.dist_backend.is_none() && *backend != "gloo").then(|| {
            format!("{name} is planned on {backend}, because gloo has no such call; --dist-backend chooses another")
        })
    }

    /// The plan of a collective that is carried out as a file says.
    pub(super) fn collective_with(&self, name: &str, schedule: &ProvedTable) -> Result<Plan> {
        let table = schedule.table();
        if self.algorithm.is_some() {
            bail!("--algorithm and --schedule both say how {name} is carried out: leave one out");
        }
        if let Some(lanes) = self.lanes() {
            bail!("a file's channels and segments are its own: leave out --{lanes} or --schedule");
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
        self.heeded(
            name,
            !collective.is_barrier(),
            collective.reduce_op().is_some(),
            collective.root().is_some(),
        )?;
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

    /// The name of the option that is given: `channels` or `segments`.
    fn lanes(&self) -> Option<&'static str> {
        let segments = self.segments.map(|_| "segments");
        self.channels.map(|_| "channels").or(segments)
    }

    /// True if a name is a call of torch.distributed. The nine collectives by themselves are one operation by
    /// an algorithm; every other call, and any call with a backend, is made as torch.distributed makes it.
    fn is_torch_call(&self, name: &str) -> bool {
        !COLLECTIVES.contains(&name) || self.dist_backend.is_some()
    }

    fn of_torch_call(&self, call: &TorchCall) -> Result<Plan> {
        let name = call.name;
        if self.repaired {
            bail!("{name} is a call: only scenarios can be repaired");
        }
        if let Some(given) = self.algorithm.as_ref().map(|_| "algorithm").or(self.lanes()) {
            bail!(
                "{name} is planned as its backend makes it; {given} is for a collective without a backend"
            );
        }
        let heeds = call.heeds();
        self.heeded(name, heeds.count, heeds.op, heeds.root)?;
        let mut options = call.options();
        options.ranks_per_node = self.ranks_per_node.unwrap_or(options.ranks_per_node);
        options.world_size = self.world_size.unwrap_or(options.world_size);
        options.count = self.count.unwrap_or(options.count);
        options.root = self.root.unwrap_or(options.root);
        let patience = patience_ms(options.world_size, options.count);
        options.timeout_ms = self.timeout_ms.unwrap_or(patience);
        if let Some(backend) = &self.dist_backend {
            options.backend.clone_from(backend);
        }
        if let Some(name) = &self.dtype {
            options.dtype = pick("dtype", name, &Dtype::COMPUTABLE, Dtype::name)?;
        }
        if let Some(name) = &self.reduce_op {
            options.op = name.parse()?;
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
        Ok(scenario_plan(scenario, &options)?)
    }

    fn collective(&self, name: &str) -> Result<Collective> {
        let root = GroupRank(self.root.unwrap_or(0));
        let op = match &self.reduce_op {
            Some(name) => name.parse()?,
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

    /// Refuses options that would change nothing about `name`.
    fn heeded(&self, name: &str, tensor: bool, op: bool, root: bool) -> Result<()> {
        let idle = [
            (
                "--count",
                self.count.is_some() && !tensor,
                "its tensors have sizes of their own, or it has none",
            ),
            (
                "--dtype",
                self.dtype.is_some() && !tensor,
                "its tensors have types of their own, or it has none",
            ),
            ("--reduce-op", self.reduce_op.is_some() && !op, "it does not reduce"),
            ("--root", self.root.is_some() && !root, "it has no root"),
        ];
        match idle.iter().find(|(_, idle, _)| *idle) {
            Some((option, _, why)) => bail!("{option} changes nothing about {name}: {why}"),
            None => Ok(()),
        }
    }

    /// Refuses options of another kind of source than `what` is.
    fn only_for(&self, kind: &str, what: &str) -> Result<()> {
        let given = [
            ("count", self.count.is_some()),
            ("algorithm", self.algorithm.is_some()),
            ("channels", self.channels.is_some()),
            ("segments", self.segments.is_some()),
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

    pub(super) fn only_for_a_program(&self, what: &str) -> Result<()> {
        if self.repaired {
            bail!("{what} is a program: only scenarios have a repaired one");
        }
        self.only_for("a program", what)
    }

    /// Checks that no number of optimizer steps is given: only a program has optimizers.
    fn no_steps(&self, what: &str) -> Result<()> {
        match self.steps {
            Some(steps) => bail!("{what} is no program: --steps {steps} ends a program's ranks"),
            None => Ok(()),
        }
    }

    /// Checks that no options are given that only apply to names (of scenarios and calls), not to finished
    /// plans.
    ///
    /// # Errors
    /// Such an option is given.
    pub(crate) fn only_for_names(&self, what: &str) -> Result<()> {
        self.no_steps(what)?;
        let option = self.world_size.map(|size| format!("--world-size {size}"));
        if let Some(option) = option.or_else(|| self.repaired.then(|| "--repaired".to_owned())) {
            bail!(
                "{what} is a plan as it stands, with a world and programs of its own: {option} is for names, \
                 of which it makes one anew (lockstep plan NAME {option} -o plan.json)"
            );
        }
        self.only_for("a plan as it stands", what)
    }
}

fn pick<T: Copy>(kind: &str, name: &str, all: &[T], name_of: fn(T) -> &'static str) -> Result<T> {
    match all.iter().find(|one| name_of(**one) == name) {
        Some(one) => Ok(*one),
        None => {
            let names: Vec<_> = all.iter().map(|one| name_of(*one)).collect();
            let meant = nearest(name, names.iter().copied(), 1);
            let meant = meant.first().map(|name| format!("; did you mean {name}?"));
            let shown: String = name.chars().take(40).collect();
            bail!(
                "there is no {kind} {shown:?}{} Choose one of {}",
                meant.unwrap_or(".".into()),
                names.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::call_names;
    use super::*;

    fn refusal(options: PlanOptions, name: &str) -> String {
        options.named(name).unwrap_err().to_string()
    }

    #[test]
    fn every_scenario_and_every_collective_is_a_plan() {
        for scenario in lockstep_scenarios::all() {
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
    fn every_plan_can_be_spread_over_nodes() {
        let options = PlanOptions { ranks_per_node: Some(2), ..Default::default() };
        let scenarios = lockstep_scenarios::all().iter().map(|scenario| scenario.id);
        for name in scenarios.chain(call_names()) {
            assert_eq!(options.named(name).unwrap().ranks_per_node, 2, "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_in_a_sentence() {
        let options = PlanOptions::default;
        let texts = [
            refusal(options(), "nothing"),
            refusal(PlanOptions { world_size: Some(0), ..options() }, "all_reduce"),
            refusal(PlanOptions { root: Some(9), ..options() }, "broadcast"),
            refusal(PlanOptions { algorithm: Some("star".into()), ..options() }, "all_reduce"),
            refusal(PlanOptions { algorithm: Some("pairwise".into()), ..options() }, "broadcast"),
            refusal(PlanOptions { channels: Some(0), ..options() }, "all_reduce"),
            refusal(PlanOptions { segments: Some(1 << 30), ..options() }, "all_reduce"),
            refusal(PlanOptions { channels: Some(2), ..options() }, "barrier"),
            refusal(PlanOptions { channels: Some(2), ..options() }, "all_gather_object"),
            refusal(
                PlanOptions { segments: Some(2), ..options() },
                lockstep_scenarios::all()[0].id,
            ),
            refusal(PlanOptions { dtype: Some("float8".into()), ..options() }, "all_reduce"),
            refusal(PlanOptions { count: Some(1), ..options() }, lockstep_scenarios::all()[0].id),
            refusal(PlanOptions { timeout_ms: Some(0), ..options() }, "all_reduce"),
            refusal(PlanOptions { reduce_op: Some("PREMUL_SUM".into()), ..options() }, "reduce"),
        ];
        for text in texts {
            assert!(text.len() > 20 && text.len() < 400 && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_slip_is_answered_with_what_was_meant() {
        let text = refusal(PlanOptions::default(), "skiped-all-reduce");
        assert!(text.contains("did you mean skipped-all-reduce"), "{text}");
        assert!(text.len() < 260 && text.contains("plan --list"), "{text}");
    }

    #[test]
    fn options_that_would_change_nothing_are_refused() {
        let options = PlanOptions::default;
        for (given, name) in [
            (PlanOptions { root: Some(7), ..options() }, "send"),
            (PlanOptions { root: Some(1), ..options() }, "all_reduce"),
            (PlanOptions { count: Some(1), ..options() }, "all_gather_object"),
            (PlanOptions { dtype: Some("int8".into()), ..options() }, "gather_object"),
            (PlanOptions { reduce_op: Some("MAX".into()), ..options() }, "broadcast_object_list"),
            (PlanOptions { reduce_op: Some("MAX".into()), ..options() }, "broadcast"),
            (PlanOptions { count: Some(1), ..options() }, "barrier"),
        ] {
            let text = refusal(given, name);
            assert!(text.contains("changes nothing about"), "{text}");
        }
    }

    #[test]
    fn an_algorithm_that_is_none_is_answered_with_those_of_the_collective() {
        let star = PlanOptions { algorithm: Some("star".into()), ..Default::default() };
        let text = refusal(star, "barrier");
        let names = Algorithm::ALL.into_iter().map(Algorithm::name);
        let named: Vec<&str> = names.filter(|name| text.contains(name)).collect();
        let of: Vec<&str> =
            Algorithm::of(Collective::Barrier).iter().map(|algorithm| algorithm.name()).collect();
        assert!(of.iter().all(|name| named.contains(name)), "{text}");
        assert!(named.len() < Algorithm::ALL.len() / 2, "{text}");
    }

    #[test]
    fn channels_and_segments_are_in_the_plan() {
        let lanes = PlanOptions { channels: Some(2), segments: Some(4), ..Default::default() };
        let plan = lanes.named("all_reduce").unwrap();
        let first = &plan.program(lockstep_core::rank::GlobalRank(0)).unwrap().ops[0];
        let json = serde_json::to_value(&first.action).unwrap().to_string();
        assert!(json.contains("\"channels\":2") && json.contains("\"segments\":4"), "{json}");
    }

    #[test]
    fn premul_sum_is_planned_with_its_factor() {
        let given = PlanOptions { reduce_op: Some("premul_sum:0.25".into()), ..Default::default() };
        let plan = given.named("all_reduce").unwrap();
        assert!(
            plan.to_json().contains("\"PREMUL_SUM\": 0.25")
                || plan.to_json().contains("\"PREMUL_SUM\":0.25")
        );
    }
}
