//! What page and worker say to each other: typed messages in postcard.
//!
//! A JavaScript message is an array: first the postcard bytes of a [`Question`] or an [`Answer`],
//! then whatever should be transferred instead of copied (files, trace bytes, rasters). The page
//! chooses the numbers of questions and sessions.

mod account;
mod analysis;
mod calls;
mod cluster;
mod ddp;
mod measure;
mod mesh;
mod schedule_file;
mod session_id;
mod wire;

pub(crate) use account::{Account, Stroke, Weave};
pub(crate) use analysis::Changed;
pub(crate) use calls::{CallDetails, CallId, CallMark, FoundCalls, Member, Which};
pub(crate) use cluster::{ClusterAccount, ClusterPoint, ClusterQuestion, Weighed};
pub(crate) use ddp::{ChangeRow, DdpAccount, DdpQuestion, ModelRef, Simulated};
pub(crate) use measure::{Area, CallShare, Measured, RankShare};
pub(crate) use mesh::{DimAccount, MeshAccount, MeshQuestion, Moved};
pub(crate) use schedule_file::{Proved, Refused, ScheduleFile};
pub(crate) use session_id::SessionId;
pub(crate) use wire::{pack, unpack};

use lockstep_analysis::Analysis;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::stop::{Direction, Stop};
use lockstep_core::trace::{Outcome, TraceHeader};
use lockstep_diagnosis::{Report, Wait};
use lockstep_replay::Variation;
use lockstep_sim::{Bounds, Comparison, Explored, Order, Topology, View};
use lockstep_torch::ddp::lab::{LabModel, Summary};
use serde::{Deserialize, Serialize};

/// What the page wants, with the number that its answers carry.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) id: u32,
    pub(crate) request: Request,
}

/// What the page may want.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Give up on an earlier question; that one is then answered with an error.
    Cancel { id: u32 },
    /// Simulate a plan to its end and hold it for stepping.
    Simulate { session: SessionId, plan: Box<Plan>, topology: Topology, order: Option<Order> },
    /// Look for an order of what a plan leaves open in which it does not complete.
    Explore { plan: Box<Plan>, topology: Topology, bounds: Bounds },
    /// What a collective on its own costs on a topology.
    Account { lab: CollectiveLab, topology: Topology },
    /// What it takes for each of several element counts, in picoseconds.
    Sweep { lab: CollectiveLab, topology: Topology, counts: Vec<u64> },
    /// A mesh, and what a collective along each of its dimensions moves.
    Mesh(Box<MeshQuestion>),
    /// What NCCL picks on a cluster, and how long it takes.
    Cluster(Box<ClusterQuestion>),
    /// Read the model in the attached file and hold it.
    OpenModel { session: SessionId },
    /// What DDP does with a model.
    Ddp { model: ModelRef, question: Box<DdpQuestion> },
    /// When each step of the only call of a simulation begins, in picoseconds.
    StepTimes { session: SessionId },
    /// Read the trace in the attachment.
    OpenTrace { session: SessionId, name: String },
    /// Read the attached files as one recording.
    OpenFiles { session: SessionId, paths: Vec<String> },
    /// Read the attached file for another worker, if it is a dump; its bytes come as the attachment.
    ReadDump { name: String },
    /// Read and prove the schedule in the attached file, and follow it to before a step.
    CheckSchedule { step: Option<u32> },
    /// Begin a trace whose bytes come piece by piece.
    OpenLive { session: SessionId },
    /// The next bytes of such a trace, in the attachment.
    Live { session: SessionId },
    /// The account of a live trace as far as it has come.
    Settle { session: SessionId },
    /// Forget a session.
    Close { session: SessionId },
    /// A simulation at one of its moments.
    See { session: SessionId, moment: usize },
    /// The nearest moment from `moment` on, or before it, at which one of `stops` is met.
    FindStop { session: SessionId, moment: usize, stops: Vec<Stop>, direction: Direction },
    /// The first moments at which stops are met, each looked for from the one before it on.
    FollowStops { session: SessionId, stops: Vec<Stop> },
    /// Who waits for whom at a moment.
    WaitsAt { session: SessionId, moment: usize },
    /// Elements of a rank's tensor at a moment; their bytes come as the attachment.
    Elements {
        session: SessionId,
        moment: usize,
        rank: GlobalRank,
        tensor: TensorId,
        first: u64,
        count: u64,
    },
    /// A stretch of the timeline as pixels, one byte each, in the attachment.
    Draw { session: SessionId, window: Window },
    /// What lies under a point of the timeline.
    Pick { session: SessionId, rank: u32, lane: u32, time_ps: u64, slack_ps: u64 },
    /// The calls that a query takes (`query.rs`).
    FindCalls { session: SessionId, query: String },
    /// A call of a rank.
    Locate { session: SessionId, rank: u32, which: Which },
    /// Measure ranks in a stretch of time.
    Measure { session: SessionId, area: Area },
    /// All that is known of a call.
    AboutCall { session: SessionId, id: CallId },
    /// The trace, in the attachment.
    Export { session: SessionId, form: Form },
    /// The trace of a plan without holding it, in the attachment; on the network that the plan's
    /// nodes ask for, if none is given.
    TraceOf { plan_json: String, topology: Option<Topology> },
    /// Try the repair of a recording's first finding, and hold the simulation of the repaired job; its plan comes as
    /// JSON in the attachment.
    Repair { session: SessionId, repaired: SessionId },
    /// Where the time of a trace went.
    Analyse { session: SessionId },
    /// Simulate the job of a trace as it is and with a change, and hold the changed one.
    WhatIf { session: SessionId, changed: SessionId, variation: Box<Variation> },
    /// How two sessions of one plan ended, value by value.
    Compare { simulated: SessionId, run: SessionId },
}

