//! The messages between page and worker: typed messages in postcard, and [`Client`], with which the
//! page asks its worker, and a worker other ones.
//!
//! A JavaScript message is an array: first the postcard bytes of a [`Question`] or an [`Answer`],
//! then whatever should be transferred instead of copied (files, trace bytes, rasters). The page
//! chooses the numbers of questions and sessions.

mod account;
mod analysis;
pub mod browser;
pub mod call_kinds;
mod calls;
mod client;
mod cluster;
mod ddp;
mod fabric;
mod hang;
mod machine;
mod measure;
mod mesh;
mod opened;
mod planned_call;
pub mod query;
mod schedule_file;
mod session;
mod session_id;
mod session_question;
mod wire;

pub use account::{Account, Explanation, Stroke, Weave};
pub use analysis::{Changed, JobChange};
pub use calls::{CallDetails, CallId, CallMark, FoundCalls, Member, Which};
pub use client::{Answered, Asked, Client, Progress};
pub use cluster::{AskedRanks, ChoiceBand, ClusterAccount, ClusterPoint, ClusterQuestion, Weighed};
pub use ddp::{ChangeRow, DdpAccount, DdpQuestion, ModelRef, PlacedSetting, Simulated};
pub use fabric::{FabricAccount, FabricPart, LoadStretch};
pub use hang::{Chapter, Hang};
pub use machine::{ClusterName, KnownCluster, Machine};
pub use measure::{Area, CallShare, Measured, RankShare};
pub use mesh::{DimAccount, MeshAccount, MeshQuestion, Moved};
pub use opened::{Opened, WorkAnswer};
pub use planned_call::PlannedCall;
pub use schedule_file::{Proved, Refused, ScheduleFile};
pub use session::Session;
pub use session_id::SessionId;
pub use session_question::SessionQuestion;
pub use wire::{pack, unpack};

use lockstep_analysis::Analysis;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_diagnosis::{Wait, WaitGroup};
use lockstep_scenarios::TorchCallOptions;
use lockstep_sim::{Bounds, Comparison, Explored, Order, Topology, View};
use lockstep_torch::ddp::lab::{LabModel, Summary};
use serde::{Deserialize, Serialize};

/// A request of the page, with the number that its answers carry.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The number of the question.
    pub id: u32,
    /// The wish.
    pub request: Request,
}

/// A request of the page.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Give up on an earlier question; that one is then answered with an error.
    Cancel {
        /// The number of the question.
        id: u32,
    },
    /// Simulate a plan to its end and hold it for stepping.
    Simulate {
        /// The session.
        session: SessionId,
        /// The plan.
        plan: Box<Plan>,
        /// The machine.
        machine: Machine,
        /// The order of what the plan leaves open; absent for the simulator's own.
        order: Option<Order>,
    },
    /// Look for an order of everything that a plan leaves open in which it does not complete.
    Explore {
        /// The plan.
        plan: Box<Plan>,
        /// The machine.
        machine: Machine,
        /// The bounds of the search.
        bounds: Bounds,
    },
    /// The cost of a collective on its own on a topology.
    Account {
        /// The collective.
        lab: CollectiveLab,
        /// The network.
        topology: Topology,
    },
    /// The time of it for each of several element counts, in picoseconds.
    Sweep {
        /// The collective.
        lab: CollectiveLab,
        /// The network.
        topology: Topology,
        /// Element counts.
        counts: Vec<u64>,
    },
    /// A call of torch.distributed as a plan.
    PlanCall {
        /// PyTorch's name of it.
        call: String,
        /// Its options.
        options: Box<TorchCallOptions>,
        /// Other options, to be had where these are refused.
        instead: Vec<TorchCallOptions>,
    },
    /// A mesh, and the data that a collective along each of its dimensions moves.
    Mesh(Box<MeshQuestion>),
    /// NCCL's choice on a cluster, and its time.
    Cluster(Box<ClusterQuestion>),
    /// The named clusters.
    KnownClusters,
    /// The hangs that ship.
    Hangs,
    /// Read the model in the attached file and hold it.
    OpenModel {
        /// The session.
        session: SessionId,
    },
    /// DDP's work on a model.
    Ddp {
        /// The model.
        model: ModelRef,
        /// The question.
        question: Box<DdpQuestion>,
    },
    /// Read the trace in the attachment.
    OpenTrace {
        /// The session.
        session: SessionId,
        /// Its name.
        name: String,
    },
    /// Read the attached files as one recording.
    OpenFiles {
        /// The session.
        session: SessionId,
        /// Paths of the files, in their order.
        paths: Vec<String>,
    },
    /// Read the attached file for another worker, if it is a dump; its bytes come as the attachment.
    ReadDump {
        /// Its name.
        name: String,
    },
    /// Read and prove the schedule in the attached file, and follow it to before a step.
    CheckSchedule {
        /// The step before which it is shown; absent for the one where it goes wrong.
        step: Option<u32>,
    },
    /// Begin a trace whose bytes come piece by piece.
    OpenLive {
        /// The session.
        session: SessionId,
    },
    /// A question about a session that is held.
    About {
        /// The session.
        session: SessionId,
        /// The question.
        question: SessionQuestion,
    },
    /// Forget a session.
    Close {
        /// The session.
        session: SessionId,
    },
    /// The trace of a plan without holding it, in the attachment; on the network that the plan's
    /// nodes ask for, if no machine is given.
    TraceOf {
        /// The plan as JSON.
        plan_json: String,
        /// The machine.
        machine: Option<Machine>,
    },
    /// Try the repair of a recording's first finding, and hold the simulation of the repaired job; its plan comes as
    /// JSON in the attachment.
    Repair {
        /// The session.
        session: SessionId,
        /// The session of the repaired job.
        repaired: SessionId,
    },
    /// Simulate the job of a trace as it is and with a change, and hold the changed one.
    WhatIf {
        /// The session.
        session: SessionId,
        /// The session of the changed job.
        changed: SessionId,
        /// The change.
        change: Box<JobChange>,
    },
    /// A comparison of the ends of two sessions of one plan, value by value.
    Compare {
        /// The session of the simulation, or of another run.
        simulated: SessionId,
        /// The session of the run.
        run: SessionId,
    },
}

