//! A job that `mpirun` or `srun` started: this process's rank, by MPI; the facts that all processes agree on
//! before they begin; and how they end, together.

use super::call::Communicator;
use super::engine::{Ending, Engine, Inbox};
use super::program::carry_out;
use super::{Unsupported, lower};
use crate::host::arena::Arena;
use crate::host::carrier::Carrier;
use crate::host::launched::{Meeting, accept};
use crate::host::launcher::RankLauncher;
use crate::host::limits::fits;
use crate::host::rank::serve_carried;
use crate::host::rank::start::Start;
use crate::host::start::{injected, start_with};
use crate::{RunError, RunHandle, RunOptions};
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Root as _};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Time that a rank waits for rank 0 to end the job, once the run was ended early: rank 0 reports first, and
/// compares the run with the simulator. If it dies, its launcher ends the others.
const LAST_WORDS: Duration = Duration::from_secs(600);

/// Time that `MPI_Finalize` may take once all are done.
const FAREWELL: Duration = Duration::from_secs(30);

/// The variables in which launchers give the number of processes.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// The exit code of a process that cannot run the plan.
const UNUSABLE: u8 = 2;

/// One process of an MPI job. Dropping it leaves MPI (`MPI_Finalize`), for which all have to come.
pub struct Job {
    // Dropped before MPI is left.
    world: SimpleCommunicator,
    universe: Universe,
    rank: GlobalRank,
    world_size: u32,
    library: String,
}

/// The message of a process to all others before they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    /// True if the process has a plan that it can run.
    ready: bool,
    /// XXH3 of the plan's binary form.
    plan: u64,
    /// XXH3 of its machine's name.
    machine: u64,
}

/// Rank 0's address, and the bytes of its meeting.
#[derive(Debug, Default)]
struct Invitation {
    host: String,
    bytes: Vec<u8>,
}

