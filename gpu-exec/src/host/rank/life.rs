//! The life of a rank's process: its orders, its joining, its program, its end.

use super::alone::Alone;
use super::failure::{RankFailure, cannot};
use super::held::{Held, open_memory};
use super::peers::Peers;
use super::program::Program;
use super::start::{Closing, Start, join};
use crate::clock;
use crate::host::control::{self, Greeting, Order, Report, Setup};
use crate::host::sharing;
use crate::shm::{Segment, home};
use lockstep_core::plan::Plan;
use rustix::fd::OwnedFd;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

/// The whole life of a rank's process, from joining to exiting. Its orders come through standard input, a
/// socket that the coordinator made; a program calls this from `main` and returns its result.
pub fn rank_main() -> ExitCode {
    let socket = match control_socket() {
        Ok(socket) => socket,
        Err(why) => {
            eprintln!(
                "lockstep rank: {why}: such ranks are started by a run. One that a launcher starts, or \
                 you, is told what to do: --plan"
            );
            return ExitCode::from(2);
        }
    };
    end_on_panic();
    reported(&socket, &run(&socket))
}

/// A rank that others started and that has come to rank 0's process: its life from its orders to its end. If
/// it gets the order to end early, or loses rank 0, it ends the process.
pub(crate) fn serve_joined(line: UnixStream, alone: Alone) -> ExitCode {
    end_on_panic();
    let alone = Arc::new(alone);
    let held = Held { launched: true, alone: Some(alone.clone()), ..Held::default() };
    let held = Arc::new(held);
    let done = orders(&line).and_then(|orders| match orders {
        Some((setup, plan)) => work(&line, setup, &plan, None, held.clone()),
        None => {
            alone.clear();
            Err(RankFailure::RankZeroGone)
        }
    });
    if let Err(why) = &done {
        alone.say(&why.to_string());
    }
    let failed = done.is_err();
    let code = reported(&line, &done);
    if failed {
        held.stay(&line);
    }
    code
}

/// As [`serve_joined`] for a rank whose calls another part carries out, in a process that is not to end by
/// itself: `exit` is called instead of ending it, and may return. `run` returns how its program ended, which
/// is reported.
#[cfg(feature = "mpi")]
pub(crate) fn serve_carried(
    line: UnixStream,
    exit: impl Fn() + Send + Sync + 'static,
    run: impl FnOnce(Arc<Plan>, &Start<'_>) -> Result<(), RankFailure>,
) -> Result<(), RankFailure> {
    end_on_panic();
    let closing = Arc::new(OnceLock::new());
    let held = Held { launched: true, exit: Some(Box::new(exit)), ..Held::default() };
    let held = Arc::new(held);
    let done = orders(&line).and_then(|orders| {
        let (setup, plan) = orders.ok_or(RankFailure::RankZeroGone)?;
        listen(&line, &setup, closing.clone(), held.clone())?;
        let plan = Plan::from_bytes(&plan)?;
        let start = Start { setup: &setup, socket: &line, closing: &closing, held: &held };
        run(Arc::new(plan), &start)
    });
    if done.is_err() {
        // The notes so far explain the end.
        held.clerks.get().into_iter().flatten().for_each(|clerk| clerk.send_notes());
    }
    let _ = reported(&line, &done);
    // The rank's end is its line's.
    let _ = line.shutdown(std::net::Shutdown::Both);
    done
}

/// A panic on any thread ends the rank: the others would wait for it until their timeouts.
fn end_on_panic() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default(panic);
        std::process::exit(101);
    }));
}

/// The exit code of a rank, after it has said why it failed.
fn reported(mut socket: &UnixStream, done: &Result<(), RankFailure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let why = why.to_string();
            let report = control::frame(&Report::Failed { why, time_ns: clock::now_ns() });
            // If nobody listens any more, the exit status is all there is to say.
            let _ = std::io::Write::write_all(&mut socket, &report);
            ExitCode::FAILURE
        }
    }
}

fn control_socket() -> Result<UnixStream, RankFailure> {
    use std::os::fd::AsFd;
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned();
    let descriptor = descriptor.map_err(cannot("no standard input"))?;
    let is_socket = rustix::fs::fstat(&descriptor)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_socket());
    if !is_socket {
        return Err(RankFailure::NoCoordinator);
    }
    Ok(UnixStream::from(descriptor))
}

fn run(socket: &UnixStream) -> Result<(), RankFailure> {
    // If the coordinator's process is killed, the kernel kills this one. The socket's end covers
    // the moment before this line, and a coordinator that goes without being killed.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(cannot("cannot ask to end with the coordinator"))?;
    let greeting = control::receive_greeting(socket).map_err(cannot("no shared memory"))?;
    let Greeting::Rank(memory) = greeting else {
        return sharing::keep(socket).map_err(cannot("cannot keep the shared memory's name"));
    };
    match orders(socket)? {
        Some((setup, plan)) => work(socket, setup, &plan, memory, Arc::default()),
        None => Ok(()),
    }
}

/// The setup of the rank's run, with the plan in its binary form; `None` when it is to run nothing.
fn orders(mut socket: &UnixStream) -> Result<Option<(Setup, Vec<u8>)>, RankFailure> {
    let setup = match control::read_frame(&mut socket).map_err(cannot("no orders"))? {
        Some(Order::Setup(setup)) => *setup,
        Some(_) | None => return Ok(None),
    };
    let plan = control::read_bytes(&mut socket, control::MAX_FRAME_BYTES);
    Ok(plan.map_err(cannot("no plan"))?.map(|plan| (setup, plan)))
}

