//! The meeting of a launched job's processes: they find each other and connect to rank 0's.
//!
//! Rank 0 listens on a port of its own and puts it into the store, with a secret that whoever
//! connects has to know; the store itself has none, as c10d's. On every connection the two sides
//! check that they mean the same plan and compare their clocks (the offset at the shortest of
//! several round trips, as NTP takes it), so that one trace can hold the events of several machines.

use super::greeting::{
    Asking, Came, Guest, Hello, Token, greet, introduce, is_open, line_of, settle,
};
use super::meeting_file::MeetingFile;
use super::{Farewell, Launch};
use crate::host::control::frame;
use crate::host::greeters::{Greeters, Stranger};
use crate::store::{PrefixStore, Store, StoreClient, StoreError, StoreServer};
use crate::{RunError, clock, shm};
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The protocol between processes of one job: one of another build says so.
const VERSION: u32 = 3;

/// The key under which rank 0 publishes how it is reached.
const MEETING_KEY: &str = "meeting";

/// Interval at which rank 0 looks for new connections, or a name is looked up again.
const LOOK: Duration = Duration::from_millis(5);

/// Time that a previous run in the same store may take to be gone: its starter may have waited for
/// the other ranks only.
pub(super) const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The entry that rank 0 puts into the store.
#[derive(Debug, Serialize, Deserialize)]
struct Invitation {
    version: u32,
    port: u16,
    token: Token,
    /// A memory file of rank 0's process that begins with the token: a process that can read it is on the
    /// same machine.
    probe: String,
}

/// Rank 0's side, open for the others.
#[derive(Debug)]
pub(crate) struct Meeting {
    /// The first rank that comes; those before are rank 0's own children.
    first: u32,
    world_size: u32,
    token: Token,
    plan: u64,
    listener: TcpListener,
    /// Kept open while others look at it.
    _probe: OwnedFd,
    /// Kept for ranks that come late; gone with the run.
    _store: Option<PrefixStore<StoreClient>>,
    _server: Option<StoreServer>,
    /// The file of the meeting if the store is a file, which is removed with it.
    _file: Option<MeetingFile>,
    farewell: Farewell,
}

pub(super) fn store_failed(cause: StoreError) -> RunError {
    RunError::Store { cause }
}

fn digest(plan: &Plan) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&plan.to_bytes())
}

/// The store's address; a name that is not known yet may be soon, as in Kubernetes.
fn resolve(launch: &Launch, timeout: Duration) -> Result<SocketAddr, RunError> {
    let started = Instant::now();
    loop {
        let found = (launch.master_addr.as_str(), launch.master_port).to_socket_addrs();
        let why = match found.map(|found| found.min_by_key(|address| !address.is_ipv4())) {
            Ok(Some(address)) => return Ok(address),
            Ok(None) => io::Error::other("the name has no address"),
            Err(error) => error,
        };
        if started.elapsed() >= timeout {
            let address = launch.master_addr.clone();
            return Err(RunError::Unresolved { address, cause: why });
        }
        std::thread::sleep(LOOK * 20);
    }
}

/// The run's part of the store. A store that outlives a job keeps the attempts apart.
fn own_part(client: StoreClient, launch: &Launch) -> PrefixStore<StoreClient> {
    PrefixStore::new(format!("lockstep/{}", launch.attempt), client)
}

/// A secret for one run.
pub(crate) fn random_token() -> io::Result<Token> {
    let mut token = Token::default();
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut token)?;
    Ok(token)
}

impl Meeting {
    /// Opens the store, or joins the one that is served, and listens.
    ///
    /// # Errors
    /// When the store is out of reach or the system refuses.
    pub(in crate::host) fn open(
        launch: &Launch,
        plan: &Plan,
        timeout: Duration,
    ) -> Result<Meeting, RunError> {
        let address = resolve(launch, timeout)?;
        let server = match launch.store_is_served {
            true => None,
            // As c10d: on every address of this machine, unless the job is on this one only.
            false => match StoreServer::listen(listening_address(address)) {
                Ok(server) => Some(server),
                // A PyTorch process serves one there, or nothing answers and that is said below.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
                Err(cause) => return Err(RunError::System { doing: "serve the store", cause }),
            },
        };
        let client = StoreClient::connect(address, timeout).map_err(store_failed)?;
        let own = client.local_address().map_err(RunError::system("find the store's address"))?;
        let mut store = own_part(client, launch);
        let address = listening_address(own).ip();
        let (meeting, invitation) = Meeting::listen(address, 1, launch.world_size, plan)?;
        // A store that outlives jobs may hold the last one's, which may be about to end.
        let started = Instant::now();
        while let Some(pid) = other_leader(&mut store).map_err(store_failed)? {
            if started.elapsed() >= timeout.min(ENDS_WITHIN) {
                let (address, port) = (launch.master_addr.clone(), launch.master_port);
                return Err(RunError::RankZeroTwice { address, port, pid });
            }
            std::thread::sleep(LOOK * 20);
        }
        store.set(MEETING_KEY, &invitation).map_err(store_failed)?;
        Ok(Meeting { _store: Some(store), _server: server, ..meeting })
    }