/// The answer to a question that was given up on.
pub const CANCELLED: &str = "cancelled";

/// The file format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// The binary form.
    Binary,
    /// JSON.
    Json,
    /// A trace for ui.perfetto.dev.
    Perfetto,
    /// PyTorch profiles, a file a rank, in a zip.
    Kineto,
    /// MLCommons Chakra execution traces, a file a rank, in a zip.
    Chakra,
    /// PyTorch Flight Recorder dumps, a file a rank, in a zip.
    FlightRecorder,
}

/// A stretch of a timeline to draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its start, in picoseconds.
    pub from_ps: u64,
    /// Its end, in picoseconds.
    pub to_ps: u64,
    /// Pixels across.
    pub columns: u32,
    /// The ranks that are shown, top down.
    pub ranks: Vec<u32>,
    /// Spans at least this many pixels wide get a text; 0 for none.
    pub label_columns: u32,
}

/// The worker's answer to a question. Every question gets progress any number of times, then
/// exactly one of the others.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the question.
    pub id: u32,
    /// The answer, or a sentence with the reason that there is none.
    pub reply: Result<Response, String>,
}

/// The answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Response {
    /// The progress of the answer.
    Progress(Reached),
    /// The end of a request without other result.
    Done,
    /// A trace is held.
    Opened(Box<Opened>),
    /// A dump was read; it comes as the attachment.
    DumpRead,
    /// A live trace has grown.
    Live(LiveCount),
    /// A simulation at a moment.
    Seen(Box<View>),
    /// The nearest stop, if there is one.
    StopFound(Option<FoundStop>),
    /// The moment of each stop, if it is met.
    StopsFollowed(Vec<Option<usize>>),
    /// Ranks that wait, and the ranks that they wait for; and the same by their cause.
    Waits(Vec<Wait>, Vec<WaitGroup>),
    /// The result of a search for an order that hangs.
    Explored(Box<Explored>),
    /// A repair that was tried.
    Repaired(Box<Repaired>),
    /// The text of a program.
    ProgramWritten(String),
    /// The analysis of the time.
    Analysed(Box<Analysis>),
    /// A job without and with a change.
    Changed(Box<Changed>),
    /// Elements of a tensor, in the attachment.
    Elements {
        /// Elements of the whole tensor.
        total: u64,
    },
    /// Pixels, in the attachment, with their rows and texts.
    Drawn {
        /// The rows of a rank.
        rows: Vec<RowKind>,
        /// Texts on its wide spans.
        texts: Vec<SpanText>,
    },
    /// The item under a point, if there is one.
    Picked(Option<Picked>),
    /// Calls that a query takes.
    CallsFound(Box<FoundCalls>),
    /// A call, if the rank has it.
    Located(Option<CallMark>),
    /// All that is known of a call, if it is there.
    CallTold(Option<Box<CallDetails>>),
    /// Ranks measured in a stretch of time.
    Measured(Box<Measured>),
    /// A trace, in the attachment.
    Exported,
    /// The comparison of two sessions.
    Compared(Comparison),
    /// A collective's cost.
    Accounted(Box<Account>),
    /// A call's plan or refusal.
    CallPlanned(PlannedCall),
    /// A mesh and its costs.
    Meshed(Box<MeshAccount>),
    /// A collective on a named cluster.
    Clustered(Box<ClusterAccount>),
    /// The named clusters, by name.
    KnownClusters(Vec<KnownCluster>),
    /// The hangs that ship, in the order of the gallery.
    Hangs(Vec<Hang>),
    /// Times of element counts, in picoseconds.
    Swept(Vec<u64>),
    /// The starts of a call's steps, in picoseconds.
    StepTimes(Vec<u64>),
    /// A schedule, proved or refused.
    ScheduleChecked(Box<ScheduleFile>),
    /// A model is held.
    ModelOpened(Box<LabModel>),
    /// A setting and one of its passes.
    Ddp(Box<DdpAccount>),
    /// The effect of each changed option.
    DdpChanges(Vec<ChangeRow>),
    /// Steps over two axes, a list for each line.
    DdpSwept(Vec<Vec<Summary>>),
    /// A training run as a plan.
    DdpPlan(Box<Plan>),
    /// A step in the simulator.
    DdpSimulated(Simulated),
}

