//! The report of a diagnosis, as types; their JSON is `lockstep.findings/1`.

use crate::kinds::Kind;
use crate::repair::TriedRepair;
use lockstep_core::rank::GlobalRank;
use lockstep_core::words::rank_list;
use lockstep_formats::frames::StackPart;
use lockstep_formats::place::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    /// The findings, most important first.
    pub findings: Vec<Finding>,
    /// The gaps that keep a report without findings from being healthy: calls whose end was not
    /// recorded, ranks of which there is nothing, an error that names no rank. Empty where there
    /// are findings.
    #[serde(default)]
    pub unseen: Vec<String>,
    /// Notes for the reader that are no findings: a file that could not be read, a ring buffer that
    /// wrapped, calls that were still in flight on every rank.
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
    /// The kind of problem.
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
    /// The certainty of the diagnosis.
    pub certainty: Certainty,
    /// The events, in sentences for a tired engineer.
    pub message: String,
    /// The fix of it.
    pub fix: String,
    /// The places where it can be seen, ascending by rank.
    pub evidence: Vec<Evidence>,
    /// The ranks' calls side by side where they first disagree; `None` where there is nothing to compare
    /// (only one side left calls, the source has no calls), and for all but the first findings.
    #[serde(default)]
    pub ladder: Option<Ladder>,
    /// The calls that would have prevented it, tried in the simulator; `None` where nobody tried.
    #[serde(default)]
    pub repair: Option<TriedRepair>,
}

/// The calls of a few ranks side by side, around the point where they first disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    /// Two to four sides. The first shows what was expected, unless all sides are culprits.
    pub sides: Vec<LadderSide>,
    /// The calls in order; each has one step per side.
    pub rungs: Vec<Rung>,
    /// The number of rungs of the recording that were left out before these.
    pub before: u64,
    /// The number that were left out after them.
    pub after: u64,
}

/// One column of a [`Ladder`]: ranks that made the same calls, as far as each of them came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LadderSide {
    /// Ascending. The calls shown are those of the one that came furthest.
    pub ranks: Vec<GlobalRank>,
    /// True if the finding blames them.
    pub culprits: bool,
}

/// One row of a [`Ladder`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// One per side.
    pub steps: Vec<LadderStep>,
    /// True if the sides disagree here: a call that one left out, added, or made differently.
    pub differs: bool,
}

/// The action of one side of a [`Ladder`] at one rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LadderStep {
    /// It made this call.
    Called(LadderCall),
    /// It made a later call, and not this one.
    LeftOut,
    /// Its calls end before this one.
    NotReached,
}

/// A call as a [`Ladder`] shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LadderCall {
    /// PyTorch's name: `all_reduce`.
    pub op: String,
    /// The group's description, or its name if it has none.
    pub group: String,
    /// Its number in the group.
    pub seq: Option<u64>,
    /// Its tensors, reduction, root or peer, as far as known: `[1024] float32, sum`. Empty if nothing is.
    pub what: String,
    /// The line of the user's code, `train.py:88`.
    pub line: Option<String>,
    /// The program's position, innermost first. Only where sides differ, and only as far as it was recorded.
    pub stack: Vec<StackPart>,
    /// True if it had not ended.
    pub waits: bool,
}

/// The certainty of a finding.
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
    /// The rank.
    pub rank: GlobalRank,
    /// The call's number in the recorder that wrote it, else its number on its rank; `None` when
    /// the evidence is that there is no call.
    pub entry: Option<u64>,
    /// The line of the user's code, `train.py:88`; of a helper in a file of its own with its caller,
    /// `utils.py:33, called from train.py:88`.
    pub frame: Option<String>,
    /// The line of the job's file that tells it, where it is one of a log or of stacks.
    #[serde(default)]
    pub place: Option<Place>,
    /// The observation there: `waits in all_reduce #7 of dp`.
    #[serde(default)]
    pub note: String,
}

/// A rank that waits at the end of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The rank that waits.
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

impl LadderSide {
    /// `Ranks 0-1, 3`, and whether they are blamed: `Rank 2 (culprit)`.
    pub fn title(&self) -> String {
        let noun = if self.ranks.len() == 1 { "Rank" } else { "Ranks" };
        let blamed = if self.culprits { " (culprit)" } else { "" };
        format!("{noun} {}{blamed}", rank_list(&self.ranks))
    }
}

impl LadderCall {
    /// `all_reduce #7 of dp`.
    pub fn title(&self) -> String {
        let number = self.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
        format!("{}{number} of {}", self.op, self.group)
    }
}

impl Report {
    /// Every rank that a finding blames, ascending, once.
    pub fn culprits(&self) -> Vec<GlobalRank> {
        let all = self.findings.iter().flat_map(|finding| finding.culprits.iter().copied());
        let mut ranks = BTreeSet::new();
        // `collect` would link a sort into the page's module.
        ranks.extend(all);
        ranks.into_iter().collect()
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

    /// The report of a recording of which only a part was read, as `unread` says in a sentence. The files that were not
    /// read may be those of ranks of which nothing was recorded, so no rank is missing; no finding is certain, and
    /// without findings the verdict is inconclusive.
    #[must_use]
    pub fn of_a_part(mut self, unread: String) -> Report {
        self.findings.retain(|finding| finding.kind != Kind::RankMissing);
        for finding in self.findings.iter_mut().filter(|it| it.certainty == Certainty::Certain) {
            finding.certainty = Certainty::Likely;
        }
        match self.findings.is_empty() {
            true => {
                if self.verdict == Verdict::Findings {
                    self.verdict = Verdict::Inconclusive;
                }
                self.unseen.push(unread);
            }
            false => self.notes.insert(0, unread),
        }
        self.judged()
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
