//! From nothing to ranks that have all joined and begun.

use super::state::{Alarm, Coordinator, Phase};
use crate::host::control::{
    Order, PeerAddress, Report, START_KEY, Setup, TcpSetup, frame, joined_key,
};
use crate::host::landings::Landings;
use crate::host::launched::{memory_path, random_token};
use crate::host::limits;
use crate::host::process::RankProcess;
use crate::host::sharing::SharedMemory;
use crate::host::wiring::Wiring;
use crate::store::StoreServer;
use crate::{RunError, Transport, clock};
use lockstep_core::plan::Signal;
use lockstep_core::rank::GlobalRank;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval at which the coordinator looks whether all have joined.
const JOIN_LOOK: Duration = Duration::from_millis(2);

/// The reason that ranks that share no memory with rank 0 cannot run.
const NOT_HERE: &str = "it is on another machine than rank 0, or in another container, and shares no \
                        memory with it; leave out --transport shm";

impl Coordinator {
    pub(super) fn start_ranks(&mut self) -> Result<(), RunError> {
        let plan = &self.checked.plan;
        let options = &self.checked.options;
        let (device, is_host) = (self.checked.carrier.device(), self.checked.carrier.is_host());
        let wiring = match is_host {
            // Their messages are their device's, or MPI's.
            false => Wiring::none(),
            true => Wiring::of(plan, options.max_shared_bytes)?,
        };
        let (how, patience) = (options.sharing, options.join_timeout);
        let memory = SharedMemory::create(how, wiring.segment_bytes(), &self.launcher, patience)
            .map_err(RunError::system("create shared memory"))?;
        let store = StoreServer::start().map_err(RunError::system("serve the store"))?;
        let address = store.address();
        self.store = Some(store);
        let guests = match (&self.meeting, self.phase) {
            (Some(meeting), Phase::Joining { deadline_ns }) => meeting.gather(deadline_ns)?,
            _ => Vec::new(),
        };
        let far = guests.iter().find(|guest| !guest.same_machine);
        let over_tcp = match (options.transport, far) {
            _ if !is_host => false,
            (Transport::Tcp, _) | (Transport::Auto, Some(_)) => true,
            (Transport::Auto | Transport::SharedMemory, None) => false,
            (Transport::SharedMemory, Some(far)) => {
                let (rank, why) = (far.rank, NOT_HERE.to_owned());
                return Err(RunError::DidNotJoin { rank, why });
            }
        };
        let tcp = match over_tcp {
            true => Some(TcpSetup {
                token: random_token().map_err(RunError::system("read /dev/urandom"))?,
                local: guests.iter().all(|guest| guest.address.is_loopback()),
                landings: Vec::new(),
            }),
            false => None,
        };
        self.over_tcp = over_tcp;
        let mut landings = Landings::default();
        if over_tcp {
            landings = Landings::of(plan);
            limits::check_landings(plan, &landings, options)?;
        }
        let processes = match (device, &self.meeting) {
            (Some(device), _) if device.one_process() => 1,
            (_, Some(meeting)) => meeting.first(),
            (_, None) => plan.world_size,
        };
        let word_every_ns = self.meeting.is_none().then_some(self.word_every_ns());
        let setup = |rank: GlobalRank, memory: Option<PathBuf>, launched: bool| Setup {
            rank,
            wiring: wiring.of_rank(plan, rank),
            store: address,
            join_timeout_ns: clock::nanoseconds(options.join_timeout),
            grace_ns: clock::nanoseconds(options.grace),
            timeout_ns: options.timeout.map(clock::nanoseconds),
            record_messages: options.record_messages,
            patience: self.checked.patience,
            launched,
            tcp: tcp.clone().map(|tcp| TcpSetup { landings: landings.of_rank(plan, rank), ..tcp }),
            memory,
            device: device.cloned(),
            recorded_calls: options.recorded_calls,
            dump_at_end: options.dump_at_end,
            word_every_ns,
        };
        for rank in (0..processes).map(GlobalRank) {
            let environment = device.map(|device| device.environment(rank, plan.world_size));
            let environment = environment.unwrap_or_default();
            let started =
                RankProcess::start(&self.launcher, rank, memory.descriptor(), environment);
            let mut process = started.map_err(|cause| RunError::Spawn {
                rank,
                program: self.launcher.program.clone(),
                cause,
            })?;
            let named = memory.name().map(Path::to_path_buf);
            process.send(frame(&Order::Setup(Box::new(setup(rank, named, false)))));
            process.send(self.checked.plan_frame.clone());
            self.ranks.push(process);
        }
        for guest in guests {
            self.offsets_ns.insert(guest.rank, guest.offset_ns);
            let rank = guest.rank;
            let joined = RankProcess::joined(guest);
            let mut process = joined.map_err(RunError::system("talk to a rank"))?;
            // Those who are no children of ours find it by our process.
            let path = memory.descriptor().map(|memory| PathBuf::from(memory_path(memory)));
            let path = path.or_else(|| memory.name().map(Path::to_path_buf));
            process.send(frame(&Order::Setup(Box::new(setup(rank, path, true)))));
            process.send(self.checked.plan_frame.clone());
            self.ranks.push(process);
        }
        self.memory = Some(memory);
        Ok(())
    }

