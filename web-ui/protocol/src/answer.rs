//! The answers of the worker, and how far they have come.

use crate::account::Account;
use crate::analysis::Changed;
use crate::calls::{CallDetails, CallMark, FoundCalls};
use crate::cluster::ClusterAccount;
use crate::ddp::{ChangeRow, DdpAccount, Simulated};
use crate::hang::Hang;
use crate::kind_explanation::KindExplanation;
use crate::log_lines::LogLines;
use crate::machine::KnownCluster;
use crate::measure::Measured;
use crate::mesh::MeshAccount;
use crate::opened::Opened;
use crate::planned_call::PlannedCall;
use crate::schedule_file::ScheduleFile;
use crate::timeline::{Picked, RowKind, SpanText};
use crate::tried::Repaired;
use lockstep_analysis::Analysis;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_diagnosis::{Wait, WaitGroup};
use lockstep_sim::{Comparison, Explored, View};
use lockstep_torch::ddp::lab::{LabModel, Summary};
use serde::{Deserialize, Serialize};

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
    /// A line of a file, with those around it.
    LogLines(LogLines),
    /// Elements of a tensor, in the attachment.
    Elements {
        /// Elements of the whole tensor.
        total: u64,
    },
    /// Pixels, in the attachment, with their rows and texts.
    Drawn {
        /// True if what has not ended is cut by the end of the recording.
        cut: bool,
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
    /// The explanation of a kind of finding.
    KindExplained(KindExplanation),
    /// A plan: of a training run, or that was read.
    Plan(Box<Plan>),
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