    /// Listens on this address for the ranks from `first` on. Returns also the invitation for them.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn listen(
        address: IpAddr,
        first: u32,
        world_size: u32,
        plan: &Plan,
    ) -> Result<(Meeting, Vec<u8>), RunError> {
        let any = SocketAddr::new(address, 0);
        let listener = TcpListener::bind(any).map_err(RunError::system("listen for ranks"))?;
        listener.set_nonblocking(true).map_err(RunError::system("listen for ranks"))?;
        let port = listener.local_addr().map_err(RunError::system("listen for ranks"))?.port();
        let token = random_token().map_err(RunError::system("read /dev/urandom"))?;
        let probe = shm::Segment::create(token.len())
            .and_then(|probe| {
                rustix::io::pwrite(&probe, &token, 0)?;
                Ok(probe)
            })
            .map_err(RunError::system("create shared memory"))?;
        let path = memory_path(probe.as_fd());
        let invitation = Invitation { version: VERSION, port, token, probe: path };
        let bytes = postcard::to_stdvec(&invitation).unwrap_or_default();
        let plan = digest(plan);
        let (_store, _server, _file) = (None, None, None);
        let meeting = Meeting {
            first,
            world_size,
            token,
            plan,
            listener,
            _probe: probe,
            _store,
            _server,
            _file,
            farewell: Farewell::default(),
        };
        Ok((meeting, bytes))
    }

    /// The meeting, with a store in a file that stays as long.
    pub(super) fn with_file(self, file: MeetingFile) -> Meeting {
        Meeting { _file: Some(file), ..self }
    }

    /// The meeting, with ranks that stay until this is gone.
    pub(in crate::host) fn with_farewell(self, farewell: Farewell) -> Meeting {
        Meeting { farewell, ..self }
    }

    /// The first rank that comes.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Waits until all have come, in rank order.
    ///
    /// # Errors
    /// When they have not by `deadline_ns` on the clock, one has another plan, or two are one rank.
    pub(crate) fn gather(&self, deadline_ns: u64) -> Result<Vec<Guest>, RunError> {
        let greeters = Greeters::new();
        let (token, plan) = (self.token, self.plan);
        let (first, world_size) = (self.first, self.world_size);
        let mut guests: Vec<Option<Guest>> = (first..world_size).map(|_| None).collect();
        loop {
            greeters.admit(&self.listener, move |stranger, address| {
                greet(stranger, address.ip().to_canonical(), token, plan, first..world_size)
            });
            while let Some(came) = greeters.next() {
                let guest = match came {
                    Came::Guest(guest) => guest,
                    Came::Refused(rank, why) => return Err(RunError::DidNotJoin { rank, why }),
                };
                let slot = guest.rank.index().checked_sub(first as usize);
                let Some(slot) = slot.and_then(|slot| guests.get_mut(slot)) else { continue };
                // One that was started again comes in the place of the one that is gone.
                if let Some(before) = slot.as_ref().filter(|before| is_open(&before.line)) {
                    let why = format!(
                        "two processes say that they are it ({} and {}); give each a RANK of its own",
                        before.pid, guest.pid
                    );
                    return Err(RunError::DidNotJoin { rank: guest.rank, why });
                }
                self.farewell.keep(&guest.line);
                *slot = Some(guest);
            }
            let Some(absent) = guests.iter().position(Option::is_none) else {
                return Ok(guests.into_iter().flatten().collect());
            };
            if clock::now_ns() >= deadline_ns {
                let missing = guests.iter().filter(|guest| guest.is_none()).count();
                let why = format!(
                    "it did not connect in time ({missing} of {} ranks are missing); look at its \
                     own output, and whether its machine reaches rank 0's",
                    self.world_size
                );
                return Err(RunError::DidNotJoin { rank: GlobalRank(absent as u32 + first), why });
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A path under which processes of this machine find a memory file of this one.
pub(crate) fn memory_path(memory: BorrowedFd<'_>) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd())
}

/// This machine only, if that is where the store is; else every address.
fn listening_address(store: SocketAddr) -> SocketAddr {
    let any = match store.ip() {
        ip if ip.is_loopback() => ip,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, store.port())
}

/// Finds rank 0 and connects to it; its orders follow on the connection.
///
/// # Errors
/// When the store or rank 0 is out of reach, or rank 0 refuses.
pub(in crate::host) fn attend(
    launch: &Launch,
    plan: &Plan,
    timeout: Duration,
) -> Result<UnixStream, RunError> {
    let started = Instant::now();
    let address = resolve(launch, timeout)?;
    let client = StoreClient::connect(address, timeout).map_err(store_failed)?;
    let mut store = own_part(client, launch);
    loop {
        let invitation = store.get(MEETING_KEY).map_err(store_failed)?;
        match accept(launch.rank, plan, address.ip(), &invitation, timeout) {
            // A store that outlives jobs may still hold the last one's.
            Err(RunError::System { .. }) if started.elapsed() < timeout => {
                std::thread::sleep(LOOK * 20);
            }
            met => return met,
        }
    }
}

/// Connects to rank 0 by the invitation; its orders follow on the connection.
///
/// # Errors
/// When rank 0 is out of reach, or refuses.
pub(crate) fn accept(
    rank: GlobalRank,
    plan: &Plan,
    rank_zero: IpAddr,
    invitation: &[u8],
    timeout: Duration,
) -> Result<UnixStream, RunError> {
    let no_meeting = |why: String| RunError::DidNotJoin { rank, why };
    let invitation: Invitation = postcard::from_bytes(invitation)
        .map_err(|error| no_meeting(format!("rank 0 has left something else: {error}")))?;
    if invitation.version != VERSION {
        return Err(no_meeting("rank 0 runs another version of lockstep".to_owned()));
    }
    // Rank 0 is where the store is: PyTorch's rule, and torchrun's.
    let rank_zero = SocketAddr::new(rank_zero, invitation.port);
    let hello = Hello {
        token: invitation.token,
        rank,
        world_size: plan.world_size,
        pid: std::process::id(),
        plan: digest(plan),
        same_machine: begins_with(&invitation.probe, &invitation.token),
    };
    let lost = |cause| RunError::System { doing: "reach rank 0", cause };
    let stream = TcpStream::connect_timeout(&rank_zero, timeout).map_err(lost)?;
    let mut host = Stranger::new(stream).map_err(lost)?;
    let offset_ns = introduce(&mut host, &hello)?;
    let said = host.stream.write_all(&frame(&Asking::Offset(offset_ns)));
    said.and_then(|()| settle(host)).map(line_of).map_err(lost)
}

/// True if rank 0's memory is visible on this machine.
pub(super) fn is_here(invitation: &[u8]) -> bool {
    let invitation = postcard::from_bytes::<Invitation>(invitation);
    invitation.is_ok_and(|invitation| begins_with(&invitation.probe, &invitation.token))
}

/// The process of the rank 0 that meets its ranks in a store already.
fn other_leader(store: &mut PrefixStore<StoreClient>) -> Result<Option<u32>, StoreError> {
    Ok(match store.check(&[MEETING_KEY])? {
        true => leader(&store.get(MEETING_KEY)?),
        false => None,
    })
}

/// The process of the rank 0 that left an invitation, if it is on this machine and still there.
pub(super) fn leader(invitation: &[u8]) -> Option<u32> {
    let Invitation { probe, token, .. } = postcard::from_bytes(invitation).ok()?;
    let pid = probe.strip_prefix("/proc/")?.split('/').next()?.parse().ok()?;
    begins_with(&probe, &token).then_some(pid)
}

/// True if a memory file can be read here and begins with the token of the expected one.
fn begins_with(path: &str, token: &Token) -> bool {
    let Ok(mut file) = std::fs::File::open(path) else { return false };
    let mut found = Token::default();
    io::Read::read_exact(&mut file, &mut found).is_ok() && found == *token
}
