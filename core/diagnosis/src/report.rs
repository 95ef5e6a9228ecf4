//! What a diagnosis says, as types; their JSON is `lockstep.findings/1`.

use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The name and version of the report's JSON.
pub const FINDINGS_SCHEMA: &str = "lockstep.findings/1";

/// Everything a diagnosis has to say of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FINDINGS_SCHEMA`].
    pub schema: String,
    /// The answer in a word.
    pub verdict: Verdict,
    /// The number of ranks of the job.
    pub world_size: u32,
    /// What is wrong, most important first.
    pub findings: Vec<Finding>,
    /// What was not seen, and keeps a report without findings from being healthy: calls whose end
    /// was not recorded, ranks of which there is nothing, an error that names no rank. Empty where
    /// there are findings.
    #[serde(default)]
    pub unseen: Vec<String>,
    /// What the reader should know and is no finding: a file that could not be read, a ring buffer
    /// that wrapped, calls that were still in flight on every rank.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The answer in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Calls were seen to end on all ranks, and no source holds an error.
    Healthy,
    /// Something is wrong: see the findings.
    Findings,
    /// The trace holds nothing that could be judged.
    Unusable,
    /// No finding, and no evidence of health either: see [`Report::unseen`].
    Inconclusive,
}

impl Verdict {
    /// The exit code of `lockstep diagnose`: 0 healthy, 1 findings, 2 unusable, 3 inconclusive.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Healthy => 0,
            Verdict::Findings => 1,
            Verdict::Unusable => 2,
            Verdict::Inconclusive => 3,
        }
    }
}

/// One diagnosed problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of problem.
    pub kind: Kind,
    /// The ranks that caused it, ascending; both sides when a tie cannot be decided.
    pub culprits: Vec<GlobalRank>,
    /// The ranks that wait because of it, directly or through others, ascending.
    pub victims: Vec<GlobalRank>,
    /// The group of the call, if the problem has one.
    pub group: Option<GroupRef>,
    /// The call's sequence number in the group, as the majority counts.
    pub seq: Option<u64>,
    /// The call, in PyTorch's name: `all_reduce`.
    pub op: Option<String>,
    /// How sure the diagnosis is.
    pub certainty: Certainty,
    /// What happened, in sentences for a tired engineer.
    pub message: String,
    /// What to do about it.
    pub fix: String,
    /// Where it can be seen, ascending by rank.
    pub evidence: Vec<Evidence>,
}

/// What kind of problem a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rank died: a signal, an exception, a crash that the trace shows.
    RankDied,
    /// Ranks wait in a store for what does not come, or too late.
    StoreWait,
    /// A rank's process did not answer at the end of a run: it stands stopped, or out of reach.
    RankUnresponsive,
    /// Ranks wait for each other through several groups, in a circle.
    GroupDeadlock,
    /// Ranks wait for each other in sends and receives, in a circle.
    P2pDeadlock,
    /// Two ranks called different collectives at the same sequence number.
    CollectiveMismatch,
    /// A rank made two calls in the other order.
    OpsSwapped,
    /// A rank left out one call (or a few) that the others made.
    OpSkipped,
    /// A rank made one call (or a few) that the others did not make.
    OpExtra,
    /// A rank left a loop earlier than the others.
    LoopShorter,
    /// Ranks of a DDP model had different numbers of batches.
    DdpUnevenInputs,
    /// A parameter of a DDP model got no gradient on a rank, and its bucket never became ready.
    DdpUnusedParameters,
    /// The ranks gave DDP different models.
    DdpModelMismatch,
    /// The same call with different sizes.
    SizeMismatch,
    /// The same call with different element types.
    DtypeMismatch,
    /// The same call with different reductions.
    ReduceOpMismatch,
    /// The same call with different roots.
    RootMismatch,
    /// The parts of an uneven all_to_all disagree.
    SplitMismatch,
    /// A send and its receive disagree, or one of them was never made.
    P2pMismatch,
    /// A rank never made a call that its peers wait in.
    RankNeverJoined,
    /// Nothing of a rank was recorded, and others wait for it.
    RankMissing,
    /// Every rank made the call and it still did not complete: network, device, or not yet.
    CallNeverCompleted,
    /// Not every rank called `new_group`, or not for the same ranks in the same order.
    GroupMismatch,
    /// The work of an asynchronous call was let go of, or failed without anybody waiting for it.
    WorkDropped,
    /// A rank is slow, and the others wait for it again and again.
    Straggler,
    /// The run was ended, and the calls of its ranks do not say why.
    RunFailed,
}

