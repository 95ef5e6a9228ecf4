//! NCCL's own log: `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL`, a line for every call of every rank.
//!
//! It has facts that PyTorch's recorder leaves out: the reduction and the root. It has no clock, and no end
//! of a call, only each rank's calls and their order. [`NcclLog::read`] reads one file, in which one rank or
//! many may have written; [`calls_of`] puts a job's files together.

mod job;
mod line;
mod reader;

pub use job::{Calls, calls_of};
pub(crate) use reader::NcclLogReader;

use line::{Call, Init, Line};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// Lines past this many bytes are cut: nothing that is looked for is as long.
const MAX_LINE_BYTES: usize = 1 << 14;

/// Calls past this many are left out, with a note.
const MAX_CALLS: usize = 1 << 24;

/// More communicators than this in one process are no job's.
const MAX_COMMS: usize = 1 << 14;

/// The contents of one file of NCCL's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NcclLog {
    file_name: String,
    processes: BTreeMap<ProcessId, Process>,
    calls: usize,
    cut: bool,
}

/// A process, or one device of a process that drives several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessId {
    host: String,
    device: u32,
    pid: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Process {
    /// The rank in the prefix of its lines, if there is one.
    said_rank: Option<GlobalRank>,
    comms: Vec<Comm>,
    /// The last communicator at each address.
    at: BTreeMap<u64, usize>,
    /// In the order of the file.
    calls: Vec<(u32, Call)>,
}

/// A communicator of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Comm {
    nranks: u32,
    init: Option<Init>,
    /// The index of the process's communicator that it was split from.
    parent: Option<usize>,
    called: bool,
}

impl NcclLog {
    /// The contents of a file; [`NcclLog::is_empty`] if it is no such log.
    pub fn read(file_name: &str, bytes: &[u8]) -> NcclLog {
        let mut log = NcclLog { file_name: file_name.to_owned(), ..NcclLog::default() };
        for text in bytes.split(|byte| *byte == b'\n') {
            let text = text.get(..text.len().min(MAX_LINE_BYTES)).unwrap_or(text);
            // Most lines of a job's log are not NCCL's.
            if !text.windows(10).any(|window| window == b"NCCL INFO ") {
                continue;
            }
            let text = String::from_utf8_lossy(text);
            if let Some((writer, line)) = line::line(&text) {
                let id = ProcessId {
                    host: writer.host.to_owned(),
                    device: writer.device,
                    pid: writer.pid,
                };
                let process = log.processes.entry(id).or_default();
                let rank = writer.rank.filter(|rank| *rank < lockstep_core::rank::MAX_WORLD_SIZE);
                process.said_rank = process.said_rank.or(rank.map(GlobalRank));
                match line {
                    Line::Init(init) => process.init(init),
                    Line::Call(_) if log.calls == MAX_CALLS => log.cut = true,
                    Line::Call(call) => log.calls += usize::from(process.call(call)),
                }
            }
        }
        log.processes.retain(|_, process| !process.comms.is_empty());
        log
    }

    /// True if NCCL wrote nothing about calls or communicators.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }
}

impl Process {
    fn init(&mut self, init: Init) {
        let known = self.at.get(&init.comm).and_then(|at| self.comms.get_mut(*at));
        if let Some(comm) = known.filter(|comm| !comm.called) {
            // COMPLETE after START.
            if comm.init == Some(init) || comm.init.is_none() {
                comm.init = Some(init);
                return;
            }
        }
        // Else it is a new one, perhaps at the address of one that was destroyed.
        if self.comms.len() >= MAX_COMMS {
            return;
        }
        let parent = match init.from {
            line::From::Split { parent, .. } => self.at.get(&parent).copied(),
            _ => None,
        };
        self.at.insert(init.comm, self.comms.len());
        self.comms.push(Comm { nranks: init.nranks, init: Some(init), parent, called: false });
    }

    /// Takes a call; false if there are too many communicators.
    fn call(&mut self, call: Call) -> bool {
        let known = self.at.get(&call.comm).copied();
        let same = |at: &usize| self.comms.get(*at).is_some_and(|it| it.nranks == call.nranks);
        let at = match known.filter(same) {
            Some(at) => at,
            None if self.comms.len() < MAX_COMMS => {
                let nranks = call.nranks;
                self.at.insert(call.comm, self.comms.len());
                self.comms.push(Comm { nranks, init: None, parent: None, called: false });
                self.comms.len() - 1
            }
            None => return false,
        };
        if let Some(comm) = self.comms.get_mut(at) {
            comm.called = true;
        }
        self.calls.push((at as u32, call));
        true
    }
}
