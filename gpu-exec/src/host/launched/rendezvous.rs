//! The rendezvous at which ranks find each other, in the words of
//! `init_process_group(init_method=...)`: `env://`, `tcp://HOST:PORT` and `file:///PATH`. Who a
//! process is comes from its launcher's variables.

use super::meeting::{ENDS_WITHIN, Meeting, accept, is_here, leader, store_failed};
use super::meeting_file::{MEETING_KEY, MeetingFile, part};
use super::{Launch, LaunchError};
use crate::RunError;
use crate::store::{FileStore, PrefixStore, Store, StoreError};
use lockstep_core::plan::Plan;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Interval at which a rank looks whether a file holds another invitation than one that leads nowhere.
const LOOK: Duration = Duration::from_millis(100);

/// Time that a rank waits for an answer at an address that may be the last job's, before it looks again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

const HOST_KEY: &str = "host";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rendezvous {
    /// `MASTER_ADDR` and `MASTER_PORT` say where the store is.
    #[default]
    Environment,
    /// A TCP store, which rank 0 or another process serves.
    Tcp {
        /// A name or an address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// The store is a file, which all ranks see.
    File(PathBuf),
}

/// The reason that a text is no rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RendezvousError {
    /// None of the three forms.
    #[error("a rendezvous is env://, tcp://HOST:PORT or file:///PATH")]
    Form,
    /// Not the path of a file, from the root on.
    #[error(
        "a rendezvous is env://, tcp://HOST:PORT or file:///PATH, with the whole path of a file"
    )]
    Path,
}

impl FromStr for Rendezvous {
    type Err = RendezvousError;

    fn from_str(text: &str) -> Result<Rendezvous, RendezvousError> {
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') && !path.ends_with('/') {
                true => Ok(Rendezvous::File(path.into())),
                false => Err(RendezvousError::Path),
            };
        }
        if let Some(address) = text.strip_prefix("tcp://") {
            let parts = address.rsplit_once(':').and_then(|(host, port)| {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                (!host.is_empty()).then_some((host.to_owned(), port.parse().ok()?))
            });
            let (host, port) = parts.ok_or(RendezvousError::Form)?;
            return Ok(Rendezvous::Tcp { host, port });
        }
        match text {
            "env://" => Ok(Rendezvous::Environment),
            _ => Err(RendezvousError::Form),
        }
    }
}

impl Launch {
    /// Reads this process's rank from its environment, and meets the others there.
    ///
    /// # Errors
    /// When no launcher has set the process's rank.
    pub fn at(rendezvous: &Rendezvous) -> Result<Launch, LaunchError> {
        Launch::from_variables_at(rendezvous, |name| std::env::var(name).ok())
    }

