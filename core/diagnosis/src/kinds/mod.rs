//! The kinds of findings, each explained in a file of its own: what it means, how it looks, what to do.
//!
//! A kind is a file and a row of the table below. `lockstep explain`, the page's "What is this?" and
//! `docs/findings.md` are made of it.

mod explanation;

pub use explanation::Explanation;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The enum, the list of all kinds and their explanations, from a row for each.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident in $file:ident,)*) => {
        $(mod $file;)*

        /// The kind of problem that a finding reports.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind, in the order in which they are listed.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            // Reads the constants directly, so that code that only names a kind does not link the explanations.
            /// The name in files: `rank_never_joined`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => const { $file::EXPLANATION.name },)*
                }
            }

            /// A heading for people: `Rank never joined`.
            pub fn title(self) -> &'static str {
                match self {
                    $(Kind::$kind => const { $file::EXPLANATION.title },)*
                }
            }

            /// Explains the kind: its meaning, its look in dumps, logs and stacks, its fix.
            pub fn explanation(self) -> &'static Explanation {
                match self {
                    $(Kind::$kind => &$file::EXPLANATION,)*
                }
            }
        }
    };
}

kinds! {
    /// A rank died: a signal, an exception, a crash that the trace shows.
    RankDied in rank_died,
    /// Ranks wait in a store for what does not come, or too late.
    StoreWait in store_wait,
    /// A rank's process did not answer at the end of a run: it stands stopped, or out of reach.
    RankUnresponsive in rank_unresponsive,
    /// Ranks wait for each other through several groups, in a circle.
    GroupDeadlock in group_deadlock,
    /// Ranks wait for each other in sends and receives, in a circle.
    P2pDeadlock in p2p_deadlock,
    /// Two ranks called different collectives at the same sequence number.
    CollectiveMismatch in collective_mismatch,
    /// A rank made two calls in the other order.
    OpsSwapped in ops_swapped,
    /// A rank left out one call (or a few) that the others made.
    OpSkipped in op_skipped,
    /// A rank made one call (or a few) that the others did not make.
    OpExtra in op_extra,
    /// A rank left a loop earlier than the others.
    LoopShorter in loop_shorter,
    /// Ranks of a DDP model had different numbers of batches.
    DdpUnevenInputs in ddp_uneven_inputs,
    /// A parameter of a DDP model got no gradient on a rank, and its bucket never became ready.
    DdpUnusedParameters in ddp_unused_parameters,
    /// The ranks gave DDP different models.
    DdpModelMismatch in ddp_model_mismatch,
    /// The same call with different sizes.
    SizeMismatch in size_mismatch,
    /// The same call with different element types.
    DtypeMismatch in dtype_mismatch,
    /// The same call with different reductions.
    ReduceOpMismatch in reduce_op_mismatch,
    /// The same call with different roots.
    RootMismatch in root_mismatch,
    /// The parts of an uneven all_to_all disagree.
    SplitMismatch in split_mismatch,
    /// A send and its receive disagree, or one of them was never made.
    P2pMismatch in p2p_mismatch,
    /// A rank never made a call that its peers wait in.
    RankNeverJoined in rank_never_joined,
    /// Nothing of a rank was recorded, and others wait for it.
    RankMissing in rank_missing,
    /// Every rank made the call and it still did not complete: network, device, or not yet.
    CallNeverCompleted in call_never_completed,
    /// A transfer between two machines failed, by NCCL's network layer.
    NetworkError in network_error,
    /// Not every rank called `new_group`, or not for the same ranks in the same order.
    GroupMismatch in group_mismatch,
    /// The work of an asynchronous call was let go of, or failed without anybody waiting for it.
    WorkDropped in work_dropped,
    /// A receive of NCCL's, which ignores tags, got what was sent with another tag.
    P2pTagIgnored in p2p_tag_ignored,
    /// An optimizer stepped on gradients that DDP had not reduced.
    DdpGradientsNotReduced in ddp_gradients_not_reduced,
    /// A rank is slow, and the others wait for it again and again.
    Straggler in straggler,
    /// The run was ended, and the calls of its ranks do not say why.
    RunFailed in run_failed,
}

impl Kind {
    /// The kind of this name in files; `None` where there is none.
    pub fn of_name(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
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
    for it in Kind::ALL.iter().map(|kind| kind.explanation()) {
        let link = format!("[`{0}`](#{0})", it.name);
        out += &format!("| {link} | {} | {} |\n", it.title, example(it));
    }
    for it in Kind::ALL.iter().map(|kind| kind.explanation()) {
        out += &format!("\n## {}\n**{}.** {}\n\n", it.name, it.title, it.what);
        for (label, text) in it.parts().into_iter().skip(1) {
            out += &format!("- **{label}**: {text}\n");
        }
    }
    out
}
