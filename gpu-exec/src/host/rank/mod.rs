//! A rank's process: takes its orders from standard input, joins, runs its program, reports.

mod clerk;
mod collective;
mod memory;
mod p2p;
mod program;
mod stream;
mod transfer;
mod works;

use super::control::{self, Order, Report, Setup};
use super::coordinator::{START_KEY, joined_key};
use crate::shm::Segment;
use crate::store::{Store, StoreClient};
use clerk::Clerk;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt::Display;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What a rank's process does: everything, from joining to exiting. Its orders come through
/// standard input, a socket that the coordinator made; a program calls this from `main` and
/// returns what it returns.
pub fn rank_main() -> ExitCode {
    let socket = match control_socket() {
        Ok(socket) => socket,
        Err(why) => {
            eprintln!("lockstep rank: {why}; ranks are started by a run, not by hand");
            return ExitCode::from(2);
        }
    };
    // A panic on any thread ends the rank: the others would wait for it until their timeouts.
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default(panic);
        std::process::exit(101);
    }));
    match run(&socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let report = control::frame(&Report::Failed { why });
            // If nobody listens any more, the exit status is all there is to say.
            let _ = std::io::Write::write_all(&mut &socket, &report);
            ExitCode::FAILURE
        }
    }
}

fn control_socket() -> Result<UnixStream, String> {
    use std::os::fd::AsFd;
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned();
    let descriptor = descriptor.map_err(|error| format!("no standard input: {error}"))?;
    let is_socket = rustix::fs::fstat(&descriptor)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_socket());
    if !is_socket {
        return Err("standard input is not the socket of a coordinator".to_owned());
    }
    Ok(UnixStream::from(descriptor))
}

/// `what: error`, for an error that ends the rank.
fn cannot<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

fn run(socket: &UnixStream) -> Result<(), String> {
    // If the coordinator's process is killed, the kernel kills this one. The socket's end covers
    // the moment before this line, and a coordinator that goes without being killed.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(cannot("cannot ask to end with the coordinator"))?;
    let memory = control::receive_memory(socket).map_err(cannot("no shared memory"))?;
    let order = control::read_frame(&mut &*socket).map_err(cannot("no orders"))?;
    let setup: Setup = match order {
        Some(Order::Setup(setup)) => *setup,
        Some(Order::Abort) | None => return Ok(()),
    };
    let clerk = Arc::new(OnceLock::new());
    listen(socket, clerk.clone())?;
    let plan = Plan::from_bytes(&setup.plan).map_err(cannot("the plan"))?;
    let bytes = setup.wiring.segment_bytes;
    let segment = Segment::map(memory, bytes).map_err(cannot("cannot map the shared memory"))?;
    let program = program::Program::prepare(plan, &setup, segment)?;
    let start_ns = join(&setup)?;
    spread_over_cores(setup.rank);
    let started = Clerk::start(&program, &setup, start_ns, socket)?;
    let _ = clerk.set(started.clone());
    program.run(started.clone())?;
    started.finish();
    Ok(())
}

/// Ends the process when the coordinator says so or is gone, whatever its threads do.
fn listen(socket: &UnixStream, clerk: Arc<OnceLock<Arc<Clerk>>>) -> Result<(), String> {
    let mut socket = socket.try_clone().map_err(cannot("cannot listen to the coordinator"))?;
    let listening = move || {
        let order = control::read_frame::<Order>(&mut socket);
        if let (Ok(Some(Order::Abort)), Some(clerk)) = (order, clerk.get()) {
            clerk.abort();
        }
        std::process::exit(0);
    };
    std::thread::Builder::new()
        .name("orders".to_owned())
        .spawn(listening)
        .map_err(cannot("cannot start a thread"))?;
    Ok(())
}

/// Joins the others through the store. Returns time 0 of the run on the shared clock.
fn join(setup: &Setup) -> Result<u64, String> {
    let timeout = Duration::from_nanos(setup.join_timeout_ns);
    let joining = || {
        let mut store = StoreClient::connect(setup.store, timeout)?;
        store.set(&joined_key(setup.rank), std::process::id().to_string().as_bytes())?;
        store.get(START_KEY)
    };
    let start = joining().map_err(cannot::<crate::store::StoreError>("cannot join"))?;
    let start = std::str::from_utf8(&start).ok().and_then(|text| text.parse().ok());
    start.ok_or_else(|| "cannot join: the store holds no starting time".to_owned())
}

/// Moves this thread to a core of its own, as far as there are enough, and leaves it free to be
/// moved again. Ranks that one message wakes tend to be woken on one core and, if they wait for
/// each other, stay there: a call then takes 7 µs instead of 1.5 (measured, 2 ranks on 2 cores).
fn spread_over_cores(rank: GlobalRank) {
    // A kernel that refuses has its reasons: it is only a hint.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let Some(&core) = cores.get(rank.index() % cores.len().max(1)) else { return };
    let mut own = CpuSet::new();
    own.set(core);
    if sched_setaffinity(None, &own).is_ok() {
        let _ = sched_setaffinity(None, &allowed);
    }
}