impl Job {
    /// Enters MPI.
    ///
    /// # Errors
    /// When it was entered before, cannot be called from one of several threads, or is not the one
    /// that started this process.
    pub fn init() -> Result<Job, RunError> {
        let unavailable = |why: String| RunError::Unavailable { backend: BackendName::Mpi, why };
        let entered = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, threading) =
            entered.ok_or_else(|| unavailable("MPI was initialised before".to_owned()))?;
        if threading < Threading::Funneled {
            let why = "it does not let a process have several threads (MPI_THREAD_FUNNELED)";
            return Err(unavailable(why.to_owned()));
        }
        let world = universe.world();
        let (rank, size) = (world.rank().max(0) as u32, world.size().max(1) as u32);
        let library = library();
        let started = SIZES.iter().find_map(|name| {
            let value = std::env::var(name).ok()?;
            Some((name, value.trim().parse::<u32>().ok().filter(|started| *started > 1)?))
        });
        if let (1, Some((name, started))) = (size, started) {
            return Err(unavailable(format!(
                "the launcher started {started} processes ({name}), and {library} sees this one \
                 only: it belongs to another MPI than the one that lockstep was built with; use \
                 that one's mpirun"
            )));
        }
        Ok(Job { world, universe, rank: GlobalRank(rank), world_size: size, library })
    }

    /// The rank of this process.
    pub fn rank(&self) -> GlobalRank {
        self.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Runs the plan as one of its ranks, and returns the process's exit code once all are done. If this
    /// process has no `plan`, no process runs it. On rank 0 `conclude` is given the run in progress, or the
    /// reason that there is none, on a thread of its own; its result is that process's exit code. A run that
    /// does not complete ends here, for all, by `MPI_Abort`. If a job cannot begin, one of its processes
    /// prints the reason before any of them ends.
    pub fn run<E: From<RunError> + Display>(
        self,
        plan: Result<Plan, E>,
        options: RunOptions,
        conclude: impl FnOnce(Result<RunHandle, RunError>) -> u8 + Send + 'static,
    ) -> ExitCode {
        let plan = plan.and_then(|plan| Ok(self.checked(plan, &options)?));
        let tickets = self.tickets(&self.ticket(plan.as_ref().ok()));
        // The first that cannot says why; the others have nothing to add.
        let first = tickets.iter().position(|ticket| !ticket.ready);
        let plan = match (plan, first) {
            (Ok(plan), None) => plan,
            (Err(error), Some(first)) if first == self.rank.index() => {
                return self.refuse(Some(error));
            }
            _ => return self.refuse(None::<E>),
        };
        let differs = tickets.iter().position(|ticket| ticket.plan != tickets[0].plan);
        if let Some(differs) = differs {
            let why = "its plan is another one than rank 0's; give every rank the same --plan";
            let refusal = || did_not_join(GlobalRank(differs as u32), why.to_owned());
            return self.refuse((self.rank.0 == 0).then(refusal));
        }
        match self.meet(plan, options, &tickets, conclude) {
            Ok((ending, concluded)) => self.end(ending, &concluded),
            // The others are on their way already.
            Err(error) => {
                eprintln!("lockstep rank: {error}");
                self.world.abort(UNUSABLE.into())
            }
        }
    }

    /// Says why there is no run, if it is this process's to say. None ends before that is done: its launcher then
    /// kills the others.
    fn refuse(&self, why: Option<impl Display>) -> ExitCode {
        if let Some(why) = why {
            eprintln!("lockstep: {why:#}");
        }
        self.world.barrier();
        ExitCode::from(UNUSABLE)
    }

    /// Refuses plans that MPI cannot carry out, and ranks that are too large for it.
    fn checked(&self, plan: Plan, options: &RunOptions) -> Result<Plan, RunError> {
        plan.check()?;
        if plan.world_size != self.world_size {
            let (launched, planned) = (self.world_size, plan.world_size);
            return Err(RunError::WrongWorld { launched, planned });
        }
        lower::check(&plan).map_err(|why: Unsupported| RunError::Unavailable {
            backend: BackendName::Mpi,
            why: why.to_string(),
        })?;
        // Once as tensors, and at most once more as what is under way.
        fits(2 * Arena::of(&plan, self.rank).bytes() as u64, options)?;
        Ok(plan)
    }

    fn ticket(&self, plan: Option<&Plan>) -> Ticket {
        let hash = xxhash_rust::xxh3::xxh3_64;
        Ticket {
            ready: plan.is_some(),
            plan: plan.map_or(0, |plan| hash(&plan.to_bytes())),
            machine: hash(machine().as_bytes()),
        }
    }

    /// Everybody's, in rank order.
    fn tickets(&self, own: &Ticket) -> Vec<Ticket> {
        let own = [u64::from(own.ready), own.plan, own.machine];
        let mut all = vec![0u64; 3 * self.world_size as usize];
        self.world.all_gather_into(&own[..], &mut all[..]);
        let (each, _) = all.as_chunks::<3>();
        let ticket = |[ready, plan, machine]: &[u64; 3]| Ticket {
            ready: *ready == 1,
            plan: *plan,
            machine: *machine,
        };
        each.iter().map(ticket).collect()
    }

    /// Connects to rank 0, which listens, and runs the plan.
    fn meet(
        &self,
        plan: Plan,
        options: RunOptions,
        tickets: &[Ticket],
        conclude: impl FnOnce(Result<RunHandle, RunError>) -> u8 + Send + 'static,
    ) -> Result<(Ending, mpsc::Receiver<u8>), RunError> {
        let timeout = options.join_timeout;
        let guard = Guard::new(timeout.saturating_mul(2), "the ranks did not join in time");
        let inbox = Arc::new(Inbox::default());
        let here = |rank: usize| tickets.get(rank).map(|ticket| ticket.machine);
        let one_machine = tickets.iter().all(|ticket| Some(ticket.machine) == here(0));
        let (meeting, said) = match self.rank.0 {
            0 => self.listen(one_machine, &plan).map(|(meeting, said)| (Some(meeting), said))?,
            _ => Default::default(),
        };
        let Invitation { host, bytes } = self.hear(said);
        let (told, concluded) = mpsc::channel();
        if let Some(meeting) = meeting {
            let (plan, inbox) = (plan.clone(), inbox.clone());
            // It starts nobody: all ranks are here.
            let launcher = RankLauncher { program: PathBuf::new(), args: Vec::new() };
            let lead = move || {
                let started = injected(&plan, &options, &Carrier::Mpi, true).and_then(|injected| {
                    start_with(launcher, injected, options, Carrier::Mpi, Some(meeting))
                });
                let failed = started.is_err();
                let _ = told.send(conclude(started));
                if failed {
                    inbox.end(Ending::Early);
                }
            };
            spawned("rank 0's coordinator", lead)?;
        }
        let address = match here(self.rank.index()) == here(0) {
            true => Ipv4Addr::LOCALHOST.into(),
            false => resolved(self.rank, &host)?,
        };
        let line = accept(self.rank, &plan, address, &bytes, timeout)?;
        let mut engine = Engine::new(self.communicators(&plan));
        let (library, exit) = (self.library.clone(), inbox.clone());
        let (ended, work) = (inbox.clone(), inbox.clone());
        let serve = move || {
            let exit = move || exit.end(Ending::Early);
            let run = |plan, start: &Start<'_>| carry_out(plan, start, library, &work);
            let done = serve_carried(line, exit, run);
            ended.end(if done.is_ok() { Ending::Complete } else { Ending::Early });
        };
        spawned("rank", serve)?;
        guard.disarm();
        let ending = engine.run(&inbox);
        if ending == Ending::Early {
            // Calls may be under way on its communicators: nobody gives them back.
            std::mem::forget(engine);
        }
        Ok((ending, concluded))
    }

    /// Rank 0's listening socket, and the invitation to it.
    fn listen(&self, one_machine: bool, plan: &Plan) -> Result<(Meeting, Invitation), RunError> {
        let address: IpAddr = match one_machine {
            true => Ipv4Addr::LOCALHOST.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        let (meeting, bytes) = Meeting::listen(address, 0, self.world_size, plan)?;
        let named = std::env::var("MASTER_ADDR").ok().filter(|name| !name.is_empty());
        Ok((meeting, Invitation { host: named.unwrap_or_else(machine), bytes }))
    }

    /// Rank 0's invitation, broadcast to all.
    fn hear(&self, said: Invitation) -> Invitation {
        let root = self.world.process_at_rank(0);
        let mut each = [said.host.into_bytes(), said.bytes];
        for bytes in &mut each {
            let mut length = bytes.len() as u64;
            root.broadcast_into(&mut length);
            bytes.resize(length as usize, 0);
            root.broadcast_into(&mut bytes[..]);
        }
        let [host, bytes] = each;
        Invitation { host: String::from_utf8_lossy(&host).into_owned(), bytes }
    }

    /// Those of the plan's groups that this rank is in, made in the plan's order.
    fn communicators(&self, plan: &Plan) -> BTreeMap<GroupId, Communicator> {
        let groups = (0..).map(GroupId).zip(&plan.groups);
        let own = groups.filter(|(_, group)| group.group_rank(self.rank).is_some());
        let made = own.filter_map(|(id, group)| {
            let ranks: Vec<i32> = group.ranks().iter().map(|rank| rank.0 as i32).collect();
            Some((id, Communicator::of(&self.world, &ranks, (id.0 & 0x7fff) as i32)?))
        });
        made.collect()
    }

    /// Leaves MPI with the others, or ends them.
    fn end(self, ending: Ending, concluded: &mpsc::Receiver<u8>) -> ExitCode {
        // Bounded by the run's own limit; hung up at once where nobody concludes.
        let is_first = self.rank.0 == 0;
        let conclusion = || if is_first { concluded.recv().unwrap_or(UNUSABLE) } else { 0 };
        if ending == Ending::Early {
            let code = conclusion();
            if !is_first {
                // Rank 0 ends all.
                std::thread::sleep(LAST_WORDS);
            }
            self.world.abort(i32::from(code.max(1)));
        }
        // Before rank 0 concludes: the others wait for it here.
        let guard = Guard::new(FAREWELL, "MPI_Finalize did not return");
        let Job { world, universe, .. } = self;
        drop(world);
        drop(universe);
        guard.disarm();
        ExitCode::from(conclusion())
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job(rank {} of {})", self.rank, self.world_size)
    }
}

fn spawned(name: &str, what: impl FnOnce() + Send + 'static) -> Result<(), RunError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(what);
    thread.map(drop).map_err(RunError::system("start a thread"))
}

fn did_not_join(rank: GlobalRank, why: String) -> RunError {
    RunError::DidNotJoin { rank, why }
}

/// `Open MPI v4.1.4, …` in few words: the first line, up to the build options.
fn library() -> String {
    let text = mpi::environment::library_version().unwrap_or_else(|_| "an MPI".to_owned());
    let line = text.trim_end_matches('\0').lines().next().unwrap_or_default();
    let words = line.split(',').next().unwrap_or_default();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// This machine's name, as MPI says it.
fn machine() -> String {
    let name = mpi::environment::processor_name().unwrap_or_default();
    name.trim_end_matches('\0').to_owned()
}

/// The address of rank 0's machine, for another rank.
fn resolved(rank: GlobalRank, host: &str) -> Result<IpAddr, RunError> {
    let found = (host, 0).to_socket_addrs();
    let found = found.map(|found| found.min_by_key(|address| !address.is_ipv4()));
    match found {
        Ok(Some(address)) => Ok(address.ip()),
        Ok(None) => Err(did_not_join(rank, format!("rank 0's machine, {host}, has no address"))),
        Err(error) => {
            let why = format!(
                "rank 0's machine, {host}, cannot be looked up ({error}); give its name or address, \
                 such as -x MASTER_ADDR=node0 (mpirun) or --export=ALL,MASTER_ADDR=node0 (srun)"
            );
            Err(did_not_join(rank, why))
        }
    }
}

/// Ends the process when something that MPI or the system has to do does not come to an end: its
/// launcher then ends the others.
struct Guard {
    disarmed: mpsc::Sender<()>,
}

impl Guard {
    fn new(limit: Duration, why: &'static str) -> Guard {
        let (disarmed, waits) = mpsc::channel();
        // Without a thread there is no guard, and nothing else changes.
        let _ = std::thread::Builder::new().name("guard".to_owned()).spawn(move || {
            if waits.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("lockstep rank: {why} ({limit:?}); the process ends");
                std::process::exit(i32::from(UNUSABLE));
            }
        });
        Guard { disarmed }
    }

    fn disarm(self) {
        let _ = self.disarmed.send(());
    }
}
