//! The words on the timeline: what a span is called, and what is known of it.

use super::class::Class;
use super::lanes::{OPEN, Row, Span};
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Action, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, TensorShape};
use lockstep_diagnosis::StackPart;
use lockstep_formats::frames::stack_parts;
use lockstep_web_protocol::Picked;

/// The text on a span.
pub(super) fn on_span(
    plan: Option<&Plan>,
    log: Option<&CallLog>,
    rank: u32,
    row: Row,
    span: &Span,
) -> String {
    match row {
        Row::Program if span.class == Class::FREE => went_on(plan, rank, span.what),
        Row::Program => op_name(plan, rank, span.what),
        Row::Stream if span.class == Class::STREAM_WAITING => {
            format!("waits for {}", awaited(plan, rank, span.what))
        }
        Row::Stream if plan.is_none() => kernel_name(log, rank, span.what),
        Row::Stream => op_name(plan, rank, span.what),
        Row::Messages => format!("→ {}", span.what),
        Row::Calls(_) => match record(log, rank, span.what) {
            Some(record) => short_name(record),
            None => String::new(),
        },
    }
}

/// Everything known of a span.
pub(super) fn of_span(
    plan: Option<&Plan>,
    log: Option<&CallLog>,
    rank: u32,
    row: Row,
    span: &Span,
) -> Picked {
    let mut picked = Picked {
        title: String::new(),
        from_ps: span.from,
        to_ps: (span.to != OPEN).then_some(span.to),
        facts: vec![("rank".to_owned(), rank.to_string())],
        stack: Vec::new(),
        call: None,
        links: Vec::new(),
    };
    let on = match row {
        Row::Program if span.class == Class::FREE => "process, which is free",
        Row::Program => "process",
        Row::Stream if span.class == Class::STREAM_WAITING => "compute stream, which waits",
        Row::Stream => "compute stream",
        Row::Calls(_) => "communication stream",
        Row::Messages => "messages",
    };
    picked.facts.push(("on".to_owned(), on.to_owned()));
    match row {
        Row::Program | Row::Stream => {
            picked.title = match span.class {
                Class::FREE => went_on(plan, rank, span.what),
                Class::STREAM_WAITING => format!("waits for {}", awaited(plan, rank, span.what)),
                _ if plan.is_none() => kernel_name(log, rank, span.what),
                _ => op_name(plan, rank, span.what),
            };
            let program = plan.and_then(|plan| Some((plan, plan.program(GlobalRank(rank))?)));
            if let Some((plan, program)) = program
                && let Some(op) = program.ops.get(span.what as usize)
            {
                picked.stack = stack_parts(&plan.frames_of(op).collect::<Vec<_>>());
            }
        }
        Row::Messages => picked.title = format!("message to rank {}", span.what),
        Row::Calls(_) => match record(log, rank, span.what) {
            Some(record) => about_call(log, record, &mut picked),
            None => picked.title = format!("call {}", span.what),
        },
    }
    picked
}

fn about_call(log: Option<&CallLog>, record: &CallRecord, picked: &mut Picked) {
    picked.title = short_name(record);
    picked.call = Some(record.work);
    if let Some(log) = log {
        let (facts, stack) = about(log, record);
        picked.facts.extend(facts);
        picked.stack.extend(stack);
    }
}

/// Describes a call by itself: names and values, and its stack, innermost frame first.
pub(super) fn about(log: &CallLog, record: &CallRecord) -> (Vec<(String, String)>, Vec<StackPart>) {
    let call = &record.call;
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    if let Some(group) = log.groups.get(call.group.index()) {
        fact("group", format!("{} ({} ranks)", group.label(), group.size()));
    }
    let shapes = |shapes: &[TensorShape]| shapes.iter().map(shape).collect::<Vec<_>>().join(", ");
    if !call.inputs.is_empty() {
        fact("input", shapes(&call.inputs));
    }
    if !call.outputs.is_empty() && call.outputs != call.inputs {
        fact("output", shapes(&call.outputs));
    }
    if let Some(op) = call.reduce_op {
        fact("reduce op", op.to_string());
    }
    if let Some(root) = call.root {
        fact("root", root.to_string());
    }
    if let Some(peer) = call.peer {
        fact("peer", format!("{peer} (group rank)"));
    }
    fact("state", state_text(log, record));
    if let Some(id) = record.record_id {
        fact("entry", id.to_string());
    }
    (facts, stack_parts(&call.stack))
}