    fn from_variables_at(
        rendezvous: &Rendezvous,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Launch, LaunchError> {
        let (address, port, file) = match rendezvous {
            Rendezvous::Environment => return Launch::from_variables(variable),
            Rendezvous::Tcp { host, port } => (host.clone(), *port, None),
            // Nothing is looked for at an address.
            Rendezvous::File(path) => (Ipv4Addr::LOCALHOST.to_string(), 0, Some(path.clone())),
        };
        let launch = Launch::from_variables(|name| match name {
            "MASTER_ADDR" => Some(address.clone()),
            "MASTER_PORT" => Some(port.to_string()),
            // The agent's store is elsewhere.
            "TORCHELASTIC_USE_AGENT_STORE" => None,
            _ => variable(name),
        })?;
        Ok(Launch { file, ..launch })
    }
}

/// The run's part of the file.
fn part_of(
    path: &Path,
    launch: &Launch,
    timeout: Duration,
) -> Result<PrefixStore<FileStore>, StoreError> {
    let mut store = FileStore::open(path, Some(launch.world_size))?;
    store.set_timeout(timeout);
    Ok(PrefixStore::new(part(launch), store))
}

/// True if the file was removed since it was opened, by a rank 0 that met in it before.
fn was_removed(error: &StoreError) -> bool {
    matches!(error, StoreError::File { cause, .. } if cause.kind() == ErrorKind::StaleNetworkFileHandle)
}

/// Rank 0's side: listens, and writes down where.
///
/// # Errors
/// When the file cannot be used, or another run's rank 0 is still there that meets in it.
pub(in crate::host) fn open(
    path: &Path,
    launch: &Launch,
    plan: &Plan,
    timeout: Duration,
) -> Result<Meeting, RunError> {
    let started = Instant::now();
    // The others' addresses are unknown yet; a rank that comes has to know the run's secret.
    let any = Ipv4Addr::UNSPECIFIED.into();
    let (meeting, invitation) = Meeting::listen(any, 1, launch.world_size, plan)?;
    let named = std::env::var("MASTER_ADDR").ok().filter(|name| !name.is_empty());
    let host = match named {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map_err(RunError::system("read this machine's name"))?,
    };
    loop {
        let (of_another, done) = match invite(path, launch, timeout, host.trim(), &invitation) {
            Ok(Ok(file)) => return Ok(meeting.with_file(file)),
            Ok(Err(pid)) => {
                let path = path.to_owned();
                (
                    RunError::MeetingInUse { path, pid },
                    started.elapsed() >= timeout.min(ENDS_WITHIN),
                )
            }
            Err(error) => {
                let done = !was_removed(&error) || started.elapsed() >= timeout;
                (store_failed(error), done)
            }
        };
        if done {
            return Err(of_another);
        }
        std::thread::sleep(LOOK);
    }
}

/// Writes the invitation into the file. If another run's invitation is there whose rank 0 is alive on this
/// machine, returns its process id; that of a dead one is overwritten.
fn invite(
    path: &Path,
    launch: &Launch,
    timeout: Duration,
    host: &str,
    invitation: &[u8],
) -> Result<Result<MeetingFile, u32>, StoreError> {
    let mut store = part_of(path, launch, timeout)?;
    if store.check(&[MEETING_KEY])?
        && let Some(pid) = leader(&store.get(MEETING_KEY)?)
    {
        return Ok(Err(pid));
    }
    store.set(HOST_KEY, host.as_bytes())?;
    store.set(MEETING_KEY, invitation)?;
    Ok(Ok(MeetingFile { store, launch: launch.clone(), invitation: invitation.to_vec() }))
}

/// The function that takes the file away where rank 0 cannot, because it is gone.
pub(super) type TakeAway = Box<dyn Fn() + Send + Sync>;

/// Any other rank's side: reads rank 0's address and connects to it.
///
/// # Errors
/// When the file cannot be used, or no living rank 0 has left an invitation there in time.
pub(in crate::host) fn attend(
    path: &Path,
    launch: &Launch,
    plan: &Plan,
    timeout: Duration,
) -> Result<(UnixStream, TakeAway), RunError> {
    let started = Instant::now();
    // The last contents that were found there.
    let mut found = Vec::new();
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        let met = match invited(path, launch, left) {
            Ok((host, invitation)) => {
                found.clone_from(&invitation);
                meet(&host, &invitation, launch, plan, timeout)
            }
            Err(cause) => Err(store_failed(cause)),
        };
        // A file that outlives jobs may still hold the last one's, or that one takes it away just now.
        let again = match &met {
            Err(RunError::Store { cause }) => was_removed(cause),
            Err(RunError::System { .. } | RunError::Unresolved { .. }) => true,
            _ => false,
        };
        if !again || started.elapsed() >= timeout {
            let (path, launch) = (path.to_owned(), launch.clone());
            let rank = launch.rank;
            let shown = path.display().to_string();
            let take_away = move || {
                if path.exists()
                    && let Ok(store) = part_of(&path, &launch, ENDS_WITHIN)
                {
                    let (launch, invitation) = (launch.clone(), found.clone());
                    drop(MeetingFile { store, launch, invitation });
                }
            };
            return match met {
                Ok(line) => Ok((line, Box::new(take_away))),
                // Rank 0 is there, and takes the file away itself.
                Err(error @ RunError::DidNotJoin { .. }) => Err(error),
                Err(error) => {
                    take_away();
                    Err(match error {
                        RunError::Store { cause } if !matches!(cause, StoreError::File { .. }) => {
                            let why = format!(
                                "rank 0 has not come: {shown} holds no word of it ({cause}); start it with \
                                 the same --rendezvous"
                            );
                            RunError::DidNotJoin { rank, why }
                        }
                        error => error,
                    })
                }
            };
        }
        std::thread::sleep(LOOK);
    }
}

