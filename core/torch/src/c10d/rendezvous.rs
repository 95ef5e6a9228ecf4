//! The rendezvous of ranks: the URLs that `init_process_group(init_method=…)` accepts and refuses
//! (`rendezvous.py` of PyTorch 2.7.1).

use super::error::{DistError, assertion_error, runtime_error, value_error};
use std::collections::BTreeMap;

/// Environment variables of a process, as torchrun sets them.
pub type Environment = BTreeMap<String, String>;

/// The place of the store that the ranks meet at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeetingPlace {
    /// A TCPStore, served by rank 0.
    Tcp {
        /// The host that rank 0 listens on.
        host: String,
        /// The port.
        port: u16,
    },
    /// A FileStore that all ranks can reach.
    File {
        /// Its path.
        path: String,
    },
}

/// The result of a rendezvous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// The meeting place.
    pub place: MeetingPlace,
    /// The rank that the process says it has; PyTorch does not check it.
    pub rank: i64,
    /// The number of ranks that it expects.
    pub world_size: i64,
}

/// A URL in the parts that `urllib.parse.urlparse` finds.
struct Url<'a> {
    scheme: &'a str,
    netloc: &'a str,
    path: &'a str,
    query: BTreeMap<&'a str, String>,
}

/// `rendezvous(url, rank, world_size)`; -1 means that the rank or world size was not given.
///
/// # Errors
/// The error that PyTorch raises before any connection is made.
pub fn rendezvous(
    url: &str,
    rank: i64,
    world_size: i64,
    environment: &Environment,
) -> Result<Rendezvous, DistError> {
    let mut parsed = parse(url);
    if rank != -1 || world_size != -1 {
        if parsed.query.contains_key("rank") || parsed.query.contains_key("world_size") {
            return Err(assertion_error(format!(
                "The url: {url} has node-specific arguments(rank, world_size) already."
            ))
            .with_help("Say the rank either in the URL or as an argument."));
        }
        for (name, value) in [("rank", rank), ("world_size", world_size)] {
            if value != -1 {
                parsed.query.insert(name, value.to_string());
            }
        }
    }
    match parsed.scheme {
        "tcp" => tcp(&parsed),
        "env" => env(&parsed, environment),
        "file" => file(&parsed),
        scheme => Err(runtime_error(format!("No rendezvous handler for {scheme}://"))
            .with_help("init_method is env://, tcp://HOST:PORT or file:///PATH.")),
    }
}

fn parse(url: &str) -> Url<'_> {
    let (rest, _fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
    let (netloc, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(name, value)| (name, value.to_owned())).collect();
    Url { scheme, netloc, path, query }
}

fn failed(scheme: &str, why: impl std::fmt::Display) -> DistError {
    value_error(format!("Error initializing torch.distributed using {scheme}:// rendezvous: {why}"))
}

impl Url<'_> {
    fn number(&self, name: &str) -> Result<Option<i64>, DistError> {
        self.query.get(name).map(|text| integer(text)).transpose()
    }

    fn required(&self, name: &str, what: &str) -> Result<i64, DistError> {
        self.number(name)?.ok_or_else(|| failed(self.scheme, format!("{what} parameter missing")))
    }
}

/// Python's `int(text)`.
pub(super) fn integer(text: &str) -> Result<i64, DistError> {
    text.trim()
        .parse()
        .map_err(|_| value_error(format!("invalid literal for int() with base 10: '{text}'")))
}

fn tcp(url: &Url<'_>) -> Result<Rendezvous, DistError> {
    let host_and_port = url.netloc.rsplit_once('@').map_or(url.netloc, |(_, rest)| rest);
    let after_brackets = host_and_port.rfind(']').unwrap_or(0);
    let (host, port) = match host_and_port[after_brackets..].rfind(':') {
        Some(colon) => {
            let colon = after_brackets + colon;
            (&host_and_port[..colon], &host_and_port[colon + 1..])
        }
        None => (host_and_port, ""),
    };
    let port: i64 = match port {
        "" => 0,
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().unwrap_or(i64::MAX),
        other => {
            return Err(value_error(format!(
                "Port could not be cast to integer value as '{other}'"
            )));
        }
    };
    if port > 65535 {
        return Err(value_error("Port out of range 0-65535"));
    }
    if port == 0 {
        return Err(failed("tcp", "port number missing"));
    }
    let rank = url.required("rank", "rank")?;
    let world_size = url.required("world_size", "world size")?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_lowercase();
    Ok(Rendezvous { place: MeetingPlace::Tcp { host, port: port as u16 }, rank, world_size })
}