/// The progress of the answer to a long question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The number that is done.
    pub done: u64,
    /// 0 where it is not known.
    pub total: u64,
    /// The unit of both.
    pub unit: Unit,
    /// The thing that is counted; for bytes, the things they belong to.
    pub what: String,
}

/// The unit of [`Reached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things that are named.
    Each,
}

/// A moment at which a stop is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundStop {
    /// The moment.
    pub moment: usize,
    /// The index of the stop.
    pub stop: usize,
    /// The rank that meets the stop.
    pub rank: GlobalRank,
}

/// A repair that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repaired {
    /// The change, in a sentence.
    pub change: String,
    /// True if the repaired job completes.
    pub verified: bool,
    /// The result, in a sentence.
    pub why: String,
    /// The assumptions of the replay, a clause each.
    pub assumed: Vec<String>,
    /// The repaired job, simulated.
    pub opened: Opened,
    /// The first call of each changed rank that is another one than was recorded.
    pub changed: Vec<CallMark>,
}

/// The progress of a live trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveCount {
    /// Events so far.
    pub events: u64,
    /// Its end so far, in picoseconds.
    pub end_ps: u64,
    /// The number of ranks.
    pub world_size: u32,
    /// Rows a rank in the timeline.
    pub lanes: u32,
    /// True if the run has ended.
    pub ended: bool,
}

/// The kind of a rank's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowKind {
    /// Its process.
    Process,
    /// Its compute stream.
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
    pub fn names(self) -> [&'static str; 2] {
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
pub struct SpanText {
    /// The rank.
    pub rank: u32,
    /// The row among those of its rank.
    pub lane: u32,
    /// As the pixels beneath it.
    pub class: u8,
    /// Its start, in picoseconds.
    pub from_ps: u64,
    /// Its end, in picoseconds.
    pub to_ps: u64,
    /// The text.
    pub text: String,
}

/// The item under a point of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picked {
    /// Its name in a line.
    pub title: String,
    /// Its start, in picoseconds.
    pub from_ps: u64,
    /// `None` when it never ended.
    pub to_ps: Option<u64>,
    /// Names and values.
    pub facts: Vec<(String, String)>,
    /// The call's stack, innermost first.
    pub stack: Vec<String>,
    /// The call's number on its rank, if it is one.
    pub call: Option<u32>,
    /// From a send to its receive; from the member of a collective that came last to the others,
    /// which waited for it.
    pub links: Vec<Link>,
}

/// An arrow from one moment of a rank to one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its tail.
    pub from: Spot,
    /// Its head.
    pub to: Spot,
}

/// A moment of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// The rank.
    pub rank: u32,
    /// Its row among those of the rank; `None` for all of them.
    pub lane: Option<u32>,
    /// The time, in picoseconds.
    pub time_ps: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message that is written without one of its fields is read as something else, or not at
    /// all, and the page waits for it in vain.
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
