//! The kinds of findings, each explained in a file of its own: what it means, how it looks, what to do.
//!
//! `lockstep explain`, the page's "What is this?" and `docs/findings.md` are made of these.

mod call_never_completed;
mod collective_mismatch;
mod ddp_model_mismatch;
mod ddp_uneven_inputs;
mod ddp_unused_parameters;
mod dtype_mismatch;
mod explanation;
mod group_deadlock;
mod group_mismatch;
mod loop_shorter;
mod op_extra;
mod op_skipped;
mod ops_swapped;
mod p2p_deadlock;
mod p2p_mismatch;
mod rank_died;
mod rank_missing;
mod rank_never_joined;
mod rank_unresponsive;
mod reduce_op_mismatch;
mod root_mismatch;
mod run_failed;
mod size_mismatch;
mod split_mismatch;
mod store_wait;
mod straggler;
mod work_dropped;

pub use explanation::Explanation;
use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// Every kind, in the order in which they are listed.
    pub const ALL: [Kind; 26] = [
        Kind::RankDied,
        Kind::StoreWait,
        Kind::RankUnresponsive,
        Kind::GroupDeadlock,
        Kind::P2pDeadlock,
        Kind::CollectiveMismatch,
        Kind::OpsSwapped,
        Kind::OpSkipped,
        Kind::OpExtra,
        Kind::LoopShorter,
        Kind::DdpUnevenInputs,
        Kind::DdpUnusedParameters,
        Kind::DdpModelMismatch,
        Kind::SizeMismatch,
        Kind::DtypeMismatch,
        Kind::ReduceOpMismatch,
        Kind::RootMismatch,
        Kind::SplitMismatch,
        Kind::P2pMismatch,
        Kind::RankNeverJoined,
        Kind::RankMissing,
        Kind::CallNeverCompleted,
        Kind::GroupMismatch,
        Kind::WorkDropped,
        Kind::Straggler,
        Kind::RunFailed,
    ];

    /// What there is to know of it.
    pub fn explanation(self) -> &'static Explanation {
        match self {
            Kind::RankDied => &rank_died::EXPLANATION,
            Kind::StoreWait => &store_wait::EXPLANATION,
            Kind::RankUnresponsive => &rank_unresponsive::EXPLANATION,
            Kind::GroupDeadlock => &group_deadlock::EXPLANATION,
            Kind::P2pDeadlock => &p2p_deadlock::EXPLANATION,
            Kind::CollectiveMismatch => &collective_mismatch::EXPLANATION,
            Kind::OpsSwapped => &ops_swapped::EXPLANATION,
            Kind::OpSkipped => &op_skipped::EXPLANATION,
            Kind::OpExtra => &op_extra::EXPLANATION,
            Kind::LoopShorter => &loop_shorter::EXPLANATION,
            Kind::DdpUnevenInputs => &ddp_uneven_inputs::EXPLANATION,
            Kind::DdpUnusedParameters => &ddp_unused_parameters::EXPLANATION,
            Kind::DdpModelMismatch => &ddp_model_mismatch::EXPLANATION,
            Kind::SizeMismatch => &size_mismatch::EXPLANATION,
            Kind::DtypeMismatch => &dtype_mismatch::EXPLANATION,
            Kind::ReduceOpMismatch => &reduce_op_mismatch::EXPLANATION,
            Kind::RootMismatch => &root_mismatch::EXPLANATION,
            Kind::SplitMismatch => &split_mismatch::EXPLANATION,
            Kind::P2pMismatch => &p2p_mismatch::EXPLANATION,
            Kind::RankNeverJoined => &rank_never_joined::EXPLANATION,
            Kind::RankMissing => &rank_missing::EXPLANATION,
            Kind::CallNeverCompleted => &call_never_completed::EXPLANATION,
            Kind::GroupMismatch => &group_mismatch::EXPLANATION,
            Kind::WorkDropped => &work_dropped::EXPLANATION,
            Kind::Straggler => &straggler::EXPLANATION,
            Kind::RunFailed => &run_failed::EXPLANATION,
        }
    }

    /// The kind of this name in files; `None` where there is none.
    pub fn of_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name in files: `rank_never_joined`.
    pub fn name(self) -> &'static str {
        self.explanation().name
    }

    /// A heading for people: `Rank never joined`.
    pub fn title(self) -> &'static str {
        self.explanation().title
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `docs/findings.md`: all kinds, as a table and one by one.
pub fn findings_page() -> String {
    let mut out = String::from(
        "# Findings\n\nWhat `lockstep diagnose`, `sim` and `run` may find. `lockstep explain KIND` prints one. \
         This page is written by `lockstep explain --markdown`.\n\n| kind | what it is | see one |\n| --- | --- | --- |\n",
    );
    let example = |it: &Explanation| {
        it.example.map(|example| format!("`lockstep {example}`")).unwrap_or_default()
    };
    for it in Kind::ALL.map(Kind::explanation) {
        let link = format!("[`{0}`](#{0})", it.name);
        out += &format!("| {link} | {} | {} |\n", it.title, example(it));
    }
    for it in Kind::ALL.map(Kind::explanation) {
        out += &format!("\n## {}\n**{}.** {}\n\n", it.name, it.title, it.what);
        for (label, text) in it.parts().into_iter().skip(1) {
            out += &format!("- **{label}**: {text}\n");
        }
    }
    out
}
