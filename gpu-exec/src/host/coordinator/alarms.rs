//! Faults that are injected into ranks: by the clock, or when they have come to it themselves.

use super::state::{Alarm, Coordinator};
use crate::clock;
use crate::host::control::{Order, frame};
use rustix::process;

impl Coordinator {
    /// Does the faults whose time has come.
    pub(super) fn take_alarms(&mut self) {
        let now = clock::now_ns();
        let (due, later) = self.alarms.iter().partition(|(due, _)| *due <= now);
        self.alarms = later;
        let due: Vec<(u64, Alarm)> = due;
        for (_, alarm) in due {
            let (Alarm::Kill(rank) | Alarm::Stop(rank, _) | Alarm::Continue(rank)) = alarm;
            let Some(process) = self.ranks.get_mut(rank.index()) else { continue };
            match alarm {
                Alarm::Kill(_) => {
                    process.kill_by_fault();
                }
                Alarm::Stop(_, for_ms) => {
                    process.signal(process::Signal::STOP);
                    match for_ms {
                        Some(ms) => {
                            let due = now.saturating_add(ms.saturating_mul(1_000_000));
                            self.alarms.push((due, Alarm::Continue(rank)));
                        }
                        None => process.held = true,
                    }
                }
                Alarm::Continue(_) => {
                    process.signal(process::Signal::CONT);
                    process.send(frame(&Order::GoOn));
                }
            }
        }
    }
}
