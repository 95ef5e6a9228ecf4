//! Profiles of a trace, as PyTorch's profiler would have written them on CUDA.
//!
//! A call is a `record_param_comms`, and a kernel of NCCL for the time in which it was carried out; a computation is
//! a kernel on the compute stream. Both are there whatever backend the trace is of, since tools look for kernels.

use crate::call_words::{dtype_of, is_of_unknown_group, line_of, numel_of, state_name};
use crate::flight_recorder::public_name;
use crate::frames::stack_text;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Computation, Origin, RankOps, Trace, rank_ops,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// CUPTI's number of the default stream, and that of the first group's.
const COMPUTE_STREAM: u32 = 7;
const FIRST_GROUP_STREAM: u32 = 20;

/// The process of rank 0; those of devices have small numbers.
const FIRST_PID: u32 = 1_000_000;

/// The most ranks of a group that are listed with each of its calls (`kTruncatLength` in Kineto).
const LISTED_RANKS: usize = 30;

/// The first bytes of a file that [`KinetoWriter`] wrote.
pub const BEGINNING: &[u8] = b"{\n  \"writtenBy\": \"lockstep ";

/// Writes a trace as profiles, one a rank.
#[derive(Debug)]
pub struct KinetoWriter<'a> {
    trace: &'a Trace,
    log: CallLog,
    ops: BTreeMap<GlobalRank, RankOps>,
}

/// An event of a profile with a time.
struct Event<'a> {
    category: &'a str,
    name: &'a str,
    /// Process and thread; of kernels device and stream.
    place: (u32, u32),
    from_ps: u64,
    to_ps: u64,
    args: Map<String, Value>,
}

impl<'a> KinetoWriter<'a> {
    /// A writer of a trace.
    pub fn new(trace: &'a Trace) -> KinetoWriter<'a> {
        KinetoWriter { trace, log: CallLog::of(trace), ops: rank_ops(trace) }
    }

    /// The ranks in the trace, ascending: each has a profile.
    pub fn ranks(&self) -> impl Iterator<Item = GlobalRank> {
        self.log.logs().map(|(rank, _)| rank)
    }

    /// The name of a rank's file, as `torch.profiler`'s are: `rank-3.pt.trace.json`.
    pub fn file_name(rank: GlobalRank) -> String {
        format!("rank-{rank}.pt.trace.json")
    }

    /// Writes the profile of a rank.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, rank: GlobalRank, out: &mut impl Write) -> io::Result<()> {
        let Some(Some(own)) = self.log.ranks.get(rank.index()) else { return Ok(()) };
        let process = (FIRST_PID.saturating_add(rank.0), FIRST_PID.saturating_add(rank.0));
        let mut events = EventList { out, first: true };
        self.head(rank, events.out)?;
        events.name("process_name", process, &format!("rank {rank}"))?;
        let device = self.device(rank);
        events.name("process_name", (device, 0), &format!("device of rank {rank}"))?;
        events.name("thread_name", (device, COMPUTE_STREAM), "compute stream")?;
        for (id, group) in (0..).map(GroupId).zip(&self.log.groups) {
            if group.group_rank(rank).is_some() {
                let name = format!("communication {}", group.label());
                events.name("thread_name", (device, stream_of(id)), &name)?;
            }
        }
        if let Some(ops) = self.ops.get(&rank) {
            self.program(rank, ops, process, &mut events)?;
            let ended = ops.computations(self.trace, rank).filter(|it| !it.idle);
            for Computation { name, line, span, .. } in ended {
                if let Some(to_ps) = span.to_ps {
                    kernel((name, line), device, (span.from_ps, to_ps), &mut events)?;
                }
            }
        }
        for one in &own.recording.computations {
            kernel((&one.name, None), device, (one.from_ps, one.to_ps), &mut events)?;
        }
        for (record, id) in own.calls.iter().zip(1u64..) {
            self.call(rank, record, id, process, &mut events)?;
        }
        out.write_all(b"\n  ]\n}\n")
    }

    fn head(&self, rank: GlobalRank, out: &mut impl Write) -> io::Result<()> {
        let header = &self.trace.header;
        let own = self.log.groups.iter().filter(|group| group.group_rank(rank).is_some());
        let config: Vec<Value> = own
            .map(|group| {
                let backend = group.backend().name();
                json!({
                    "pg_name": group.name(), "pg_desc": group.desc(), "backend_config": backend,
                    "pg_size": group.size(), "ranks": group.ranks(),
                })
            })
            .collect();
        let backend = header.groups.first().map_or("unknown", |group| group.backend().name());
        let origin = match &header.origin {
            Origin::Simulated { .. } | Origin::SimulatedOnCluster { .. } => "simulated".to_owned(),
            Origin::Run { backend, device } => format!("run by {backend} on {device}"),
            Origin::Recorded { by, .. } => format!("recorded by {by}"),
        };
        // HolisticTraceAnalysis looks for `"rank": 3`, with the space, in the first line that has it.
        let written = format!("lockstep {}, {origin}", env!("CARGO_PKG_VERSION"));
        writeln!(out, "{{\n  \"writtenBy\": {},", json!(written))?;
        writeln!(out, "  \"schemaVersion\": 1,\n  \"deviceProperties\": [],")?;
        writeln!(
            out,
            "  \"distributedInfo\": {{\"backend\": {}, \"rank\": {rank}, \"world_size\": {}, \
             \"pg_count\": {}, \"pg_config\": {}}},",
            json!(backend),
            header.world_size,
            config.len(),
            json!(config)
        )?;
        writeln!(out, "  \"displayTimeUnit\": \"ms\",")?;
        writeln!(out, "  \"baseTimeNanoseconds\": {},", header.epoch_ns)?;
        write!(out, "  \"traceEvents\": [")
    }