/// Joins, runs the program and reports.
fn work(
    socket: &UnixStream,
    setup: Setup,
    plan: &[u8],
    memory: Option<OwnedFd>,
    held: Arc<Held>,
) -> Result<(), RankFailure> {
    let closing = Arc::new(OnceLock::new());
    listen(socket, &setup, closing.clone(), held.clone())?;
    let plan = Plan::from_bytes(plan)?;
    if let Some(device) = &setup.device {
        let start = Start { setup: &setup, socket, closing: &closing, held: &held };
        return crate::nccl::rank::run_rank(device, Arc::new(plan), &start);
    }
    let bytes = setup.wiring.segment_bytes;
    let join_timeout = Duration::from_nanos(setup.join_timeout_ns);
    if let Some(tcp) = &setup.tcp {
        let peers = Peers { socket, held: &held, timeout: join_timeout };
        let segment = peers.connect(tcp, &plan, &setup)?;
        return run_program(socket, &setup, plan, segment, &closing, &held);
    }
    let memory = match (memory, &setup.memory) {
        (Some(memory), _) => memory,
        (None, Some(path)) => {
            let opened = if setup.launched { open_memory(path) } else { sharing::open(path) };
            opened.map_err(cannot("cannot open the shared memory"))?
        }
        (None, None) => return Err(RankFailure::Unchecked("no shared memory was handed over")),
    };
    let segment = Segment::map(memory, bytes).map_err(cannot("cannot map the shared memory"))?;
    run_program(socket, &setup, plan, segment, &closing, &held)
}

/// Joins and runs the program, once its shared memory is there.
fn run_program(
    socket: &UnixStream,
    setup: &Setup,
    plan: Plan,
    segment: Arc<Segment>,
    closing: &Closing,
    held: &Arc<Held>,
) -> Result<(), RankFailure> {
    let program = Program::prepare(plan, setup, segment)?;
    let start_ns = match setup.launched {
        false => join(setup)?,
        true => held.join(socket, Duration::from_nanos(setup.join_timeout_ns))?,
    };
    home::settle(setup.rank.index());
    let started = program.employ_clerk(setup, start_ns, socket)?;
    let closed = started.clone();
    let _ = closing.set(Box::new(move || closed.abort()));
    held.serve(vec![started.clone()]);
    let longest_ns = program.timeouts_ns.iter().copied().max().unwrap_or_default();
    held.watch_rank_zero(Duration::from_nanos(longest_ns))?;
    if let Err(why) = program.run(&started, &held.gate) {
        // The notes so far explain the end.
        started.fail(why.to_string());
    }
    started.finish();
    // A launched rank's end is its launcher's to see: it fails if the run does. And who talks to
    // others by its own threads answers them until all are done.
    if setup.launched || setup.tcp.is_some() { held.leave() } else { Ok(()) }
}

/// Carries out the coordinator's orders, and ends the process on its order or when it is gone, whatever the
/// threads are doing.
fn listen(
    socket: &UnixStream,
    setup: &Setup,
    closing: Arc<Closing>,
    held: Arc<Held>,
) -> Result<(), RankFailure> {
    let grace = Duration::from_nanos(setup.grace_ns);
    let mut socket = socket.try_clone().map_err(cannot("cannot listen to the coordinator"))?;
    let listening = move || {
        let mut told_to_end = false;
        while let Ok(Some(order)) = control::read_frame::<Order>(&mut socket) {
            held.words.fetch_add(1, Ordering::Relaxed);
            // One that has not begun has none, nor a call that could be late.
            let clerks = held.clerks.get().map_or(&[][..], Vec::as_slice);
            match order {
                Order::Pause => {
                    held.gate.pause(true);
                    clerks.iter().for_each(|clerk| clerk.pause(true));
                }
                Order::Resume => {
                    clerks.iter().for_each(|clerk| clerk.pause(false));
                    held.gate.pause(false);
                }
                Order::Begin { start_ns } => held.tell(|told| told.start_ns = Some(start_ns)),
                Order::Peers(peers) => held.tell(|told| told.peers = Some(peers)),
                Order::Leave => held.tell(|told| told.leave = true),
                Order::GoOn => held.gate.hold_for_signal(false),
                Order::Dump => held.dump(),
                Order::Alive => clerks.iter().for_each(|clerk| clerk.hear_word()),
                Order::Die => {
                    eprintln!("lockstep rank: killed, an injected fault");
                    std::process::exit(1);
                }
                Order::Abort | Order::Setup(_) => {
                    told_to_end = true;
                    held.get_going(grace);
                    if let Some(close) = closing.get() {
                        close();
                    }
                    break;
                }
            }
        }
        // One that leaves by itself is not to be overtaken by the end of its line.
        if held.told.lock().unwrap_or_else(PoisonError::into_inner).leave {
            return;
        }
        if let Some(exit) = &held.exit {
            // As the end of a process would: nothing more is said on this line.
            let _ = socket.shutdown(std::net::Shutdown::Both);
            return exit();
        }
        if !told_to_end && !held.is_over() {
            held.end_alone(
                "connection to rank 0 lost: its process ended or hung up, or its machine did, or the \
                 network between",
            );
        }
        if held.launched {
            eprintln!("lockstep rank: the run was ended; rank 0 says why");
            held.stay(&socket);
            std::process::exit(1);
        }
        std::process::exit(0);
    };
    std::thread::Builder::new()
        .name("orders".to_owned())
        .spawn(listening)
        .map_err(cannot("cannot start a thread"))?;
    Ok(())
}