    /// Returns once every rank has joined.
    pub(super) fn wait_for_all(&mut self) -> Result<(), RunError> {
        loop {
            let Phase::Joining { deadline_ns } = self.phase else { return Ok(()) };
            let in_store = |rank: GlobalRank| {
                self.store.as_ref().is_some_and(|store| store.has(&joined_key(rank)))
            };
            let joined = |rank: &&RankProcess| rank.ready || in_store(rank.rank);
            let Some(absent) = self.ranks.iter().find(|rank| !joined(rank)) else {
                return Ok(());
            };
            let late = clock::now_ns() >= deadline_ns;
            if late {
                let why = format!("it did not within {:?}", self.checked.options.join_timeout);
                return Err(RunError::DidNotJoin { rank: absent.rank, why });
            }
            self.wait_for_something(Some(JOIN_LOOK));
            self.introduce();
            self.hear_all();
            if self.ranks.iter().any(|rank| rank.ended.is_some()) {
                // A rank that fails because another is gone is heard after that one, if both are heard now.
                self.hear_all();
                let ended = self.ranks.iter().filter(|rank| rank.ended.is_some());
                if let Some(rank) = ended.min_by_key(|rank| rank.failed_ns) {
                    let why = rank.how_it_ended();
                    return Err(RunError::DidNotJoin { rank: rank.rank, why });
                }
            }
        }
    }

    /// Takes the ranks' messages while they join. It also sends: a plan can be more than a socket holds
    /// before the rank reads.
    fn hear_all(&mut self) {
        for rank in &mut self.ranks {
            for report in rank.hear() {
                match report {
                    Report::Failed { why, time_ns } => {
                        rank.failure = Some(why);
                        rank.failed_ns = Some(time_ns);
                    }
                    Report::Device(device) => self.devices.push(device),
                    Report::Joined => rank.ready = true,
                    Report::Listening { port } => rank.port = Some(port),
                    Report::Events(_)
                    | Report::TimedOut
                    | Report::DumpPart(_)
                    | Report::Dumped { .. }
                    | Report::AtSignal(_)
                    | Report::Done => {}
                }
            }
        }
    }

    /// Tells every rank where the others' connections come in, once all listen.
    fn introduce(&mut self) {
        if !self.over_tcp || self.introduced {
            return;
        }
        let address = |rank: &RankProcess| Some(PeerAddress { ip: rank.ip(), port: rank.port? });
        let Some(peers) = self.ranks.iter().map(address).collect() else { return };
        self.introduced = true;
        self.order(&Order::Peers(peers));
    }

    /// Starts the clock and lets the ranks go.
    pub(super) fn begin(&mut self) {
        self.start_ns = clock::now_ns();
        self.alive_ns = self.start_ns;
        let limit = clock::nanoseconds(self.checked.options.max_duration);
        self.phase = Phase::Running { deadline_ns: self.start_ns.saturating_add(limit) };
        for Signal { rank, after_ms, what } in &self.checked.signals {
            let due = self.start_ns.saturating_add(after_ms.saturating_mul(1_000_000));
            self.alarms.push((due, Alarm::of(*rank, *what)));
        }
        if let Some(store) = &self.store {
            store.set(START_KEY, self.start_ns.to_string().as_bytes());
        }
        for rank in &mut self.ranks {
            if let Some(offset_ns) = self.offsets_ns.get(&rank.rank) {
                let start_ns = self.start_ns.saturating_add_signed(*offset_ns);
                rank.send(frame(&Order::Begin { start_ns }));
            }
        }
    }
}
