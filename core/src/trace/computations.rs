//! The operations of each rank's program as spans of time, for files and views that show work and calls side by side.

use super::{Trace, What};
use crate::plan::Action;
use crate::rank::GlobalRank;
use std::collections::BTreeMap;

/// A stretch of time, in picoseconds after the trace's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it begins.
    pub from_ps: u64,
    /// `None` if it does not end in the trace.
    pub to_ps: Option<u64>,
}

/// The times at which a rank's program, and its compute stream, was at its operations.
#[derive(Clone, Debug, Default)]
pub struct RankOps {
    /// By the operation's index.
    pub in_process: BTreeMap<u32, Span>,
    /// The spans of operations that were put on the compute stream.
    pub on_stream: BTreeMap<u32, Span>,
}

/// A computation or idle time of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Computation<'a> {
    /// Its index in the rank's program.
    pub op: u32,
    /// Its name in the plan: `forward`.
    pub name: &'a str,
    /// Its source line, `train.py:88`, if the plan has one.
    pub line: Option<String>,
    /// True if nothing is computed: a sleep.
    pub idle: bool,
    /// The time in which it was carried out: on the compute stream, where it was put on that.
    pub span: Span,
}

/// The operations of every rank that the trace has any of.
pub fn rank_ops(trace: &Trace) -> BTreeMap<GlobalRank, RankOps> {
    let mut ranks: BTreeMap<GlobalRank, RankOps> = BTreeMap::new();
    for event in &trace.events {
        let (op, on_stream, begins) = match event.what {
            What::OpBegan { op } => (op, false, true),
            What::OpEnded { op } => (op, false, false),
            What::StreamBegan { op } => (op, true, true),
            What::StreamEnded { op } => (op, true, false),
            _ => continue,
        };
        let ops = ranks.entry(event.rank).or_default();
        let spans = if on_stream { &mut ops.on_stream } else { &mut ops.in_process };
        if begins {
            spans.entry(op).or_insert(Span { from_ps: event.time_ps, to_ps: None });
        } else if let Some(span) = spans.get_mut(&op) {
            span.to_ps = Some(event.time_ps);
        }
    }
    ranks
}

impl RankOps {
    /// The computations of the rank, in the order of its program.
    pub fn computations<'a>(
        &'a self,
        trace: &'a Trace,
        rank: GlobalRank,
    ) -> impl Iterator<Item = Computation<'a>> {
        let plan = trace.header.plan.as_deref();
        let program = plan.and_then(|plan| plan.program(rank));
        self.in_process.iter().filter_map(move |(op, in_process)| {
            let (name, idle) = match &program?.ops.get(*op as usize)?.action {
                Action::Compute { name, .. } => (&**name, false),
                Action::Sleep { name, .. } => (&**name, true),
                _ => return None,
            };
            let span = self.on_stream.get(op).copied().unwrap_or(*in_process);
            let at = program?.ops.get(*op as usize)?.at;
            let line = plan.zip(at).map(|(plan, at)| plan.describe_line(at));
            Some(Computation { op: *op, name, line, idle, span })
        })
    }
}
