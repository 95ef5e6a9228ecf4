//! `lockstep gpu-check`: compares the nccl backend on this machine's GPUs with the host backend and
//! torch.distributed, as a report. One binary and one command: nothing is built there.

mod plans;
mod report;
mod speed;
mod torch;

use super::nccl::ShareChoice;
use super::{describe, rank_launcher};
use crate::terminal;
use anyhow::{Context, Result, anyhow, bail};
use lockstep_core::plan::Plan;
use lockstep_core::trace::{Origin, Outcome, Trace};
use lockstep_core::words::counted;
use lockstep_diagnosis::diagnose_trace;
use lockstep_gpu_exec::{
    Collectives, HostBackend, NcclBackend, NcclOptions, RankLauncher, RunOptions, Sharing,
    run_to_trace,
};
use lockstep_sim::compare;
use report::{Check, Report, State};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Check the nccl backend on this machine's GPUs, and write a report
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where report.md and report.json go
    #[arg(short, long, value_name = "FOLDER", default_value = "gpu-check")]
    output: PathBuf,
    /// Look for CUDA, NVRTC and NCCL here first; may be given more than once
    #[arg(long, value_name = "FOLDER")]
    libraries: Vec<PathBuf>,
    /// Only the smaller sizes, and one number of ranks
    #[arg(long)]
    quick: bool,
    /// Only these ways for ranks to share a GPU; may be given more than once
    #[arg(long, value_enum)]
    share: Vec<ShareChoice>,
    /// Do not compare with torch.distributed
    #[arg(long)]
    no_torch: bool,
}

/// A way to have ranks on the GPUs of this machine.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    ranks: u32,
    collectives: Collectives,
    sharing: Sharing,
    /// True for a check that may fail on some machines: the report says if it works, and promises nothing.
    may_fail: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut bench = Bench {
        launcher: rank_launcher()?,
        report: Report::default(),
        arguments,
        latest: Instant::now(),
    };
    bench.all()?;
    terminal::text(&bench.report.to_markdown())?;
    Ok(ExitCode::from(u8::from(bench.report.has_failures())))
}

/// A check under way.
struct Bench {
    launcher: RankLauncher,
    report: Report,
    arguments: Arguments,
    /// The moment at which the latest check ended.
    latest: Instant,
}

impl Bench {
    fn all(&mut self) -> Result<()> {
        // One rank alone: no GPU, no library, and there is no check.
        let smoke = plans::smoke(1)?;
        let alone = Way {
            name: "one rank",
            ranks: 1,
            collectives: Collectives::Library,
            sharing: Sharing::None,
            may_fail: false,
        };
        let trace = self.backend(&alone)?.run(smoke, options())?;
        if trace.end.as_ref().map(|end| &end.outcome) != Some(&Outcome::Completed) {
            bail!("one rank alone: {}", describe(trace.end.as_ref().map(|end| &end.outcome)));
        }
        if let Origin::Run { device, .. } = &trace.header.origin {
            self.report.device.clone_from(device);
        }
        let gpus = self.gpus()?;
        self.report.gpus = gpus;
        let asked: Vec<Sharing> = self.arguments.share.iter().map(|way| way.sharing()).collect();
        let mut ways = self.ways(gpus);
        ways.retain(|way| asked.is_empty() || asked.contains(&way.sharing));
        for way in ways {
            terminal::note(&format!("gpu-check: {}, {}", way.name, counted(way.ranks, "rank")));
            if !way.may_fail || self.works(&way)? {
                // One rank has nobody to exchange anything with.
                if way.ranks > 1 {
                    self.speed(&way)?;
                }
                self.training(&way)?;
                self.hangs(&way)?;
                self.groups(&way)?;
                self.values(&way)?;
            }
            // A machine is often lent for minutes: what was found so far stays when it goes.
            self.save()?;
        }
        self.save()
    }

