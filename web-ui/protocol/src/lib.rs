//! The messages between page and worker: typed messages in postcard, and [`Client`], with which the
//! page asks its worker, and a worker other ones.
//!
//! A JavaScript message is an array: first the postcard bytes of a [`Question`] or an [`Answer`],
//! then whatever should be transferred instead of copied (files, trace bytes, rasters). The page
//! chooses the numbers of questions and sessions.

mod account;
mod analysis;
mod answer;
pub mod browser;
pub mod call_kinds;
mod calls;
mod client;
mod cluster;
mod ddp;
mod fabric;
mod hang;
mod kind_explanation;
mod log_lines;
mod machine;
mod measure;
mod mesh;
mod opened;
mod planned_call;
pub mod query;
mod question;
mod schedule_file;
mod session;
mod session_id;
mod session_question;
mod timeline;
mod tried;
mod wire;

pub use account::{Account, Explanation, Stroke, Weave};
pub use analysis::{Changed, JobChange};
pub use answer::{Answer, FoundStop, LiveCount, Reached, Response, Unit};
pub use calls::{CallDetails, CallId, CallMark, FoundCalls, Member, Which};
pub use client::{Answered, Asked, Client, Progress};
pub use cluster::{
    AskedRanks, ChoiceBand, ClusterAccount, ClusterPoint, ClusterQuestion, MeasuredPoints,
    MeasuredSource, Weighed,
};
pub use ddp::{ChangeRow, DdpAccount, DdpQuestion, ModelRef, PlacedSetting, Simulated};
pub use fabric::{FabricAccount, FabricPart, LoadStretch};
pub use hang::{Chapter, Hang};
pub use kind_explanation::KindExplanation;
pub use log_lines::LogLines;
pub use machine::{ClusterName, FabricFaultText, KnownCluster, Machine};
pub use measure::{Area, CallShare, Measured, RankShare};
pub use mesh::{DimAccount, MeshAccount, MeshQuestion, Moved};
pub use opened::{Opened, WorkAnswer};
pub use planned_call::PlannedCall;
pub use question::{CANCELLED, Question, Request};
pub use schedule_file::{Proved, Refused, ScheduleFile};
pub use session::Session;
pub use session_id::SessionId;
pub use session_question::{Form, SessionQuestion};
pub use timeline::{Link, Picked, RowKind, SpanText, Spot, Window};
pub use tried::Repaired;
pub use wire::{pack, unpack};
