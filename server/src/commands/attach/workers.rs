//! The debug servers of a job's ranks (`torch.distributed.debug.start_debug_server`, PyTorch 2.10): each rank writes
//! the address of its own into the job's store, under `debug_server/rankN`.

use crate::http::Place;
use anyhow::{Context, Result, bail};
use lockstep_core::rank::{GlobalRank, MAX_WORLD_SIZE};
use lockstep_gpu_exec::store::{PrefixStore, Store, StoreClient};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The prefix of the debug server's keys in the job's store.
const PREFIX: &str = "debug_server";

/// Ranks are looked for until so many in a row have no server.
const MISSING_IN_A_ROW: u32 = 64;

/// Addresses longer than this are none.
const MAX_ADDRESS_BYTES: usize = 512;

/// The addresses that ranks wrote into a job's store: `http://node-1:43605`.
///
/// # Errors
/// When there is no store, or none of its ranks has a debug server.
pub(super) fn in_store(
    address: SocketAddr,
    within: Duration,
) -> Result<BTreeMap<GlobalRank, String>> {
    let client = StoreClient::connect(address, within)?;
    let mut store = PrefixStore::new(PREFIX, client);
    store.set_timeout(within);
    let (mut found, mut missing) = (BTreeMap::new(), 0);
    for rank in 0..MAX_WORLD_SIZE {
        let key = format!("rank{rank}");
        if !store.check(&[&key])? {
            missing += 1;
            if missing == MISSING_IN_A_ROW {
                break;
            }
            continue;
        }
        missing = 0;
        let value = store.get(&key)?;
        let text = std::str::from_utf8(&value).ok().filter(|it| it.len() <= MAX_ADDRESS_BYTES);
        let text = text.with_context(|| format!("the store's address of rank {rank} is none"))?;
        found.insert(GlobalRank(rank), text.to_owned());
    }
    if found.is_empty() {
        bail!(
            "the job's store at {address} knows no debug server: call \
             torch.distributed.debug.start_debug_server() in every rank (PyTorch 2.10 and later)"
        );
    }
    Ok(found)
}

/// The host and port of `http://node-1:43605`.
fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.strip_prefix("http://")?.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host, port.trim_end_matches('/').parse().ok()?))
}

/// The hosts that may be asked: those that the user named.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    named: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    any: bool,
}

impl Hosts {
    /// The hosts of these names, or any.
    pub(super) async fn of(named: Vec<String>, any: bool) -> Hosts {
        let mut addresses = BTreeSet::new();
        for host in &named {
            addresses.extend(resolved(host).await);
        }
        Hosts { named: named.into_iter().collect(), addresses, any }
    }

    /// The worker at an address out of the store, if its host was named. A name that cannot be resolved here is taken
    /// for the one host that was named, if the whole job is on it.
    async fn place(&self, address: &str, one_host: bool) -> Option<Place> {
        let (host, port) = host_and_port(address)?;
        let mut ips = resolved(host).await;
        let unknown = ips.is_empty() && one_host && self.named.len() == 1;
        if unknown {
            ips = self.addresses.iter().copied().collect();
        }
        let is_named =
            self.named.contains(host) || ips.iter().any(|ip| self.addresses.contains(ip));
        let ip = ips.iter().find(|ip| self.addresses.contains(ip)).or(ips.first())?;
        (self.any || is_named)
            .then(|| Place::Tcp { host: host.to_owned(), address: SocketAddr::new(*ip, port) })
    }
}

/// The addresses of a host, those of IPv4 first; none if its name is not known here.
pub(super) async fn resolved(host: &str) -> Vec<IpAddr> {
    let found = tokio::net::lookup_host((host, 0)).await.ok();
    let mut ips: Vec<IpAddr> = found.into_iter().flatten().map(|address| address.ip()).collect();
    ips.sort_by_key(|ip| ip.is_ipv6());
    ips.dedup();
    ips
}

/// The ranks that can be asked, and those on hosts that the user did not name, by host.
pub(super) struct Workers {
    pub(super) asked: BTreeMap<GlobalRank, Place>,
    pub(super) unnamed: BTreeMap<String, Vec<GlobalRank>>,
}

impl Workers {
    /// Those of the addresses whose hosts may be asked.
    pub(super) async fn of(addresses: &BTreeMap<GlobalRank, String>, hosts: &Hosts) -> Workers {
        let host = |address: &str| host_and_port(address).map_or(address, |it| it.0).to_owned();
        let all: BTreeSet<String> = addresses.values().map(|address| host(address)).collect();
        let (mut asked, mut unnamed) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        for (rank, address) in addresses {
            match hosts.place(address, all.len() == 1).await {
                Some(place) => {
                    asked.insert(*rank, place);
                }
                None => unnamed.entry(host(address)).or_default().push(*rank),
            }
        }
        Workers { asked, unnamed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_gpu_exec::store::StoreServer;

    fn block<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn the_store_says_where_ranks_are_asked() {
        let server = StoreServer::start().unwrap();
        let within = Duration::from_secs(5);
        let error = in_store(server.address(), within).unwrap_err().to_string();
        assert!(error.contains("start_debug_server"), "{error}");
        for rank in [0, 3] {
            server.set(&format!("/debug_server/rank{rank}"), b"http://node-1:43605");
            server.set(&format!("debug_server/rank{rank}"), b"http://node-1:43605");
        }
        let found = in_store(server.address(), within).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [GlobalRank(0), GlobalRank(3)]);
        assert_eq!(found[&GlobalRank(3)], "http://node-1:43605");
    }

    #[test]
    fn only_named_hosts_are_asked() {
        let addresses: BTreeMap<GlobalRank, String> =
            [(0, "http://127.0.0.1:4000"), (1, "http://127.0.0.2:4001"), (2, "ftp://127.0.0.1:1")]
                .map(|(rank, address)| (GlobalRank(rank), address.to_owned()))
                .into();
        let of = |any| {
            block(async {
                let hosts = Hosts::of(vec!["localhost".to_owned()], any).await;
                Workers::of(&addresses, &hosts).await
            })
        };
        let named = of(false);
        assert_eq!(named.asked.keys().copied().collect::<Vec<_>>(), [GlobalRank(0)]);
        assert_eq!(named.unnamed["127.0.0.2"], [GlobalRank(1)]);
        let any = of(true);
        assert_eq!(any.asked.len(), 2, "an address that is none is never asked");
    }

    #[test]
    fn a_name_that_is_not_known_here_is_the_one_host_that_was_named() {
        let unknown = "http://no-such-host.invalid:4000";
        let addresses = |addresses: &[&str]| -> BTreeMap<GlobalRank, String> {
            (0..).map(GlobalRank).zip(addresses.iter().map(|it| (*it).to_owned())).collect()
        };
        let asked = |list: &[&str]| {
            let addresses = addresses(list);
            block(async {
                let hosts = Hosts::of(vec!["127.0.0.1".to_owned()], false).await;
                Workers::of(&addresses, &hosts).await.asked.len()
            })
        };
        assert_eq!(asked(&[unknown]), 1);
        assert_eq!(asked(&[unknown, "http://other-host.invalid:4000"]), 0);
    }
}