impl Kind {
    /// The name in files: `rank_never_joined`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::RankDied => "rank_died",
            Kind::StoreWait => "store_wait",
            Kind::RankUnresponsive => "rank_unresponsive",
            Kind::GroupDeadlock => "group_deadlock",
            Kind::P2pDeadlock => "p2p_deadlock",
            Kind::CollectiveMismatch => "collective_mismatch",
            Kind::OpsSwapped => "ops_swapped",
            Kind::OpSkipped => "op_skipped",
            Kind::OpExtra => "op_extra",
            Kind::LoopShorter => "loop_shorter",
            Kind::DdpUnevenInputs => "ddp_uneven_inputs",
            Kind::DdpUnusedParameters => "ddp_unused_parameters",
            Kind::DdpModelMismatch => "ddp_model_mismatch",
            Kind::SizeMismatch => "size_mismatch",
            Kind::DtypeMismatch => "dtype_mismatch",
            Kind::ReduceOpMismatch => "reduce_op_mismatch",
            Kind::RootMismatch => "root_mismatch",
            Kind::SplitMismatch => "split_mismatch",
            Kind::P2pMismatch => "p2p_mismatch",
            Kind::RankNeverJoined => "rank_never_joined",
            Kind::RankMissing => "rank_missing",
            Kind::CallNeverCompleted => "call_never_completed",
            Kind::GroupMismatch => "group_mismatch",
            Kind::WorkDropped => "work_dropped",
            Kind::Straggler => "straggler",
            Kind::RunFailed => "run_failed",
        }
    }

    /// A heading for people: `Rank never joined`.
    pub fn title(self) -> &'static str {
        match self {
            Kind::RankDied => "Rank died",
            Kind::StoreWait => "Waited in a store in vain",
            Kind::RankUnresponsive => "Rank does not answer",
            Kind::GroupDeadlock => "Deadlock across groups",
            Kind::P2pDeadlock => "Deadlock in send and recv",
            Kind::CollectiveMismatch => "Different collectives",
            Kind::OpsSwapped => "Calls in a different order",
            Kind::OpSkipped => "Skipped call",
            Kind::OpExtra => "Extra call",
            Kind::LoopShorter => "Loop ended early",
            Kind::DdpUnevenInputs => "Uneven inputs",
            Kind::DdpUnusedParameters => "Unused parameters",
            Kind::DdpModelMismatch => "Different models",
            Kind::SizeMismatch => "Different sizes",
            Kind::DtypeMismatch => "Different element types",
            Kind::ReduceOpMismatch => "Different reductions",
            Kind::RootMismatch => "Different roots",
            Kind::SplitMismatch => "Different splits",
            Kind::P2pMismatch => "Unmatched send or recv",
            Kind::RankNeverJoined => "Rank never joined",
            Kind::RankMissing => "Rank missing",
            Kind::CallNeverCompleted => "Call never completed",
            Kind::GroupMismatch => "Groups made differently",
            Kind::WorkDropped => "Work that nobody waits for",
            Kind::Straggler => "Slow rank",
            Kind::RunFailed => "Run that did not complete",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The trace shows it.
    Certain,
    /// The trace fits it best.
    Likely,
    /// Something is wrong, but the trace cannot tell who did it: a tie, equal sizes.
    Undecidable,
}

/// A process group as a finding names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRef {
    /// Its unique name.
    pub name: String,
    /// Its description, empty if none was given.
    pub desc: String,
    /// Its members in group-rank order, as far as known.
    pub ranks: Vec<GlobalRank>,
}

/// One place where a finding can be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Whose.
    pub rank: GlobalRank,
    /// The call's number in the recorder that wrote it, else its number on its rank; `None` when
    /// the evidence is that there is no call.
    pub entry: Option<u64>,
    /// The line of the user's code, `train.py:88`; of a helper in a file of its own with its caller,
    /// `utils.py:33, called from train.py:88`.
    pub frame: Option<String>,
    /// What is seen there: `waits in all_reduce #7 of dp`.
    #[serde(default)]
    pub note: String,
}

/// A rank that waits at the end of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Who waits.
    pub rank: GlobalRank,
    /// In which group.
    pub group: GroupRef,
    /// At which number of the group.
    pub seq: Option<u64>,
    /// In which call: `all_reduce`.
    pub op: String,
    /// The line of the user's code, `train.py:88`.
    pub line: Option<String>,
    /// The call's number on its rank.
    pub work: u32,
    /// For whom, ascending; empty when every member has come and the call still goes on.
    pub waits_for: Vec<GlobalRank>,
}

impl Report {
    /// Every rank that a finding blames, ascending, once.
    pub fn culprits(&self) -> Vec<GlobalRank> {
        let all = self.findings.iter().flat_map(|finding| finding.culprits.iter().copied());
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A report without findings, of which everything was seen.
    pub fn healthy(world_size: u32) -> Report {
        Report {
            schema: FINDINGS_SCHEMA.to_owned(),
            verdict: Verdict::Healthy,
            world_size,
            findings: Vec::new(),
            unseen: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The same report with the verdict that its findings and [`Report::unseen`] lead to. What is
    /// unusable stays so until it has a finding.
    #[must_use]
    pub fn judged(mut self) -> Report {
        if !self.findings.is_empty() {
            self.unseen.clear();
        }
        self.verdict = match self.verdict {
            _ if !self.findings.is_empty() => Verdict::Findings,
            Verdict::Unusable => Verdict::Unusable,
            _ if !self.unseen.is_empty() => Verdict::Inconclusive,
            _ => Verdict::Healthy,
        };
        self
    }

    /// A report that says why nothing could be judged.
    pub fn unusable(world_size: u32, why: impl Into<String>) -> Report {
        Report {
            verdict: Verdict::Unusable,
            notes: vec![why.into()],
            ..Report::healthy(world_size)
        }
    }
}
