//! Where ranks find each other, in the words of `init_process_group(init_method=...)`: `env://`,
//! `tcp://HOST:PORT` and `file:///PATH`. Who a process is comes from its launcher's variables.

use super::meeting::{Meeting, accept, is_here, store_failed};
use super::{Launch, LaunchError};
use crate::RunError;
use crate::store::{FileStore, PrefixStore, Store};
use lockstep_core::plan::Plan;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How often a rank looks whether a file holds another invitation than one that leads nowhere.
const LOOK: Duration = Duration::from_millis(100);

/// Where rank 0 says how it is reached, and on which machine that is.
const MEETING_KEY: &str = "meeting";
const HOST_KEY: &str = "host";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rendezvous {
    /// `MASTER_ADDR` and `MASTER_PORT` say where the store is.
    #[default]
    Environment,
    /// The store is there; rank 0 serves it, or somebody else does.
    Tcp {
        /// A name or an address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// The store is a file, which all ranks see.
    File(PathBuf),
}

impl FromStr for Rendezvous {
    type Err = String;

    fn from_str(text: &str) -> Result<Rendezvous, String> {
        let what = "a rendezvous is env://, tcp://HOST:PORT or file:///PATH";
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') && !path.ends_with('/') {
                true => Ok(Rendezvous::File(path.into())),
                false => Err(format!("{what}, with the whole path of a file")),
            };
        }
        if let Some(address) = text.strip_prefix("tcp://") {
            let parts = address.rsplit_once(':').and_then(|(host, port)| {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                (!host.is_empty()).then_some((host.to_owned(), port.parse().ok()?))
            });
            let (host, port) = parts.ok_or_else(|| what.to_owned())?;
            return Ok(Rendezvous::Tcp { host, port });
        }
        match text {
            "env://" => Ok(Rendezvous::Environment),
            _ => Err(what.to_owned()),
        }
    }
}

impl Launch {
    /// Reads from the environment of this process who it is, and meets the others there.
    ///
    /// # Errors
    /// When no launcher has said who it is.
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
) -> Result<PrefixStore<FileStore>, RunError> {
    let mut store = FileStore::open(path, Some(launch.world_size)).map_err(store_failed)?;
    store.set_timeout(timeout);
    Ok(PrefixStore::new(format!("lockstep/{}", launch.attempt), store))
}

/// Rank 0's side: listens, and writes down where.
pub(super) fn open(
    path: &Path,
    launch: &Launch,
    plan: &Plan,
    timeout: Duration,
) -> Result<Meeting, RunError> {
    let mut store = part_of(path, launch, timeout)?;
    // Where the others are, nobody knows yet; who comes has to know the run's secret.
    let any = Ipv4Addr::UNSPECIFIED.into();
    let (meeting, invitation) = Meeting::listen(any, 1, launch.world_size, plan)?;
    let named = std::env::var("MASTER_ADDR").ok().filter(|name| !name.is_empty());
    let host = match named {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map_err(RunError::system("read this machine's name"))?,
    };
    store.set(HOST_KEY, host.trim().as_bytes()).map_err(store_failed)?;
    store.set(MEETING_KEY, &invitation).map_err(store_failed)?;
    Ok(meeting.with_file(store))
}

/// Any other rank's side: reads where rank 0 is and connects to it.
pub(super) fn attend(
    path: &Path,
    launch: &Launch,
    plan: &Plan,
    timeout: Duration,
) -> Result<UnixStream, RunError> {
    let started = Instant::now();
    let mut store = part_of(path, launch, timeout)?;
    loop {
        let invitation = store.get(MEETING_KEY).map_err(store_failed)?;
        let host = store.get(HOST_KEY).map_err(store_failed)?;
        let host = String::from_utf8_lossy(&host).into_owned();
        let mut met = Err(RunError::Unresolved {
            address: host.clone(),
            cause: std::io::Error::other("the name of rank 0's machine has no address"),
        });
        for address in addresses(&host, &invitation) {
            met = accept(launch.rank, plan, address, &invitation, timeout);
            if !matches!(met, Err(RunError::System { .. })) {
                return met;
            }
        }
        // A file that outlives jobs may still hold the last one's.
        if started.elapsed() >= timeout {
            return met;
        }
        std::thread::sleep(LOOK);
    }
}

/// Where rank 0 may be reached: here, if its memory is seen here, and where its machine's name leads.
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
            assert!(read(wrong).unwrap_err().contains("tcp://HOST:PORT"), "{wrong}");
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
