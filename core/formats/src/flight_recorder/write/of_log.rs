//! The dumps that PyTorch's recorder would have written of the calls of a trace.
//!
//! All groups are written as NCCL's, whatever carried the calls out: most versions of PyTorch's
//! analyser (`torch/distributed/flight_recorder/components/types.py`) take no other names, and
//! NCCL's dumps list the members of groups, which gloo's do not.

use super::VERSION;
use crate::flight_recorder::{Dump, Entry, Form, GroupConfig, GroupStatus, Site};
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, Called, Frame, RankLog};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The dumps of every rank in the log, named `nccl_trace_rank_N`. `epoch_ns` is the wall clock at time 0, in
/// nanoseconds since 1970; 0 for virtual time. Facts that a recorder does not record (reductions, roots,
/// splits, tags) are lost.
pub fn dumps_of(log: &CallLog, epoch_ns: u64) -> Vec<Dump> {
    log.logs().map(|(rank, own)| dump(log, rank, own, epoch_ns)).collect()
}

/// A group that the rank is in, and how far its collectives have come.
struct Member<'a> {
    id: GroupId,
    group: &'a ProcessGroup,
    status: GroupStatus,
    /// Calls so far: collectives, and point-to-point ones.
    seqs: [u64; 2],
}

fn dump(log: &CallLog, rank: GlobalRank, own: &RankLog, epoch_ns: u64) -> Dump {
    let groups = (0..).map(GroupId).zip(&log.groups);
    let groups = groups.filter(|(_, group)| group.group_rank(rank).is_some());
    let mut members: Vec<Member<'_>> = groups
        .map(|(id, group)| Member { id, group, status: GroupStatus::default(), seqs: [0, 0] })
        .collect();
    let mut sites: BTreeMap<Site, u32> = BTreeMap::new();
    let mut entries = Vec::with_capacity(own.calls.len());
    for record in &own.calls {
        let call = &record.call;
        let pg_id = members.iter().position(|member| member.id == call.group);
        let Some((pg_id, member)) = pg_id.and_then(|at| Some((at, members.get_mut(at)?))) else {
            continue;
        };
        let seq = record.seq.unwrap_or(0);
        let completed = record.state == CallState::Completed;
        let [collectives, point_to_point] = &mut member.seqs;
        if call.p2p {
            *point_to_point = seq;
        } else {
            *collectives = seq;
            member.status.last_enqueued = Some(seq);
            if completed {
                member.status.last_completed = Some(seq);
            }
        }
        let site = site(log.plan.as_deref(), rank, record, pg_id as u64, member.group);
        let next = sites.len() as u32;
        let ns = |ps: u64| epoch_ns.saturating_add(ps / 1000).max(1);
        entries.push(Entry {
            site: *sites.entry(site).or_insert(next),
            // The start of a call is only known with TORCH_NCCL_ENABLE_TIMING.
            started: completed,
            completed,
            record_id: Some(record.record_id.unwrap_or(u64::from(record.work))),
            collective_seq: Some(*collectives),
            p2p_seq: Some(*point_to_point),
            created_ns: ns(record.scheduled_ps),
            started_ns: None,
            completed_ns: record.completed_ps.map(ns),
        });
    }
    let config = members.iter().map(|member| GroupConfig {
        name: member.group.name().to_owned(),
        desc: member.group.desc().to_owned(),
        ranks: member.group.ranks().to_vec(),
    });
    let mut numbered: Vec<(Site, u32)> = sites.into_iter().collect();
    numbered.sort_by_key(|(_, number)| *number);
    Dump {
        file_name: format!("nccl_trace_rank_{rank}"),
        rank,
        form: Form::Pickle,
        version: Some(VERSION.to_owned()),
        groups: config.collect(),
        status: (0..).zip(members.iter().map(|member| member.status)).collect(),
        sites: numbered.into_iter().map(|(site, _)| site).collect(),
        entries,
        bytes: 0,
    }
}

fn site(
    plan: Option<&Plan>,
    rank: GlobalRank,
    record: &CallRecord,
    pg_id: u64,
    group: &ProcessGroup,
) -> Site {
    let call = &record.call;
    // For a send or receive NCCL's recorder writes the tensor on both sides.
    let in_place = call.p2p || matches!(call.op.as_str(), "all_reduce" | "broadcast" | "reduce");
    // In-place calls of a plan have one of the two only; a recorder writes both.
    let (inputs, outputs) = match (call.inputs.is_empty(), call.outputs.is_empty()) {
        (true, false) if in_place => (&call.outputs, &call.outputs),
        (false, true) if in_place => (&call.inputs, &call.inputs),
        _ => (&call.inputs, &call.outputs),
    };
    let planned = || plan.and_then(|plan| planned_frame(plan, rank, record.plan_op?));
    let stack = match call.stack.is_empty() {
        true => planned().into_iter().collect(),
        false => Arc::clone(&call.stack),
    };
    Site {
        profiling_name: Arc::from(profiling_name(call, rank, group)),
        pg_id,
        group: Some(Arc::from(group.name())),
        group_desc: Arc::from(group.desc()),
        p2p: call.p2p,
        inputs: inputs.clone(),
        outputs: outputs.clone(),
        timeout_ms: Some(group.timeout_ms()),
        stack,
    }
}

/// The line of the plan that made the call, as a frame.
fn planned_frame(plan: &Plan, rank: GlobalRank, op: u32) -> Option<Frame> {
    let at = plan.program(rank)?.ops.get(op as usize)?.at?;
    let source = plan.sources.get(at.source as usize)?;
    Some(Frame { function: "<module>".to_owned(), file: source.path.clone(), line: at.line })
}

/// The name of the call in NCCL's recorder.
fn profiling_name(call: &Called, rank: GlobalRank, group: &ProcessGroup) -> String {
    let own = group.group_rank(rank).map_or_else(|| "?".to_owned(), |own| own.to_string());
    let peer = call.peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string());
    let single = call.inputs.len() <= 1 && call.outputs.len() <= 1;
    match call.op.as_str() {
        "send" | "isend" => format!("nccl:send {own}->{peer}"),
        "recv" | "irecv" => format!("nccl:recv {own}<-{peer}"),
        "all_gather" if single => "nccl:_all_gather_base".to_owned(),
        "reduce_scatter" if single => "nccl:_reduce_scatter_base".to_owned(),
        "barrier" | "monitored_barrier" => "nccl:all_reduce_barrier".to_owned(),
        other => format!("nccl:{other}"),
    }
}