    /// Writes what was found so far.
    fn save(&self) -> Result<()> {
        let folder = &self.arguments.output;
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let json = serde_json::to_string_pretty(&self.report)? + "\n";
        for (name, text) in [("report.md", self.report.to_markdown()), ("report.json", json)] {
            let path = folder.join(name);
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// The number of GPUs that ranks can have for themselves, of 8, 4, 2 and 1.
    fn gpus(&self) -> Result<u32> {
        for ranks in [8, 4, 2] {
            let way = Way { ranks, ..Way::alone() };
            let ran = self.backend(&way)?.run(plans::smoke(ranks)?, options());
            let outcome = ran.ok().and_then(|trace| trace.end).map(|end| end.outcome);
            if outcome == Some(Outcome::Completed) {
                return Ok(ranks);
            }
        }
        Ok(1)
    }

    fn ways(&self, gpus: u32) -> Vec<Way> {
        let mut ways = vec![Way::alone()];
        let logical = Way {
            name: "logical ranks on one GPU, by schedules",
            ranks: 2,
            collectives: Collectives::Schedules,
            sharing: Sharing::OneProcess,
            may_fail: false,
        };
        ways.push(logical);
        if !self.arguments.quick {
            ways.push(Way { ranks: 4, ..logical });
        }
        if gpus > 1 {
            ways.push(Way { name: "NCCL's collectives", ranks: gpus, ..Way::alone() });
            let collectives = Collectives::Schedules;
            let name = "schedules over NCCL";
            ways.push(Way { name, ranks: gpus, collectives, ..Way::alone() });
        } else {
            for (name, sharing) in [
                ("NCCL, a host id for each rank of one GPU", Sharing::HostIds),
                ("NCCL_MULTI_RANK_GPU_ENABLE", Sharing::MultiRank),
            ] {
                ways.push(Way { name, ranks: 2, sharing, may_fail: true, ..Way::alone() });
            }
        }
        ways
    }

    fn backend(&self, way: &Way) -> Result<Runner> {
        let options = NcclOptions {
            libraries: self.arguments.libraries.clone(),
            collectives: way.collectives,
            sharing: way.sharing,
            ..NcclOptions::default()
        };
        Ok(Runner(NcclBackend::new(self.launcher.clone(), &options)?))
    }

    fn note(&mut self, way: &Way, what: String, state: State, says: String) {
        let (way, ranks) = (way.name.to_owned(), way.ranks);
        if state == State::Failed {
            terminal::note(&format!("gpu-check: {what} failed: {says}"));
        }
        let seconds = self.latest.elapsed().as_secs_f64();
        self.latest = Instant::now();
        self.report.checks.push(Check { way, ranks, what, state, says, seconds });
    }

    /// True if a way that may fail works here; otherwise the report says why not.
    fn works(&mut self, way: &Way) -> Result<bool> {
        let options = RunOptions { timeout: Some(Duration::from_secs(20)), ..options() };
        let (state, says) = match self.backend(way)?.run(plans::smoke(way.ranks)?, options) {
            Ok(trace) => match trace.end.map(|end| end.outcome) {
                Some(Outcome::Completed) => (State::Passed, "works".to_owned()),
                other => (State::Absent, describe(other.as_ref())),
            },
            Err(error) => (State::Absent, error.to_string()),
        };
        let works = state == State::Passed;
        self.note(way, "starts".to_owned(), state, says);
        Ok(works)
    }

    /// Every collective, type, operation and size, against the host backend.
    fn values(&mut self, way: &Way) -> Result<()> {
        let sizes: &[u64] = if self.arguments.quick { &[1, 1000] } else { &[1, 1000, 1 << 20] };
        for (what, dtype, plan) in plans::values(way.ranks, sizes, way.collectives)? {
            if dtype.is_float8() && !self.reduces_float8(way) {
                let says = "NCCL reduces 8-bit floats from sm_90 on".to_owned();
                self.note(way, what, State::Absent, says);
                continue;
            }
            self.held_against_host(way, what, &plan)?;
        }
        Ok(())
    }

    /// True if NCCL reduces 8-bit floats among these ranks (`enqueue.cc`: from compute capability 9.0 on), or
    /// if none of its kernels is needed.
    fn reduces_float8(&self, way: &Way) -> bool {
        let capability = self.report.device.split_once("(sm_").map(|(_, rest)| rest);
        let digits = capability.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let known: Option<u32> = digits.and_then(|digits| digits.parse().ok());
        way.ranks == 1
            || way.collectives == Collectives::Schedules
            || known.is_none_or(|sm| sm >= 90)
    }

    /// Groups, pairs and batches.
    fn groups(&mut self, way: &Way) -> Result<()> {
        match plans::groups(way.ranks)? {
            Some(plan) => self.held_against_host(way, "groups and sends".to_owned(), &plan),
            None => Ok(()),
        }
    }

    fn held_against_host(&mut self, way: &Way, what: String, plan: &Plan) -> Result<()> {
        let reference =
            run_to_trace(&HostBackend::new(self.launcher.clone()), plan.clone(), options())?;
        let (state, says) = match self.backend(way)?.run(plan.clone(), options()) {
            Err(error) => (State::Failed, error.to_string()),
            Ok(trace) => against(way, plan, reference, trace),
        };
        self.note(way, what, state, says);
        Ok(())
    }

    /// A DDP run: the load of the compute stream, the time it took, and the overlap.
    fn training(&mut self, way: &Way) -> Result<()> {
        let plan = plans::training(way.ranks, self.arguments.quick)?;
        let (state, says) = match self.backend(way)?.run(plan.clone(), options()) {
            Err(error) => (State::Failed, error.to_string()),
            Ok(trace) => match trace.end.as_ref().map(|end| &end.outcome) {
                Some(Outcome::Completed) => (State::Passed, speed::training(&plan, &trace)),
                other => (State::Failed, describe(other)),
            },
        };
        self.note(way, "DDP, 2 steps".to_owned(), state, says);
        Ok(())
    }

    /// Three hangs: ended by the watchdog, with the finding that the host backend's run has.
    fn hangs(&mut self, way: &Way) -> Result<()> {
        if way.ranks < 2 {
            return Ok(());
        }
        for (what, plan) in plans::hangs(way.ranks)? {
            let within = |seconds| RunOptions {
                timeout: Some(Duration::from_secs(seconds)),
                grace: Duration::from_secs(5),
                ..options()
            };
            let host = HostBackend::new(self.launcher.clone());
            let wanted = findings(&run_to_trace(&host, plan.clone(), within(2))?);
            // NCCL connects ranks at their first call, which takes seconds on many GPUs.
            let options = within(10);
            let (state, says) = match self.backend(way)?.run(plan, options) {
                Err(error) => (State::Failed, error.to_string()),
                Ok(trace) => {
                    let found = findings(&trace);
                    let outcome = trace.end.map(|end| end.outcome);
                    match found == wanted && outcome == Some(Outcome::TimedOut) {
                        true => (State::Passed, found),
                        false => {
                            let outcome = describe(outcome.as_ref());
                            (State::Failed, format!("{outcome}: {found}, host says {wanted}"))
                        }
                    }
                }
            };
            self.note(way, what.to_owned(), state, says);
        }
        Ok(())
    }

    /// Times of all_reduce by nccl-tests' method, and torch.distributed's by the same.
    fn speed(&mut self, way: &Way) -> Result<()> {
        let sizes = speed::sizes(self.arguments.quick);
        let torch = match self.arguments.no_torch || way.sharing == Sharing::OneProcess {
            true => Err(anyhow!("not asked")),
            false => torch::times(way.ranks, way.sharing, &sizes),
        };
        if let Err(why) = &torch {
            let why = format!("{}: no times of torch.distributed: {why:#}", way.name);
            self.report.notes.push(why);
        }
        for bytes in sizes {
            let plan = speed::plan(way.ranks, bytes)?;
            let options = RunOptions { record_messages: false, ..options() };
            let trace = self.backend(way)?.run(plan, options);
            let ours = match trace {
                Ok(trace) => speed::time_us(&trace),
                Err(error) => {
                    let what = format!("all_reduce of {bytes} bytes");
                    self.note(way, what, State::Failed, error.to_string());
                    continue;
                }
            };
            let torch_us = torch.as_ref().ok().and_then(|times| times.get(&bytes)).copied();
            self.report.times.push(report::Time {
                way: way.name.to_owned(),
                ranks: way.ranks,
                bytes,
                ours_us: ours,
                torch_us,
            });
        }
        Ok(())
    }
}

impl Way {
    fn alone() -> Way {
        Way {
            name: "NCCL's collectives, one rank",
            ranks: 1,
            collectives: Collectives::Library,
            sharing: Sharing::None,
            may_fail: false,
        }
    }
}

/// A backend that runs to the end.
struct Runner(NcclBackend);

impl Runner {
    fn run(&self, plan: Plan, options: RunOptions) -> Result<Trace, lockstep_gpu_exec::RunError> {
        run_to_trace(&self.0, plan, options)
    }
}

fn options() -> RunOptions {
    RunOptions {
        timeout: Some(Duration::from_secs(60)),
        max_duration: Duration::from_secs(180),
        join_timeout: Duration::from_secs(120),
        grace: Duration::from_secs(5),
        ..RunOptions::default()
    }
}

/// Compares a run's trace with the reference's: the state of the check, and its text.
fn against(way: &Way, plan: &Plan, mut reference: Trace, mut trace: Trace) -> (State, String) {
    let outcome = trace.end.as_ref().map(|end| &end.outcome);
    if outcome != Some(&Outcome::Completed) {
        return (State::Failed, describe(outcome));
    }
    if way.collectives == Collectives::Library {
        plans::leave_out_partial(plan, &mut reference);
        plans::leave_out_partial(plan, &mut trace);
    }
    let compared = compare(plan, &reference, &trace);
    let equal = compared.equal == compared.tensors && compared.only_in_one == 0;
    if equal && compared.tensors > 0 {
        let elements = counted(compared.elements, "element");
        let tensors = counted(compared.tensors, "tensor");
        return (State::Passed, format!("{tensors}, {elements} equal the host backend's"));
    }
    let first = compared.differences.first().map(|difference| {
        let element = difference.element.map(|e| format!("[{e}]")).unwrap_or_default();
        let (rank, name) = (difference.rank, &difference.name);
        format!(
            ": rank {rank}, {name}{element}: host {}, here {}",
            difference.left, difference.right
        )
    });
    let first = first.unwrap_or_default();
    (State::Failed, format!("{} of {} equal{first}", compared.equal, compared.tensors))
}

/// The findings of the diagnosis, in few words.
fn findings(trace: &Trace) -> String {
    let report = diagnose_trace(trace);
    let said = report.findings.iter().map(|finding| {
        let ranks: Vec<String> = finding.culprits.iter().map(|rank| rank.to_string()).collect();
        format!("{:?} by rank {}", finding.kind, ranks.join(" and "))
    });
    said.collect::<Vec<_>>().join("; ")
}