fn env(url: &Url<'_>, environment: &Environment) -> Result<Rendezvous, DistError> {
    let variable = |name: &str| match environment.get(name).filter(|value| !value.is_empty()) {
        Some(value) => Ok(value.as_str()),
        None => Err(failed("env", format!("environment variable {name} expected, but not set"))
            .with_help("torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.")),
    };
    let number = |query: &str, name: &str| match url.number(query)? {
        Some(number) => Ok(number),
        None => integer(variable(name)?),
    };
    let rank = number("rank", "RANK")?;
    let world_size = number("world_size", "WORLD_SIZE")?;
    let host = variable("MASTER_ADDR")?.to_owned();
    let port = integer(variable("MASTER_PORT")?)?;
    let port = u16::try_from(port).map_err(|_| {
        value_error(format!("port must have value from 0 to 65535 but was {port}."))
    })?;
    Ok(Rendezvous { place: MeetingPlace::Tcp { host, port }, rank, world_size })
}

fn file(url: &Url<'_>) -> Result<Rendezvous, DistError> {
    if url.path.is_empty() {
        return Err(failed("file", "path missing"));
    }
    let rank = url.required("rank", "rank")?;
    let world_size = url.required("world_size", "world size")?;
    Ok(Rendezvous { place: MeetingPlace::File { path: url.path.to_owned() }, rank, world_size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meet(url: &str, rank: i64, world_size: i64) -> Result<Rendezvous, String> {
        let environment = [
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
        ];
        let environment = environment.map(|(name, value)| (name.into(), value.into())).into();
        rendezvous(url, rank, world_size, &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn each_scheme_takes_rank_and_world_size_where_it_finds_them() {
        let tcp = |host: &str, port| MeetingPlace::Tcp { host: host.into(), port };
        let env = meet("env://", -1, -1).unwrap();
        assert_eq!((env.place, env.rank, env.world_size), (tcp("node0", 29500), 3, 8));
        assert_eq!(meet("env://", 1, 2).unwrap().rank, 1);
        let url = meet("tcp://[::1]:29500?rank=1&world_size=4", -1, -1).unwrap();
        assert_eq!((url.place, url.rank, url.world_size), (tcp("::1", 29500), 1, 4));
        let file = meet("file:///tmp/store", 0, 2).unwrap();
        assert_eq!(file.place, MeetingPlace::File { path: "/tmp/store".into() });
    }

    #[test]
    fn refusals_are_those_of_rendezvous_py() {
        insta::assert_snapshot!([
            meet("tcp://127.0.0.1:29500", -1, 2).unwrap_err(),
            meet("tcp://127.0.0.1:29500", 0, -1).unwrap_err(),
            meet("tcp://127.0.0.1", 0, 1).unwrap_err(),
            meet("tcp://127.0.0.1:x", 0, 1).unwrap_err(),
            meet("tcp://127.0.0.1:70000", 0, 1).unwrap_err(),
            meet("tcp://127.0.0.1:29500?rank=0", 0, 1).unwrap_err(),
            meet("file://", 0, 1).unwrap_err(),
            meet("foo://x", -1, -1).unwrap_err(),
            meet("tcp://h:1?rank=one&world_size=2", -1, -1).unwrap_err(),
        ].join("\n"), @r"
    ValueError: Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing
    ValueError: Error initializing torch.distributed using tcp:// rendezvous: world size parameter missing
    ValueError: Error initializing torch.distributed using tcp:// rendezvous: port number missing
    ValueError: Port could not be cast to integer value as 'x'
    ValueError: Port out of range 0-65535
    AssertionError: The url: tcp://127.0.0.1:29500?rank=0 has node-specific arguments(rank, world_size) already.
    ValueError: Error initializing torch.distributed using file:// rendezvous: path missing
    RuntimeError: No rendezvous handler for foo://
    ValueError: invalid literal for int() with base 10: 'one'
    ");
    }

    proptest! {
        #[test]
        fn no_url_panics(url in "\\PC{0,40}", rest in "(tcp|env|file)://[\\[\\]@:0-9a-z/?&=#]{0,30}") {
            let _ = meet(&url, -1, -1);
            let _ = meet(&rest, 0, 1);
        }
    }
}
