//! Things that processes may leave behind: other processes, listening sockets, named shared memory.
//! Also the times at which they are killed: at random, the same way for the same seed.

use std::collections::BTreeSet;

/// The variable that every process of a round has in its environment, and nobody else.
pub(crate) const MARK: &str = "LOCKSTEP_KILL_ROUND";

/// Marsaglia's xorshift64: the rounds are the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The processes that carry a round's mark, zombies excepted.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        // A zombie's environment is empty.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    })
    .collect()
}

/// The sockets, by inode, on which somebody listens.
pub(crate) fn listening() -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.get(3) == Some(&"0A") {
                inodes.extend(fields.get(9).and_then(|inode| inode.parse::<u64>().ok()));
            }
        }
    }
    inodes
}

/// The sockets of a process, by inode.
pub(crate) fn sockets_of(pid: u32) -> BTreeSet<u64> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| {
            let text = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
            text.parse().ok()
        })
        .collect()
}

/// The named shared memories of runs that a process started.
pub(crate) fn names_of(pid: u32) -> Vec<String> {
    let prefix = format!("lockstep-{pid}-");
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&prefix)).collect()
}