/// The answer to a question that was given up on.
pub(crate) const CANCELLED: &str = "cancelled";

/// In which form a trace leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    Binary,
    Json,
}

/// A stretch of a timeline to draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) from_ps: u64,
    pub(crate) to_ps: u64,
    /// Pixels across.
    pub(crate) columns: u32,
    /// The ranks that are shown, top down.
    pub(crate) ranks: Vec<u32>,
    /// Spans at least this many pixels wide get a text; 0 for none.
    pub(crate) label_columns: u32,
}

/// What the worker says to a question. Every question gets progress any number of times, then
/// exactly one of the others.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: u32,
    pub(crate) reply: Result<Response, String>,
}

/// The answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Progress(Reached),
    Done,
    Opened(Box<Opened>),
    DumpRead,
    Live(LiveCount),
    Seen(Box<View>),
    StopFound(Option<FoundStop>),
    StopsFollowed(Vec<Option<usize>>),
    Waits(Vec<Wait>),
    Explored(Box<Explored>),
    Repaired(Box<Repaired>),
    Analysed(Box<Analysis>),
    Changed(Box<Changed>),
    Elements { total: u64 },
    Drawn { rows: Vec<RowKind>, texts: Vec<SpanText> },
    Picked(Option<Picked>),
    CallsFound(Box<FoundCalls>),
    Located(Option<CallMark>),
    CallTold(Option<Box<CallDetails>>),
    Measured(Box<Measured>),
    Exported,
    Compared(Comparison),
    Accounted(Box<Account>),
    Meshed(Box<MeshAccount>),
    Clustered(Box<ClusterAccount>),
    Swept(Vec<u64>),
    StepTimes(Vec<u64>),
    ScheduleChecked(Box<ScheduleFile>),
    ModelOpened(Box<LabModel>),
    Ddp(Box<DdpAccount>),
    DdpChanges(Vec<ChangeRow>),
    DdpSwept(Vec<Vec<Summary>>),
    DdpPlan(Box<Plan>),
    DdpSimulated(Simulated),
}

/// How far the answer to a long question has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reached {
    pub(crate) done: u64,
    /// 0 where it is not known.
    pub(crate) total: u64,
    pub(crate) unit: Unit,
    /// What is counted; of bytes, what they are of.
    pub(crate) what: String,
}

/// What [`Reached`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    Bytes,
    Each,
}

/// A moment at which a stop is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundStop {
    pub(crate) moment: usize,
    /// Which of the stops.
    pub(crate) stop: usize,
    /// On which rank.
    pub(crate) rank: GlobalRank,
}

