//! The share of this machine's processor time that other processes used during a measurement, as Linux counts
//! it (proc(5)).

use std::fs::read_to_string;

/// The processor time that had passed at a moment, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    /// The time of all cores, idle or not.
    all: u64,
    /// The busy part of `all`, of this process and of other machines on the same hardware included.
    used: u64,
    /// The time that this process and its ended children used.
    ours: u64,
}

impl ProcessorTime {
    /// Now; `None` where the system does not say.
    pub(crate) fn now() -> Option<ProcessorTime> {
        let machine = read_to_string("/proc/stat").ok()?;
        ProcessorTime::of(&machine, &read_to_string("/proc/self/stat").ok()?)
    }

    fn of(machine: &str, process: &str) -> Option<ProcessorTime> {
        // cpu user nice system idle iowait irq softirq steal guest guest_nice, where the last two are in user
        // and nice already.
        let line = machine.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().flat_map(str::parse).take(8).collect();
        let all: u64 = ticks.iter().sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        // pid (name) state …; the name may hold anything. Fields 14 to 17 are utime stime cutime cstime.
        let fields = process.rsplit_once(')')?.1.split_whitespace();
        let ours: Vec<u64> = fields.skip(11).take(4).flat_map(str::parse).collect();
        (ours.len() == 4).then(|| ProcessorTime { all, used: all - idle, ours: ours.iter().sum() })
    }

    /// The part of all cores' time since `before` that others used, from 0 to 1.
    pub(crate) fn elsewhere_since(self, before: ProcessorTime) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let used = self.used.saturating_sub(before.used);
        let others = used.saturating_sub(self.ours.saturating_sub(before.ours));
        others as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_others_used_is_what_is_left_of_all_that_was_used() {
        let process = |ours: &str| format!("7 (a) b (c)) R 1 2 3 4 5 6 7 8 9 10 {ours} 20 0 1 0");
        let before =
            ProcessorTime::of("cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 1", &process("1 2 3 4"));
        let after =
            ProcessorTime::of("cpu  160 5 60 870 55 1 2 2 9 9\ncpu0 1", &process("11 12 13 14"));
        // 155 ticks, 80 of them used, 40 by this process and its children.
        let elsewhere = after.unwrap().elsewhere_since(before.unwrap());
        assert!((elsewhere - 40.0 / 155.0).abs() < 1e-9, "{elsewhere}");
        assert_eq!(before.unwrap().elsewhere_since(after.unwrap()), 0.0);
        for (machine, process) in [("", "7 (a) R"), ("cpu  1 2 3", "7 (a) R 1"), ("intr 1", "")] {
            assert_eq!(ProcessorTime::of(machine, process), None);
        }
    }
}
