//! The bound on a program's lead over its streams.
//!
//! A stream takes some thousand commands that it has not come to; whoever puts another one then waits
//! inside the driver, and with it whoever else calls the driver. Logical ranks would wait for each other
//! so for ever, and with a process a rank the thread that looks at events could not: so a program waits
//! by itself, before that, where its watchdog and the run's end reach it.

use crate::nccl::device::{Device, Event, Stream};
use crate::nccl::error::DeviceError;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Commands that a stream may have before it.
const MOST: u64 = 512;

/// Interval at which a program that waits looks again.
const LOOK: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Backlog(BTreeMap<usize, Commands>);

#[derive(Debug, Default)]
struct Commands {
    put: u64,
    passed: u64,
    /// Points on the stream that it has not passed, and how many commands there were by then.
    ahead: VecDeque<(u64, Arc<Event>)>,
}

impl Backlog {
    /// Counts commands that were put on a stream.
    pub(super) fn put(&mut self, lane: usize, commands: u64) {
        self.0.entry(lane).or_default().put += commands;
    }

    /// An event was put there.
    pub(super) fn mark(&mut self, lane: usize, event: Arc<Event>) {
        let commands = self.0.entry(lane).or_default();
        commands.put += 1;
        commands.ahead.push_back((commands.put, event));
    }

    /// Returns when the stream has room for more.
    pub(super) fn wait(
        &mut self,
        device: &Device,
        (stream, lane): (Stream, usize),
    ) -> Result<(), DeviceError> {
        let commands = self.0.entry(lane).or_default();
        if commands.put - commands.passed <= MOST {
            return Ok(());
        }
        if commands.ahead.is_empty() {
            commands.put += 1;
            commands.ahead.push_back((commands.put, Arc::new(device.record(stream)?)));
        }
        loop {
            while let Some((put, event)) = commands.ahead.front() {
                if !device.has_passed(event)? {
                    break;
                }
                commands.passed = *put;
                commands.ahead.pop_front();
            }
            if commands.put - commands.passed <= MOST {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }
}
