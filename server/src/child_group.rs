//! A started program with everything that it starts: a group of processes, none of which outlives its owner.

use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// A program that leads a process group of its own. When it is dropped, the whole group is killed.
pub(crate) struct ChildGroup {
    /// The program itself.
    pub(crate) child: Child,
}

impl ChildGroup {
    /// Starts a program in a group of its own.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<ChildGroup> {
        Ok(ChildGroup { child: command.process_group(0).spawn()? })
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // An empty group is what is wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
