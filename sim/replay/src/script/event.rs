//! The recorder's notes of a rank: a JSON object an event, in the order in which the rank acted.

use serde::{Deserialize, Serialize};

/// A line of the script: its file, relative to the script's folder, and the line's number from 1.
pub type Place = (String, u32);

/// One thing that a rank did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum ScriptEvent {
    /// It became a member of a process group.
    Group {
        /// Names the group in calls; equal on all its members.
        id: String,
        /// c10d's name of the group: `0`, `1`, …
        name: String,
        /// The members by global rank, in the order of their group ranks.
        ranks: Vec<u32>,
        /// The backend that the script asked for: `nccl` or `gloo`.
        backend: String,
        /// `group_desc`.
        #[serde(default)]
        desc: String,
        /// The group's timeout in milliseconds, if the script gave one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Others became members of a process group. Noted where roles are derived.
    GroupOfOthers {
        /// Names the group, as in [`ScriptEvent::Group`].
        id: String,
        /// c10d's name of the group.
        name: String,
        /// The members by global rank.
        ranks: Vec<u32>,
        /// The backend that the script asked for.
        backend: String,
        /// `group_desc`.
        #[serde(default)]
        desc: String,
        /// The group's timeout in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// The members of this group average their gradients in it. Noted where roles are derived.
    DataParallel {
        /// The group's `id`.
        group: String,
    },
    /// The script's own files compare the rank with something. Noted where roles are derived.
    Compared {
        /// The comparison as Python writes it.
        what: String,
        /// The ranks for which it is true; none where that could not be told.
        #[serde(default, rename = "true", skip_serializing_if = "Option::is_none")]
        yes: Option<Vec<u32>>,
        /// The script's line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
    },
    /// It made a call.
    Call {
        /// Counts the rank's calls from 0.
        id: u64,
        /// PyTorch's name: `all_reduce`, `send`, …
        op: String,
        /// The group's `id`.
        group: String,
        /// The element type, without `torch.`; none for a barrier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dtype: Option<String>,
        /// Elements of each tensor that was passed in.
        #[serde(default, rename = "in")]
        inputs: Vec<u64>,
        /// Elements of each tensor for the result.
        #[serde(default, rename = "out")]
        outputs: Vec<u64>,
        /// The reduction in lower case: `sum`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reduce: Option<String>,
        /// The root's group rank.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        root: Option<u32>,
        /// The other side of a send or receive, as a group rank; none for a receive from anyone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<u32>,
        /// The tag of a send or receive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<u32>,
        /// Elements for each member, for an `all_to_all` with parts of its own sizes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_splits: Option<Vec<u64>>,
        /// Elements from each member.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        out_splits: Option<Vec<u64>>,
        /// The call's own timeout in milliseconds, for a `monitored_barrier`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// The script's line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
        /// The lines that called the function in which that line is, innermost first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        callers: Vec<Place>,
        /// The function that the script called there, if it has another name: `all_gather_object`, `backward`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<String>,
    },
    /// It waited for a call.
    Wait {
        /// The call's `id`.
        id: u64,
        /// The script's line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
    },
    /// The calls up to [`ScriptEvent::BatchEnd`] are started together.
    Batch,
    /// Ends a batch.
    BatchEnd,
    /// It computed.
    Work {
        /// `forward`, `backward`, `optimizer step`.
        phase: String,
        /// Floating point operations of its matrix products, convolutions and attention.
        flops: f64,
        /// Bytes that its operators read and wrote.
        bytes: f64,
        /// The operators' time on the card that was asked for, in nanoseconds; 0 without a card.
        card_ns: u64,
        /// The time it took where it was recorded, in nanoseconds.
        wall_ns: u64,
    },
    /// It called `time.sleep`.
    Sleep {
        /// For how long, in nanoseconds.
        ns: u64,
        /// The script's line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
    },
    /// `torch.cuda.synchronize()`.
    Synchronize,
    /// Its optimizer stepped.
    Step,
    /// A value that others would have sent was assumed.
    Assumed {
        /// The assumption, as a clause.
        what: String,
        /// The script's line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
    },
    /// Its process ended.
    End {
        /// The exception's last line if it raised: `ValueError: …`; `os._exit(1)`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        how: Option<String>,
        /// The process's exit status.
        #[serde(default)]
        status: i64,
        /// The traceback as Python prints it.
        #[serde(default)]
        traceback: String,
        /// The innermost line of the script from which the exception came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
    },
}
