//! `lockstep rank`: one rank of a run that a launcher starts (torchrun, mpirun, srun, Kubernetes).
//! Without a plan, one rank of a run of `lockstep run` or `lockstep serve`, which start theirs so.

use super::run::{Conclusion, Results, TransportChoice, conclude};
use super::{rank_launcher, signals};
use crate::plan_source::{FaultOptions, PlanArguments, PlanOptions, Said};
use crate::progress::Progress;
use anyhow::Result;
use lockstep_core::plan::Plan;
use lockstep_gpu_exec::RunOptions;
use lockstep_gpu_exec::host::{
    self,
    launched::{Farewell, Launch, Rendezvous},
};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Be one rank of a run that torchrun, mpirun, srun or Kubernetes starts
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What all ranks do: a program, a plan file, a scenario or a call of torch.distributed; the same for every
    /// rank. Who this rank is comes from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or from
    /// Open MPI's, MPICH's or Slurm's variables
    #[arg(long, value_name = "PROGRAM|PLAN|SCENARIO|CALL")]
    plan: Option<String>,
    #[command(flatten)]
    options: PlanOptions,
    /// Faults as `lockstep run` takes them; rank 0's are done, so give every rank the same
    #[command(flatten)]
    faults: FaultOptions,
    #[command(flatten)]
    results: Results,
    /// What carries the plan's calls; mpi needs a lockstep that was built with it (--features mpi), asks MPI
    /// who this rank is, and needs no MASTER_ADDR on networks that know their machines' names
    #[arg(long, value_enum, default_value = "host")]
    backend: Carried,
    /// Where ranks find each other, as init_process_group's init_method says it: env:// (MASTER_ADDR and
    /// MASTER_PORT), tcp://HOST:PORT or file:///PATH, a file that all ranks see
    #[arg(long, value_name = "URL", alias = "init-method")]
    rendezvous: Option<Rendezvous>,
    /// What carries messages between ranks; rank 0's choice is everybody's
    #[arg(long, value_enum, default_value = "auto")]
    transport: TransportChoice,
    /// How long ranks wait for each other to come, in seconds
    #[arg(long, value_name = "S", default_value_t = 300)]
    join_timeout: u64,
}

/// The backends of ranks that others start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Carried {
    /// The ranks themselves, by the plan's schedules
    Host,
    /// The MPI that started them
    Mpi,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let Some(what) = arguments.plan else {
        return Ok(lockstep_gpu_exec::rank_main());
    };
    let options = RunOptions {
        faults: arguments.faults.faults,
        recorded_calls: arguments.results.recorded_calls()?,
        dump_at_end: arguments.results.wants_dumps(),
        transport: arguments.transport.into(),
        join_timeout: Duration::from_secs(arguments.join_timeout),
        ..RunOptions::default()
    };
    arguments.results.check(&what)?;
    if arguments.backend == Carried::Mpi {
        if arguments.rendezvous.is_some() {
            anyhow::bail!(
                "--rendezvous is for the host backend: MPI's ranks find each other through it"
            );
        }
        return in_mpi(what, arguments.options, options, arguments.results);
    }
    let launch = Launch::at(&arguments.rendezvous.unwrap_or_default())?;
    let (plan, said) = plan_of(what, arguments.options, launch.world_size)?;
    if launch.rank.0 > 0 {
        signals::leave_to_rank_zero()?;
        let keep = arguments.results.own_dump(launch.rank)?;
        return Ok(host::join(&launch, &plan, &options, keep)?);
    }
    let faults = options.faults.clone();
    let said = said.with_faults(&plan, &faults);
    // The kernel lets the other ranks go, when this process is through.
    let farewell = std::mem::ManuallyDrop::new(Farewell::default());
    let handle = host::lead(&launch, rank_launcher()?, plan, options, &farewell)?;
    arguments.results.steer(&handle)?;
    let (results, faults) = (&arguments.results, &faults);
    conclude(handle, &Conclusion { results, faults, said: &said, own_order: None })
}

/// One rank of a job of mpirun's or srun's, through MPI.
#[cfg(feature = "mpi")]
fn in_mpi(
    what: String,
    plan: PlanOptions,
    options: RunOptions,
    results: Results,
) -> Result<ExitCode> {
    let job = lockstep_gpu_exec::mpi::Job::init()?;
    if job.rank().0 > 0 {
        signals::leave_to_rank_zero()?;
    }
    let (plan, said) = match plan_of(what, plan, job.world_size()) {
        Ok((plan, said)) => {
            let said = said.with_faults(&plan, &options.faults);
            (Ok(plan), said)
        }
        Err(error) => (Err(error), Said::default()),
    };
    Ok(job.run(plan, options, move |started| {
        let concluded = started.map_err(anyhow::Error::from).and_then(|handle| {
            results.steer(&handle)?;
            let own_order = Some(super::run::OwnOrder("MPI"));
            let results = &results;
            super::run::concluded(
                handle,
                &Conclusion { results, faults: &[], said: &said, own_order },
            )
        });
        concluded.unwrap_or_else(|error| {
            crate::terminal::note(&format!("lockstep: {error:#}"));
            2
        })
    }))
}

#[cfg(not(feature = "mpi"))]
fn in_mpi(_: String, _: PlanOptions, _: RunOptions, _: Results) -> Result<ExitCode> {
    anyhow::bail!(
        "this lockstep was built without MPI; where there is an mpicc (Open MPI's or MPICH's), build \
         one with it: cargo build --release --package lockstep-server --features mpi"
    )
}

/// The plan, with as many ranks as were launched if it is made here, and the output of a program's ranks,
/// which rank 0 prints.
fn plan_of(what: String, mut options: PlanOptions, world_size: u32) -> Result<(Plan, Said)> {
    let path = Path::new(&what);
    let made_here = !path.exists() || path.extension().is_some_and(|extension| extension == "py");
    if made_here && options.world_size.is_none() {
        options.world_size = Some(world_size);
    }
    let found =
        PlanArguments { what, more: Vec::new(), options, schedule: None, arguments: Vec::new() }
            .find(&Progress::without_signals())?;
    Ok((found.plan, found.said))
}