    /// The rank's place on its node.
    fn device(&self, rank: GlobalRank) -> u32 {
        let plan = self.trace.header.plan.as_deref();
        let ranks_per_node = plan.map_or(0, |plan| plan.ranks_per_node);
        rank.0.checked_rem(ranks_per_node).unwrap_or(0)
    }

    /// Writes the process's own activity.
    fn program(
        &self,
        rank: GlobalRank,
        ops: &RankOps,
        process: (u32, u32),
        events: &mut EventList<'_, impl Write>,
    ) -> io::Result<()> {
        let Some(plan) = &self.trace.header.plan else { return Ok(()) };
        let Some(program) = plan.program(rank) else { return Ok(()) };
        for (op, span) in &ops.in_process {
            let Some((operation, to_ps)) = program.ops.get(*op as usize).zip(span.to_ps) else {
                continue;
            };
            let mut args = Map::new();
            args.insert("Operation".to_owned(), json!(op));
            if let Some(at) = operation.at {
                args.insert("Line".to_owned(), plan.describe_line(at).into());
            }
            let name = operation.action.name();
            let place = process;
            let from_ps = span.from_ps;
            events.event(Event { category: "cpu_op", name, place, from_ps, to_ps, args })?;
        }
        Ok(())
    }

    fn call(
        &self,
        rank: GlobalRank,
        record: &CallRecord,
        id: u64,
        process: (u32, u32),
        events: &mut EventList<'_, impl Write>,
    ) -> io::Result<()> {
        let mut args = self.args_of_call(rank, record);
        args.insert("External id".to_owned(), id.into());
        let mut made = args.clone();
        if let Some(line) = line_of(self.log.plan.as_deref(), rank, record) {
            made.insert("Line".to_owned(), line.into());
        }
        if !record.call.stack.is_empty() {
            made.insert("Call stack".to_owned(), stack_text(&record.call.stack).into());
        }
        if record.state != CallState::Completed {
            made.insert("State".to_owned(), state_name(record.state).into());
        }
        let made_ps = record.scheduled_ps;
        events.event(Event {
            category: "cpu_op",
            name: "record_param_comms",
            place: process,
            from_ps: made_ps,
            to_ps: made_ps,
            args: made,
        })?;
        let Some(to_ps) = record.completed_ps.filter(|_| record.state == CallState::Completed)
        else {
            return Ok(());
        };
        let (device, stream) = (self.device(rank), stream_of(record.call.group));
        args.extend(on_device(device, stream));
        // If only its call was recorded, it began then at the earliest.
        let from_ps = record.started_ps.unwrap_or(made_ps);
        let name = kernel_name(record);
        let place = (device, stream);
        events.event(Event { category: "kernel", name: &name, place, from_ps, to_ps, args })
    }

    /// The arguments of a call as `saveNcclMeta` writes them (`torch/csrc/profiler/util.cpp`).
    fn args_of_call(&self, rank: GlobalRank, record: &CallRecord) -> Map<String, Value> {
        let call = &record.call;
        let mut args = Map::new();
        let mut put = |name: &str, value: Value| drop(args.insert(name.to_owned(), value));
        put("Collective name", collective_name(&call.op).into());
        put("dtype", dtype_of(call).unwrap_or(Dtype::Unknown).scalar_type().into());
        for (name, tensors) in [("In msg nelems", &call.inputs), ("Out msg nelems", &call.outputs)]
        {
            if !tensors.is_empty() {
                put(name, numel_of(tensors).into());
            }
        }
        let known = !is_of_unknown_group(&self.trace.header.origin, record);
        if let Some(group) = self.log.groups.get(call.group.index()).filter(|_| known) {
            put("Group size", group.size().into());
            put("Process Group Name", group.name().into());
            put("Process Group Description", group.desc().into());
            put("Process Group Ranks", listed_ranks(group).into());
            if let Some((first, stride)) = group.global_rank(GroupRank(0)).zip(stride(group)) {
                put("Global rank start", first.0.into());
                put("Global rank stride", stride.into());
            }
            let side = match call.op.contains("send") {
                true => [group.group_rank(rank), call.peer],
                false => [call.peer, group.group_rank(rank)],
            };
            let global = side.map(|place| place.and_then(|place| group.global_rank(place)));
            if call.p2p
                && let [Some(from), Some(to)] = global
            {
                put("Src Rank", from.0.into());
                put("Dst Rank", to.0.into());
            }
        }
        if let Some(seq) = record.seq {
            put("Seq", seq.into());
        }
        if let Some(place) = call.root.or(call.peer) {
            put("Rank", place.0.into());
        }
        args
    }
}