/// False of gloo's Flight Recorder, whose entries have numbers: it retires a call when that ends, however it ends, and
/// does not tell when.
pub(super) fn knows_end(log: &CallLog, record: &CallRecord) -> bool {
    let group = log.groups.get(record.call.group.index());
    let on_gloo = group.is_some_and(|group| group.backend() == BackendName::Gloo);
    !(log.recorded && on_gloo && record.record_id.is_some())
}

fn state_text(log: &CallLog, record: &CallRecord) -> String {
    match record.state {
        CallState::Completed if !knows_end(log, record) => {
            "over: completed or failed, which gloo's recorder does not tell".to_owned()
        }
        state => format!("{state:?}").to_lowercase(),
    }
}

fn record(log: Option<&CallLog>, rank: u32, work: u32) -> Option<&CallRecord> {
    let calls = &log?.ranks.get(rank as usize)?.as_ref()?.calls;
    let at = calls.binary_search_by_key(&work, |call| call.work).ok()?;
    calls.get(at)
}

/// The name of a computation that was recorded.
fn kernel_name(log: Option<&CallLog>, rank: u32, computation: u32) -> String {
    let own = log.and_then(|log| log.ranks.get(rank as usize)?.as_ref());
    let found = own.and_then(|own| own.recording.computations.get(computation as usize));
    found.map_or_else(|| format!("kernel {computation}"), |one| one.name.to_string())
}

/// `all_reduce #7`.
pub(super) fn short_name(record: &CallRecord) -> String {
    match record.seq {
        Some(seq) => format!("{} #{seq}", record.call.op),
        None => record.call.op.clone(),
    }
}

fn shape(tensor: &TensorShape) -> String {
    let sizes: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
    format!("{}[{}]", tensor.dtype, sizes.join(", "))
}

/// The words about a process's last act before it went on.
fn went_on(plan: Option<&Plan>, rank: u32, last: u32) -> String {
    let ops = plan.and_then(|plan| plan.program(GlobalRank(rank))).map(|program| &program.ops[..]);
    let ops = ops.unwrap_or_default();
    let done = ops.len() == last as usize + 1;
    let first = (last as usize + 1).saturating_sub(MAX_ENQUEUED);
    let names: Vec<&str> = ops
        .get(first..=last as usize)
        .unwrap_or_default()
        .iter()
        .map(|op| op.via.as_deref().unwrap_or(op.action.name()))
        .collect();
    let more = if first > 0 { "…, " } else { "" };
    let end = if done { "its program is over" } else { "goes on" };
    format!("enqueued {more}{}; {end}", names.join(", "))
}

/// More enqueued operations than this are not listed.
const MAX_ENQUEUED: usize = 8;

/// The name of the call that an operation waits for: the call of a wait, else its own.
fn awaited(plan: Option<&Plan>, rank: u32, op: u32) -> String {
    let ops = plan.and_then(|plan| plan.program(GlobalRank(rank))).map(|program| &program.ops);
    match ops.and_then(|ops| ops.get(op as usize)).map(|op| &op.action) {
        Some(Action::Wait { op: call, .. }) => op_name(plan, rank, *call),
        _ => op_name(plan, rank, op),
    }
}

fn op_name(plan: Option<&Plan>, rank: u32, op: u32) -> String {
    let found = plan.and_then(|plan| plan.program(GlobalRank(rank))?.ops.get(op as usize));
    match found {
        None => format!("operation {op}"),
        Some(op) => match op.via.as_deref().filter(|via| *via != op.action.name()) {
            Some(via) => format!("{}, of {via}", op.action.name()),
            None => op.action.name().to_owned(),
        },
    }
}
