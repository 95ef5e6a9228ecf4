//! A rank's process on a device: opens it, meets the others, puts its program on streams, reports.
//!
//! The host executor starts the process, lets it join, watches its calls and ends it. All memory is made
//! before the first operation: making or freeing it later would wait for the whole device, and so for ever
//! behind a collective whose peer does not come.
//!
//! A paused run holds the programs before their next operations, as on the host; operations that are already
//! on streams go on.

mod backlog;
mod mailbox;
mod program;
mod timeline;
mod times;

use super::communicator::{self, Communicator, UniqueId};
use super::compiler;
use super::device::{self, Device};
use super::error::DeviceError;
use super::lower::{Communicators, Lowered, Way, lower};
use super::options::{Collectives, DeviceSetup, Sharing};
use super::table::Nccl;
use crate::host::control::{Report, frame};
use crate::host::rank::clerk::{Clerk, Job};
use crate::host::rank::failure::{RankFailure, cannot};
use crate::host::rank::recorder::Recording;
use crate::host::rank::start::Start;
use crate::store::{Store, StoreClient};
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use mailbox::Mailboxes;
use program::{Calibration, Links, Program};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use times::timeout_ns;

/// Interval at which a rank that has finished looks whether the others have.
const FAREWELL_LOOK: Duration = Duration::from_millis(2);

/// Streams that do not wait for each other (`CUDA_DEVICE_MAX_CONNECTIONS`), but for the one of the
/// timelines.
const MOST_STREAMS: usize = 31;

/// The whole life of a rank's process on a device, from joining to its last report.
pub(crate) fn run_rank(
    setup: &DeviceSetup,
    plan: Arc<Plan>,
    start: &Start<'_>,
) -> Result<(), RankFailure> {
    let done = match setup.one_process() {
        true => run_logical(setup, plan, start),
        false => run_process(setup, plan, start),
    };
    // Events before a failure are handed in first.
    if let (Err(_), Some(close)) = (&done, start.closing.get()) {
        close();
    }
    done
}

