//! The calls of a trace, per rank: what the diagnosis reads, whatever the trace came from.

use super::{Call, Origin, Outcome, Trace, What};
use crate::flight_recorder::rank_of_file_name;
use crate::group::ProcessGroup;
use crate::plan::Plan;
use crate::rank::GlobalRank;

/// Every call of every rank that the trace knows of.
#[derive(Clone, Debug, PartialEq)]
pub struct CallLog {
    /// The number of ranks of the job.
    pub world_size: u32,
    /// The process groups.
    pub groups: Vec<ProcessGroup>,
    /// One per rank of the world, in rank order; `None` when nothing was recorded of it.
    pub ranks: Vec<Option<RankLog>>,
    /// How the job ended, as far as the trace knows.
    pub outcome: Outcome,
    /// True for a recording: what it does not show may still have happened.
    pub recorded: bool,
    /// True for virtual time: no clock of another machine, no jitter.
    pub simulated: bool,
    /// The plan that was simulated or run: what every rank would have called next.
    pub plan: Option<Plan>,
}

/// The calls of one rank, in the order in which it made them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankLog {
    /// The calls.
    pub calls: Vec<CallRecord>,
    /// Where the rank stands at the end of the trace.
    pub state: RankState,
}

/// Where a rank stands at the end of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RankState {
    /// It finished its program.
    Finished,
    /// It died.
    Died {
        /// How, in words.
        how: String,
    },
    /// Its program stands at an operation of the plan.
    AtOp {
        /// Its index in the rank's program.
        op: u32,
        /// Its name: `all_reduce`, or what a sleep is called.
        name: String,
        /// Its source line, `train.py:88`.
        line: Option<String>,
    },
    /// The trace does not say.
    #[default]
    Unknown,
}

/// One call and how far it got.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The call's number on its rank.
    pub work: u32,
    /// The call.
    pub call: Call,
    /// How far it got.
    pub state: CallState,
    /// When it was made, in picoseconds after the trace's start.
    pub scheduled_ps: u64,
    /// When it completed.
    pub completed_ps: Option<u64>,
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallState {
    /// It waits for its stream.
    Scheduled,
    /// Its stream carries it out.
    Started,
    /// Done on this rank.
    Completed,
}

impl CallLog {
    /// Collects the calls of a trace. Events that refer to calls which the trace does not show
    /// (a ring buffer has dropped them) are passed over.
    pub fn of(trace: &Trace) -> CallLog {
        let header = &trace.header;
        // A stranger's header may claim any world size: the table grows with what is there.
        let recorded = matches!(header.origin, Origin::Recorded { .. });
        let mut log = CallLog {
            world_size: header.world_size,
            groups: header.groups.clone(),
            ranks: Vec::new(),
            outcome: trace.end.as_ref().map_or(Outcome::Unknown, |end| end.outcome.clone()),
            recorded,
            simulated: matches!(header.origin, Origin::Simulated { .. }),
            plan: header.plan.clone(),
        };
        log.ranks.resize_with(header.world_size as usize, || None);
        match &header.origin {
            // A dump without entries is of a rank that was recorded and called nothing.
            Origin::Recorded { files, .. } => {
                let ranks = files.iter().filter_map(|file| rank_of_file_name(file).ok());
                for rank in ranks {
                    if let Some(slot) = log.ranks.get_mut(rank.index()) {
                        *slot = Some(RankLog::default());
                    }
                }
            }
            // Simulations and runs show every rank, also one that did nothing.
            Origin::Simulated { .. } | Origin::Run { .. } => {
                log.ranks.fill_with(|| Some(RankLog::default()));
            }
        }
        for event in &trace.events {
            let Some(slot) = log.ranks.get_mut(event.rank.index()) else {
                continue;
            };
            let rank = slot.get_or_insert_with(RankLog::default);
            rank.take(event.rank, event.time_ps, &event.what, header.plan.as_ref());
        }
        log
    }

    /// The ranks of which something was recorded, ascending.
    pub fn logs(&self) -> impl Iterator<Item = (GlobalRank, &RankLog)> {
        let ranks = (0..).map(GlobalRank).zip(&self.ranks);
        ranks.filter_map(|(rank, log)| Some((rank, log.as_ref()?)))
    }
}

impl RankLog {
    fn take(&mut self, rank: GlobalRank, time_ps: u64, what: &What, plan: Option<&Plan>) {
        match what {
            What::Scheduled { work, call } => self.calls.push(CallRecord {
                work: *work,
                call: (**call).clone(),
                state: CallState::Scheduled,
                scheduled_ps: time_ps,
                completed_ps: None,
            }),
            What::Started { work } => {
                if let Some(call) = self.find(*work) {
                    call.state = CallState::Started;
                }
            }
            What::Completed { work } => {
                if let Some(call) = self.find(*work) {
                    call.state = CallState::Completed;
                    call.completed_ps = Some(time_ps);
                }
            }
            What::OpBegan { op } => {
                let found = plan.and_then(|plan| {
                    let op = plan.program(rank)?.ops.get(*op as usize)?;
                    Some((op.action.name().to_owned(), op.at.map(|at| plan.describe_line(at))))
                });
                let (name, line) = found.unwrap_or_default();
                self.state = RankState::AtOp { op: *op, name, line };
            }
            What::Finished => self.state = RankState::Finished,
            What::Died { how } => self.state = RankState::Died { how: how.clone() },
            What::OpEnded { .. }
            | What::TimedOut { .. }
            | What::Sent { .. }
            | What::Received { .. }
            | What::StreamBegan { .. }
            | What::StreamEnded { .. }
            | What::Answered { .. }
            | What::Result { .. } => {}
        }
    }

    fn find(&mut self, work: u32) -> Option<&mut CallRecord> {
        // Works are numbered in call order, so the index is right unless entries were dropped.
        let index = match self.calls.get(work as usize) {
            Some(call) if call.work == work => Some(work as usize),
            _ => self.calls.binary_search_by_key(&work, |call| call.work).ok(),
        };
        index.map(|index| &mut self.calls[index])
    }
}