/// A trace as the page knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) session: SessionId,
    pub(crate) header: TraceHeader,
    pub(crate) outcome: Option<Outcome>,
    /// When it ends, in picoseconds.
    pub(crate) end_ps: u64,
    /// When something last happened in it.
    pub(crate) last_ps: u64,
    /// The stretch that is worth showing first.
    pub(crate) fit: (u64, u64),
    /// Rows a rank in the timeline.
    pub(crate) lanes: u32,
    pub(crate) calls: u64,
    /// The kinds of calls in it, as the palette numbers them.
    pub(crate) kinds: Vec<u8>,
    /// Whether a call never ended.
    pub(crate) unfinished: bool,
    /// The virtual time of every moment; empty for what was not simulated here.
    pub(crate) moments: Vec<u64>,
    pub(crate) report: Report,
    pub(crate) waits: Vec<Wait>,
    /// What could not be read, in sentences.
    pub(crate) problems: Vec<String>,
    /// What works answered, by time.
    pub(crate) answers: Vec<WorkAnswer>,
}

/// A repair that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Repaired {
    /// What is changed, in a sentence.
    pub(crate) change: String,
    /// True if the repaired job completes.
    pub(crate) verified: bool,
    /// What it comes to, in a sentence.
    pub(crate) why: String,
    /// The assumptions of the replay, a clause each.
    pub(crate) assumed: Vec<String>,
    /// The repaired job, simulated.
    pub(crate) opened: Opened,
}

/// What a work answered when its rank asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkAnswer {
    pub(crate) time_ps: u64,
    pub(crate) rank: u32,
    /// `is_completed`.
    pub(crate) question: String,
    /// As Python prints it.
    pub(crate) answer: String,
}

/// How far a live trace has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveCount {
    pub(crate) events: u64,
    pub(crate) end_ps: u64,
    pub(crate) world_size: u32,
    pub(crate) lanes: u32,
    pub(crate) ended: bool,
}

/// What a row of a rank shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RowKind {
    /// What its process does.
    Process,
    /// What its compute stream does.
    Compute,
    /// Its calls, on streams of their own.
    Communication,
    /// Its calls, of a backend without streams.
    Calls,
    /// The messages that it sends.
    Messages,
}

impl RowKind {
    /// Its name, in full and cut short.
    pub(crate) fn names(self) -> [&'static str; 2] {
        match self {
            RowKind::Process => ["process", "proc"],
            RowKind::Compute => ["compute stream", "comp"],
            RowKind::Communication => ["comm stream", "comm"],
            RowKind::Calls => ["calls", "calls"],
            RowKind::Messages => ["messages", "msgs"],
        }
    }
}

/// A text on a span of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpanText {
    pub(crate) rank: u32,
    pub(crate) lane: u32,
    /// As the pixels beneath it.
    pub(crate) class: u8,
    pub(crate) from_ps: u64,
    pub(crate) to_ps: u64,
    pub(crate) text: String,
}

/// What lies under a point of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Picked {
    pub(crate) title: String,
    pub(crate) from_ps: u64,
    /// `None` when it never ended.
    pub(crate) to_ps: Option<u64>,
    /// Names and values.
    pub(crate) facts: Vec<(String, String)>,
    /// The call's stack, innermost first.
    pub(crate) stack: Vec<String>,
    /// The call's number on its rank, if it is one.
    pub(crate) call: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written without one of its fields is read as something else, or not at all, and the page
    /// waits for it in vain.
    #[test]
    fn comparisons_arrive_as_they_were_sent() {
        for why in [None, Some("too large".to_owned())] {
            let sent = Comparison { not_compared: why, only_in_one: 3, ..Comparison::default() };
            let reply = Ok(Response::Compared(sent.clone()));
            let bytes = postcard::to_stdvec(&Answer { id: 7, reply }).unwrap();
            let Ok(Answer { id: 7, reply: Ok(Response::Compared(got)) }) =
                postcard::from_bytes(&bytes)
            else {
                panic!("a comparison did not arrive: {sent:?}");
            };
            assert_eq!(got, sent);
        }
    }
}