/// Rank 0's connection details from the file: its address, and the bytes it has to be shown.
fn invited(
    path: &Path,
    launch: &Launch,
    timeout: Duration,
) -> Result<(String, Vec<u8>), StoreError> {
    let mut store = part_of(path, launch, timeout)?;
    let invitation = store.get(MEETING_KEY)?;
    let host = store.get(HOST_KEY)?;
    Ok((String::from_utf8_lossy(&host).into_owned(), invitation))
}

/// Connects to rank 0, at the first of its addresses that leads there.
fn meet(
    host: &str,
    invitation: &[u8],
    launch: &Launch,
    plan: &Plan,
    timeout: Duration,
) -> Result<UnixStream, RunError> {
    let mut met = Err(RunError::Unresolved {
        address: host.to_owned(),
        cause: std::io::Error::other("the name of rank 0's machine has no address"),
    });
    for address in addresses(host, invitation) {
        // The last job's machine may not answer at all.
        met = accept(launch.rank, plan, address, invitation, timeout.min(ANSWERS_WITHIN));
        if !matches!(met, Err(RunError::System { .. })) {
            break;
        }
    }
    met
}

/// Addresses at which rank 0 may be reached: here, if its memory is seen here, and the addresses of
/// its machine's name.
fn addresses(host: &str, invitation: &[u8]) -> Vec<IpAddr> {
    let here = is_here(invitation).then_some(Ipv4Addr::LOCALHOST.into());
    let named = (host, 0).to_socket_addrs().into_iter().flatten().map(|found| found.ip());
    // Rank 0 listens there.
    here.into_iter().chain(named.filter(IpAddr::is_ipv4)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_init_process_group_takes() {
        let read = |text: &str| text.parse::<Rendezvous>();
        assert_eq!(read("env://"), Ok(Rendezvous::Environment));
        let tcp = |host: &str| Rendezvous::Tcp { host: host.into(), port: 23456 };
        assert_eq!(read("tcp://10.1.1.20:23456"), Ok(tcp("10.1.1.20")));
        assert_eq!(read("tcp://[::1]:23456"), Ok(tcp("::1")));
        assert_eq!(read("file:///mnt/nfs/shared"), Ok(Rendezvous::File("/mnt/nfs/shared".into())));
        for wrong in ["", "tcp://", "tcp://node0", "tcp://:1", "file://", "file://here", "file:///"]
        {
            assert!(read(wrong).unwrap_err().to_string().contains("tcp://HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn a_place_to_meet_takes_the_environments_place() {
        let variables =
            [("RANK", "1"), ("WORLD_SIZE", "2"), ("TORCHELASTIC_USE_AGENT_STORE", "True")];
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let at = |text: &str| Launch::from_variables_at(&text.parse().unwrap(), variable);
        assert!(at("env://").unwrap_err().to_string().contains("MASTER_ADDR is not set"));
        let launch = at("tcp://node0:99").unwrap();
        assert_eq!((&*launch.master_addr, launch.master_port), ("node0", 99));
        assert!(!launch.store_is_served && launch.file.is_none());
        let launch = at("file:///tmp/x").unwrap();
        assert_eq!(launch.file, Some("/tmp/x".into()));
        assert_eq!((launch.rank.0, launch.world_size), (1, 2));
    }
}
