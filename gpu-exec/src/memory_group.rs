//! The memory that a cgroup leaves its processes, in a container or a job of a batch system. Of both versions
//! of cgroups; a group's parents bound it too. Kernel: `Documentation/admin-guide/cgroup-v2.rst`.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of version 1 above this means no limit.
const NO_LIMIT: u64 = 1 << 60;

/// The folder in which cgroups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The memory limit of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryGroup {
    /// The smallest limit of its group and the groups around it, in bytes.
    pub limit_bytes: Option<u64>,
    /// The bytes left below that limit; files that the kernel can drop count as free.
    pub free_bytes: Option<u64>,
    /// The number of processes that the kernel has killed in its group for want of memory.
    pub oom_kills: Option<u64>,
}

impl MemoryGroup {
    /// As it is now; all unknown where there is no cgroup.
    pub fn now() -> MemoryGroup {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        MemoryGroup::of(&groups, Path::new(MOUNT))
    }

    fn of(groups: &str, mount: &Path) -> MemoryGroup {
        let mut found = MemoryGroup::default();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(kinds), Some(path)) = (fields.next(), fields.next()) else { continue };
            let files = match kinds {
                "" => Files {
                    limit: "memory.max",
                    usage: "memory.current",
                    kills: "memory.events",
                    dropped: "inactive_file",
                },
                kinds if kinds.split(',').any(|kind| kind == "memory") => Files {
                    limit: "memory.limit_in_bytes",
                    usage: "memory.usage_in_bytes",
                    kills: "memory.oom_control",
                    dropped: "total_inactive_file",
                },
                _ => continue,
            };
            let root = if kinds.is_empty() { mount.to_path_buf() } else { mount.join("memory") };
            // In a container the path may be the host's: then only the root is there.
            let inside = Path::new(path.trim_start_matches('/'));
            for group in inside.ancestors().map(|group| root.join(group)) {
                found.take(&group, &files);
            }
        }
        found
    }

    fn take(&mut self, group: &Path, files: &Files) {
        let kills = fs::read_to_string(group.join(files.kills)).unwrap_or_default();
        // The group's own, which is nearest.
        self.oom_kills = self.oom_kills.or(counted(&kills, "oom_kill"));
        let Some(limit) = number(&group.join(files.limit)).filter(|limit| *limit < NO_LIMIT) else {
            return;
        };
        self.limit_bytes = Some(self.limit_bytes.map_or(limit, |other| other.min(limit)));
        if let Some(used) = number(&group.join(files.usage)) {
            let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            let dropped = counted(&stat, files.dropped).unwrap_or(0);
            let free = limit.saturating_sub(used.saturating_sub(dropped));
            self.free_bytes = Some(self.free_bytes.map_or(free, |other| other.min(free)));
        }
    }

    /// Words that continue a sentence if the kernel has killed a process here since `before` for want of memory
    /// about a process that was killed; `None` if it has not, or nobody knows.
    pub fn killed_since(&self, before: Option<u64>) -> Option<String> {
        let (now, before) = (self.oom_kills?, before?);
        (now > before).then(|| match self.limit_bytes {
            Some(limit) => format!(
                "the kernel has killed a process of this cgroup for want of memory: its limit is {} MiB",
                limit >> 20
            ),
            None => "the kernel has killed a process of this cgroup for want of memory".to_owned(),
        })
    }
}

/// The names of a version's files.
struct Files {
    limit: &'static str,
    usage: &'static str,
    kills: &'static str,
    dropped: &'static str,
}

/// `None` for `max`, too.
fn number(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name in lines of `name number`.
fn counted(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(mount: &Path, path: &str, files: &[(&str, &str)]) {
        let folder = mount.join(path);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_smallest_limit_around_counts() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        assert_eq!(MemoryGroup::of("", mount), MemoryGroup::default());
        group(
            mount,
            "job",
            &[
                ("memory.max", "1000000"),
                ("memory.current", "900000"),
                ("memory.stat", "anon 1\ninactive_file 300000\n"),
            ],
        );
        group(
            mount,
            "job/step",
            &[
                ("memory.max", "max"),
                ("memory.current", "900000"),
                ("memory.events", "low 0\noom 3\noom_kill 2\n"),
            ],
        );
        let found = MemoryGroup::of("0::/job/step\n", mount);
        let wanted = MemoryGroup {
            limit_bytes: Some(1_000_000),
            free_bytes: Some(400_000),
            oom_kills: Some(2),
        };
        assert_eq!(found, wanted);
        assert!(found.killed_since(Some(1)).unwrap().contains("for want of memory"));
        assert_eq!((found.killed_since(Some(2)), found.killed_since(None)), (None, None));
        // Version 1, in a container that sees only its own group.
        group(
            mount,
            "memory",
            &[
                ("memory.limit_in_bytes", "5000"),
                ("memory.usage_in_bytes", "6000"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"),
            ],
        );
        let found = MemoryGroup::of("3:cpu,memory:/docker/abc\n", mount);
        assert_eq!(
            found,
            MemoryGroup { limit_bytes: Some(5000), free_bytes: Some(0), oom_kills: Some(7) }
        );
    }
}