/// A rank that has its process and its device.
fn run_process(setup: &DeviceSetup, plan: Arc<Plan>, start: &Start<'_>) -> Result<(), RankFailure> {
    let rank = start.setup.rank;
    let limit = Duration::from_nanos(start.setup.join_timeout_ns);
    let communicators = Communicators::of(&plan);
    let way = Way {
        collectives: setup.collectives,
        messages: start.setup.record_messages,
        processes: true,
    };
    let lowered = lower(&plan, rank, &communicators, way)?;
    let path = setup.nccl.as_deref();
    let path = path.ok_or(RankFailure::Unchecked("no path to NCCL"))?;
    let nccl = communicator::load(path)?;
    let driver = device::driver(&setup.cuda)?;
    let devices = device::count(&driver)?;
    if setup.sharing == Sharing::None && plan.world_size > devices {
        let visible_devices = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let ranks = plan.world_size;
        return Err(DeviceError::TooFewDevices { ranks, devices, visible_devices }.into());
    }
    let nvrtc = compiler::load(&setup.nvrtc)?;
    let device = Arc::new(Device::open(driver, &nvrtc, rank.0 % devices)?);
    let name = device.describe(driver_version().as_deref());
    let version = communicator::version(&nccl)?;
    say(start, format!("{name}, NCCL {version}{}", stand_in(path)));
    let mut store = StoreClient::connect(start.setup.store, limit)?;
    if setup.sharing == Sharing::None {
        refuse_duplicates(&mut store, rank, plan.world_size, &device.bus_id)?;
    }
    let stream = device.stream()?;
    let calibration = Calibration::of(&device, stream)?;
    let world_size = plan.world_size;
    let mut meeting = Meeting { nccl: &nccl, store: &mut store, rank, world_size, limit };
    let links = meeting.join_all(&communicators)?;
    let all = links.clone();
    let links = Links::Nccl(links);
    let prepared =
        Program::prepare(plan.clone(), rank, lowered, &communicators, device.clone(), links)?;
    let socket = start.socket.try_clone();
    let socket = socket.map_err(cannot("cannot report"))?;
    let socket = Arc::new(Mutex::new(socket));
    let start_ns = start.join()?;
    let clerk = employ(start, &plan, rank, start_ns, socket)?;
    let ready = prepared.start(clerk.clone(), calibration, all.clone(), stream, start)?;
    let (timeline, closing) = (ready.timeline(), clerk.clone());
    let (aborted, used) = (all.clone(), device.clone());
    let grace = Duration::from_nanos(start.setup.grace_ns);
    let _ = start.closing.set(Box::new(move || {
        timeline.close();
        closing.abort();
        // Kernels that wait for a peer end by this; the process then goes without them.
        Communicator::abort_all(&aborted, &used, grace);
    }));
    start.serve(vec![clerk.clone()]);
    ready.run(&start.gate())?;
    clerk.finish();
    // A rank that goes while another still receives from it would be missed: all go together. One
    // that never comes here is found by its watchdog, and the coordinator ends this one too.
    farewell(&mut store, rank, plan.world_size)?;
    // The coordinator's time for leaving has begun, too, and who is there at its end is killed. A
    // communicator that is not given back by then is aborted, or ends with the process.
    let until = Instant::now() + Duration::from_nanos(start.setup.grace_ns) / 2;
    for communicator in all {
        let _ = communicator.destroy(until.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// All ranks, as threads of this process on one device.
fn run_logical(setup: &DeviceSetup, plan: Arc<Plan>, start: &Start<'_>) -> Result<(), RankFailure> {
    let communicators = Communicators::of(&plan);
    let way = Way {
        collectives: Collectives::Schedules,
        messages: start.setup.record_messages,
        processes: false,
    };
    let ranks = (0..plan.world_size).map(GlobalRank);
    let lowered: Result<Vec<Lowered>, _> =
        ranks.clone().map(|rank| lower(&plan, rank, &communicators, way)).collect();
    let lowered = lowered?;
    let members: usize = communicators.all().map(|(_, members)| members.len()).sum();
    let streams = plan.world_size as usize + members;
    if streams > MOST_STREAMS {
        let (ranks, limit) = (plan.world_size, MOST_STREAMS);
        return Err(RankFailure::Streams { ranks, streams, limit });
    }
    let driver = device::driver(&setup.cuda)?;
    device::count(&driver)?;
    let nvrtc = compiler::load(&setup.nvrtc)?;
    let device = Arc::new(Device::open(driver, &nvrtc, 0)?);
    let name = device.describe(driver_version().as_deref());
    say(start, format!("{name}, no NCCL{}", stand_in(&setup.cuda)));
    let stream = device.stream()?;
    let calibration = Calibration::of(&device, stream)?;
    let boxes = Arc::new(Mailboxes::of(&device, stream, &lowered, &communicators)?);
    let socket = start.socket.try_clone();
    let socket = socket.map_err(cannot("cannot report"))?;
    let socket = Arc::new(Mutex::new(socket));
    let mut prepared = Vec::new();
    for (rank, lowered) in ranks.zip(lowered) {
        let links = Links::Boxes(boxes.post());
        let (plan, device) = (plan.clone(), device.clone());
        let program = Program::prepare(plan, rank, lowered, &communicators, device, links)?;
        prepared.push((rank, program));
    }
    let start_ns = start.join()?;
    let mut ready = Vec::new();
    let mut clerks = Vec::new();
    for (rank, program) in prepared {
        let clerk = employ(start, &plan, rank, start_ns, socket.clone())?;
        clerks.push(clerk.clone());
        ready.push(program.start(clerk, calibration, Vec::new(), stream, start)?);
    }
    let timelines: Vec<_> = ready.iter().map(|ready| ready.timeline()).collect();
    let closing = clerks.clone();
    let _ = start.closing.set(Box::new(move || {
        timelines.iter().for_each(|timeline| timeline.close());
        closing.iter().for_each(|clerk| clerk.abort());
    }));
    start.serve(clerks.clone());
    let gate = start.gate();
    let (end, ended) = mpsc::channel();
    for (ready, clerk) in ready.into_iter().zip(clerks) {
        let (device, gate, end) = (device.clone(), gate.clone(), end.clone());
        let program = move || {
            let ran = device.make_current().map_err(RankFailure::from);
            let ran = ran.and_then(|()| ready.run(&gate));
            if ran.is_ok() {
                clerk.finish_part();
            }
            let _ = end.send(ran);
        };
        let named = std::thread::Builder::new().name("logical rank".to_owned());
        let began = named.spawn(program);
        began.map_err(cannot("cannot start a thread"))?;
    }
    drop(end);
    // In the order in which they end: one that fails is not to wait for those that wait for it. A
    // panic ends the process.
    ended.iter().collect::<Result<(), RankFailure>>()?;
    write(&socket, &Report::Done);
    Ok(())
}

fn employ(
    start: &Start<'_>,
    plan: &Arc<Plan>,
    rank: GlobalRank,
    start_ns: u64,
    socket: Arc<Mutex<UnixStream>>,
) -> Result<Arc<Clerk>, RankFailure> {
    let timeouts = plan.groups.iter().map(|group| timeout_ns(start, group.timeout_ms()));
    let job = Job {
        plan: plan.clone(),
        rank,
        start_ns,
        messages: start.setup.record_messages,
        shortest_timeout_ns: timeouts.min().unwrap_or(u64::MAX),
        word_every_ns: start.setup.word_every_ns,
    };
    let recording =
        Recording { calls: start.setup.recorded_calls, at_end: start.setup.dump_at_end };
    Clerk::employ(job, recording, socket)
}

/// Reports the device that the rank computes on.
fn say(start: &Start<'_>, device: String) {
    let mut socket = start.socket;
    // A coordinator that is gone ends this process through another thread.
    let _ = socket.write_all(&frame(&Report::Device(device)));
}

fn write(socket: &Mutex<UnixStream>, report: &Report) {
    let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = socket.write_all(&frame(report));
}

/// The kernel driver's version, where it shows it.
fn driver_version() -> Option<String> {
    let version = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(version.trim().to_owned()).filter(|version| !version.is_empty())
}

/// The words of a trace about a library that only stands in for the real one.
fn stand_in(path: &Path) -> String {
    super::probe::stand_in(path).map(|words| format!(" [{words}]")).unwrap_or_default()
}

/// Returns when all ranks have finished their programs.
fn farewell(store: &mut StoreClient, rank: GlobalRank, world_size: u32) -> Result<(), RankFailure> {
    let key = |rank: u32| format!("finished/{rank}");
    store.set(&key(rank.0), &[])?;
    let keys: Vec<String> = (0..world_size).map(key).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    // As long as it takes: programs end when they do, and the coordinator ends those that do not.
    while !store.check(&keys)? {
        std::thread::sleep(FAREWELL_LOOK);
    }
    Ok(())
}

/// Refuses ranks that would share a GPU, before NCCL does. Every rank sees the same.
fn refuse_duplicates(
    store: &mut StoreClient,
    rank: GlobalRank,
    world_size: u32,
    bus_id: &str,
) -> Result<(), RankFailure> {
    let key = |rank: u32| format!("gpu/{rank}");
    store.set(&key(rank.0), bus_id.as_bytes())?;
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for second in 0..world_size {
        let bus_id = store.get(&key(second))?;
        if let Some(first) = seen.iter().position(|seen| *seen == bus_id) {
            let bus_id = String::from_utf8_lossy(&bus_id).into_owned();
            let first = first as u32;
            return Err(DeviceError::DuplicateDevice { first, second, bus_id }.into());
        }
        seen.push(bus_id);
    }
    Ok(())
}

/// The meeting of a communicator's ranks.
struct Meeting<'a> {
    nccl: &'a Arc<Nccl>,
    store: &'a mut StoreClient,
    rank: GlobalRank,
    world_size: u32,
    limit: Duration,
}

impl Meeting<'_> {
    /// The rank's side of every communicator that it is a member of, by their places; all ranks
    /// make theirs in the same order, so that none waits for one that waits for it. Those of a job
    /// whose first holds all ranks are split off it, as c10d's `split_group` does.
    fn join_all(
        &mut self,
        communicators: &Communicators,
    ) -> Result<Vec<Arc<Communicator>>, RankFailure> {
        let mut all: Vec<Arc<Communicator>> = Vec::new();
        let world = communicators.all().next().map_or(0, |(_, members)| members.len());
        let splits = world == self.world_size as usize;
        for (id, members) in communicators.all() {
            let place = members.iter().position(|member| *member == self.rank);
            if let Some(world) = all.first().filter(|_| splits) {
                let part = world.split(place.map(|place| place as u32), self.limit)?;
                all.extend(part.map(Arc::new));
                continue;
            }
            let Some(place) = place else { continue };
            let key = format!("nccl/{}", id.0);
            if place == 0 {
                let unique = communicator::unique_id(self.nccl)?;
                self.store.set(&key, &unique)?;
            }
            let unique = self.store.get(&key)?;
            let unique: UniqueId =
                unique.try_into().map_err(|_| RankFailure::NotInStore("NCCL id"))?;
            let (size, place) = (members.len() as u32, place as u32);
            let nccl = self.nccl.clone();
            let communicator = Communicator::join(nccl, &unique, size, place, self.limit)?;
            all.push(Arc::new(communicator));
        }
        Ok(all)
    }
}