/// Writes a computation of a device, with its source line if that is known.
fn kernel(
    (name, line): (&str, Option<String>),
    device: u32,
    (from_ps, to_ps): (u64, u64),
    events: &mut EventList<'_, impl Write>,
) -> io::Result<()> {
    let mut args = on_device(device, COMPUTE_STREAM);
    if let Some(line) = line {
        args.insert("Line".to_owned(), line.into());
    }
    // Readers take every name with this beginning for a kernel of NCCL's.
    let name = match name.starts_with("nccl") {
        true => format!("compute {name}"),
        false => name.to_owned(),
    };
    let place = (device, COMPUTE_STREAM);
    events.event(Event { category: "kernel", name: &name, place, from_ps, to_ps, args })
}

fn on_device(device: u32, stream: u32) -> Map<String, Value> {
    Map::from_iter([("device".to_owned(), device.into()), ("stream".to_owned(), stream.into())])
}

fn stream_of(group: GroupId) -> u32 {
    group.0.saturating_add(FIRST_GROUP_STREAM)
}

/// The distance between neighbours of a group whose ranks are evenly spaced; 1 of a single rank.
fn stride(group: &ProcessGroup) -> Option<u32> {
    let mut distances = group.ranks().windows(2).map(|pair| match pair {
        [a, b] => b.0.checked_sub(a.0),
        _ => None,
    });
    let Some(first) = distances.next() else { return Some(1) };
    let first = first?;
    distances.all(|distance| distance == Some(first)).then_some(first)
}

/// `[0, 1, 2]`, or the first ones and the last.
fn listed_ranks(group: &ProcessGroup) -> String {
    let ranks = group.ranks();
    let texts = |ranks: &[GlobalRank]| ranks.iter().map(ToString::to_string).collect::<Vec<_>>();
    match (ranks.get(..LISTED_RANKS), ranks.last()) {
        (Some(first), Some(last)) if ranks.len() > LISTED_RANKS => {
            format!("[{}, ..., {last}]", texts(first).join(", "))
        }
        _ => format!("[{}]", texts(ranks).join(", ")),
    }
}

/// The name under which PyTorch's NCCL backend records a call.
fn collective_name(op: &str) -> &str {
    match public_name(op) {
        "all_reduce" => "allreduce",
        "all_gather" => "_allgather_base",
        "reduce_scatter" => "_reduce_scatter_base",
        "monitored_barrier" => "barrier",
        other => other,
    }
}

/// The name of NCCL's kernel for a call, as far as it is known which one that is.
fn kernel_name(record: &CallRecord) -> String {
    let call = &record.call;
    let function = match public_name(&call.op) {
        "all_reduce" | "barrier" | "monitored_barrier" => "AllReduce",
        "broadcast" => "Broadcast",
        "reduce" => "Reduce",
        "all_gather" => "AllGather",
        "reduce_scatter" => "ReduceScatter",
        _ => "SendRecv",
    };
    let reduced = call.reduce_op.map(|op| match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => "Sum",
        ReduceOp::Product => "Prod",
        ReduceOp::Min => "Min",
        ReduceOp::Max => "Max",
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => "Bits",
    });
    match (reduced, dtype_of(call)) {
        (Some(reduced), Some(dtype)) => {
            format!("ncclDevKernel_{function}_{reduced}_{}", dtype.name())
        }
        _ => format!("ncclDevKernel_{function}"),
    }
}

/// A list of events, an event a line.
struct EventList<'o, O> {
    out: &'o mut O,
    first: bool,
}

impl<O: Write> EventList<'_, O> {
    fn line(&mut self, event: &str) -> io::Result<()> {
        let before: &[u8] = if self.first { b"\n    " } else { b",\n    " };
        self.first = false;
        self.out.write_all(before)?;
        self.out.write_all(event.as_bytes())
    }

    fn name(&mut self, what: &str, (pid, tid): (u32, u32), name: &str) -> io::Result<()> {
        let args = json!({ "name": name });
        self.line(&format!(
            "{{\"ph\": \"M\", \"name\": \"{what}\", \"pid\": {pid}, \"tid\": {tid}, \"ts\": 0.000, \
             \"args\": {args}}}"
        ))
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let (from_ns, to_ns) = (event.from_ps / 1000, event.to_ps / 1000);
        let (pid, tid) = event.place;
        self.line(&format!(
            "{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": {}, \"pid\": {pid}, \"tid\": {tid}, \
             \"ts\": {}, \"dur\": {}, \"args\": {}}}",
            event.category,
            json!(event.name),
            Microseconds(from_ns),
            Microseconds(to_ns.saturating_sub(from_ns)),
            Value::Object(event.args)
        ))
    }
}

/// Nanoseconds as PyTorch writes them: microseconds with three digits.
struct Microseconds(u64);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
