//! Execution traces of a trace, as Chakra's converter writes them and ASTRA-sim reads them.
//!
//! Attributes are those of Chakra's feeder (`is_cpu_op`, `comm_type`, `comm_size`, `comm_src`, `comm_dst`, `comm_tag`,
//! `pg_name`); beside them are those of PyTorch's execution traces, and Lockstep's own for what neither has: `seq`,
//! `root`, `reduce_op`, `state`, and times in nanoseconds. A node depends on what its rank had to have done before:
//! by the plan, where the trace has one, else by the recorded times.

use super::nodes::{BETWEEN, GROUPS_NODE};
use super::schema::{
    Attribute, AttributeValue, COMM_TYPES, GlobalMetadata, IoInfo, Node, NodeType,
};
use crate::call_words::{
    bytes_of, dtype_of, is_of_unknown_group, line_of, numel_of, payload, state_name,
};
use crate::flight_recorder::public_name;
use crate::frames::stack_text;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::Action;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Computation, OnRow, RankLog, RankOps, Trace, on_one_row,
    rank_ops,
};
use prost::Message;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The version of the schema that the files name.
const VERSION: &str = "0.0.4";

/// The name of the attribute that names the writer of a file, and its value.
const SCHEMA: (&str, &str) = ("schema", "lockstep");

/// True of the first bytes of a file that [`ChakraWriter`] wrote.
pub fn is_written_by_lockstep(bytes: &[u8]) -> bool {
    let mut first = bytes;
    let Ok(length) = prost::decode_length_delimiter(&mut first) else { return false };
    let metadata = first.get(..length).map(GlobalMetadata::decode);
    let schema = Attribute::new(SCHEMA.0, text(SCHEMA.1));
    matches!(metadata, Some(Ok(metadata)) if metadata.attr.first() == Some(&schema))
}

/// Shorter times between recorded calls are the recorder's own.
const SHORTEST_PS: u64 = 1_000_000;

/// Writes a trace as execution traces, one a rank.
#[derive(Debug)]
pub struct ChakraWriter<'a> {
    trace: &'a Trace,
    log: CallLog,
    ops: BTreeMap<GlobalRank, RankOps>,
    /// True if all groups have a number for a name, as ASTRA-sim wants it; else their indices are used.
    numbered: bool,
}

/// The unfinished nodes of a rank, and those that the next one has to wait for.
struct RankNodes<'o, O> {
    out: &'o mut O,
    buffer: Vec<u8>,
    next_id: u64,
    /// The last node that held the program, and those that it has waited for since.
    after: BTreeSet<u64>,
    /// The last collective of each group: they follow each other.
    last_of: BTreeMap<GroupId, u64>,
}

impl<'a> ChakraWriter<'a> {
    /// A writer of a trace.
    pub fn new(trace: &'a Trace) -> ChakraWriter<'a> {
        let log = CallLog::of(trace);
        let numbered = log.groups.iter().all(|group| group.name().parse::<u32>().is_ok());
        ChakraWriter { trace, log, ops: rank_ops(trace), numbered }
    }

    /// The ranks in the trace, ascending: each has a file.
    pub fn ranks(&self) -> impl Iterator<Item = GlobalRank> {
        self.log.logs().map(|(rank, _)| rank)
    }

    /// The name of a rank's file; ASTRA-sim is given the part before the rank.
    pub fn file_name(rank: GlobalRank) -> String {
        format!("job.{rank}.et")
    }

    /// The groups as ASTRA-sim's `--comm-group-configuration` reads them: names and members.
    pub fn comm_groups(&self) -> String {
        let groups = self.ids().map(|(id, group)| {
            let ranks = group.ranks().iter().map(|rank| rank.0).collect::<Vec<u32>>();
            (self.group_name(id, group), json!(ranks))
        });
        format!("{:#}\n", Value::Object(groups.collect()))
    }

    fn ids(&self) -> impl Iterator<Item = (GroupId, &ProcessGroup)> {
        (0..).map(GroupId).zip(&self.log.groups)
    }

    fn group_name(&self, id: GroupId, group: &ProcessGroup) -> String {
        if self.numbered { group.name().to_owned() } else { id.0.to_string() }
    }

    /// Writes the file of a rank.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, rank: GlobalRank, out: &mut impl Write) -> io::Result<()> {
        let Some(Some(own)) = self.log.ranks.get(rank.index()) else { return Ok(()) };
        let mut nodes = RankNodes {
            out,
            buffer: Vec::new(),
            next_id: 1,
            after: BTreeSet::new(),
            last_of: BTreeMap::new(),
        };
        let attr = vec![
            Attribute::new(SCHEMA.0, text(SCHEMA.1)),
            Attribute::new("rank", number(rank.0.into())),
            Attribute::new("world_size", number(self.log.world_size.into())),
            Attribute::new("start_ns", number(self.trace.header.epoch_ns)),
        ];
        nodes.message(&GlobalMetadata { version: VERSION.to_owned(), attr })?;
        nodes.groups(self)?;
        match self.ops.get(&rank).filter(|_| self.trace.header.plan.is_some()) {
            Some(ops) => self.planned(rank, ops, &own.calls, &mut nodes),
            None => self.recorded(rank, own, &mut nodes),
        }
    }

    /// Writes the operations of the rank's program as far as it came.
    fn planned(
        &self,
        rank: GlobalRank,
        ops: &RankOps,
        calls: &[CallRecord],
        nodes: &mut RankNodes<'_, impl Write>,
    ) -> io::Result<()> {
        let plan = self.trace.header.plan.as_deref();
        let Some(program) = plan.and_then(|plan| plan.program(rank)) else { return Ok(()) };
        let mut computations = ops.computations(self.trace, rank).peekable();
        let mut calls = calls.iter().peekable();
        // The nodes of asynchronous operations that nothing has waited for.
        let mut open: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for op in ops.in_process.keys().copied() {
            let Some(operation) = program.ops.get(op as usize) else { continue };
            match &operation.action {
                Action::Compute { .. } | Action::Sleep { .. } => {
                    while let Some(computation) = computations.next_if(|it| it.op <= op) {
                        let planned_ns = operation.action.duration_ns().unwrap_or(0);
                        nodes.computation(&computation, planned_ns)?;
                    }
                }
                Action::Call { async_op, .. } | Action::Coalesced { async_op, .. } => {
                    let mut made = Vec::new();
                    while let Some(record) = calls.next_if(|it| it.plan_op <= Some(op)) {
                        made.push(nodes.call(self, rank, record)?);
                    }
                    if *async_op {
                        open.insert(op, made);
                    } else if !made.is_empty() {
                        nodes.after = made.into_iter().collect();
                    }
                }
                Action::Wait { op, .. } => nodes.after.extend(open.remove(op).unwrap_or_default()),
                Action::Synchronize => {
                    nodes.after.extend(std::mem::take(&mut open).into_values().flatten());
                }
                Action::Query { .. } | Action::Copy(_) | Action::Die { .. } | Action::Signal(_) => {
                }
            }
        }
        Ok(())
    }

    /// Writes recorded calls: a call held its rank if the rank made the next one behind its end.
    fn recorded(
        &self,
        rank: GlobalRank,
        own: &RankLog,
        nodes: &mut RankNodes<'_, impl Write>,
    ) -> io::Result<()> {
        let calls = &own.calls;
        let mut busy_ps: Option<u64> = None;
        let mut open: Vec<(u64, u64)> = Vec::new();
        // Recorded kernels stand for the time between the calls.
        let mut kernels = on_one_row(&own.recording.computations).into_iter().peekable();
        for (at, record) in calls.iter().enumerate() {
            let begins_ps = record.started_ps.unwrap_or(record.scheduled_ps);
            while let Some(stretch) = kernels.next_if(|stretch| stretch.from_ps < begins_ps) {
                nodes.kernel(own, stretch)?;
            }
            open.retain(|(ended_ps, id)| {
                let over = *ended_ps <= record.scheduled_ps;
                if over {
                    nodes.after.insert(*id);
                }
                !over
            });
            let idle_ps =
                record.scheduled_ps.saturating_sub(busy_ps.unwrap_or(record.scheduled_ps));
            if idle_ps >= SHORTEST_PS && own.recording.computations.is_empty() {
                nodes.between(record.scheduled_ps - idle_ps, idle_ps / 1000)?;
            }
            let id = nodes.call(self, rank, record)?;
            let ended_ps = record.completed_ps.filter(|_| record.state == CallState::Completed);
            let goes_on = calls
                .get(at + 1)
                .is_some_and(|next| ended_ps.is_none_or(|ended_ps| next.scheduled_ps < ended_ps));
            busy_ps = Some(match (goes_on, ended_ps) {
                (false, Some(ended_ps)) => {
                    nodes.after = BTreeSet::from([id]);
                    ended_ps
                }
                _ => {
                    open.extend(ended_ps.map(|ended_ps| (ended_ps, id)));
                    record.scheduled_ps
                }
            });
        }
        kernels.try_for_each(|stretch| nodes.kernel(own, stretch))
    }
}

impl<O: Write> RankNodes<'_, O> {
    /// Writes a message behind its length.
    fn message(&mut self, message: &impl Message) -> io::Result<()> {
        self.buffer.clear();
        message.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }

    /// Writes a node that waits for everything that the program has waited for, and for `more`; returns its
    /// id.
    fn node(&mut self, node: Node, more: Option<u64>) -> io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let mut data_deps = self.after.clone();
        data_deps.extend(more);
        self.message(&Node { id, data_deps: data_deps.into_iter().collect(), ..node })?;
        Ok(id)
    }

    /// Writes the list of groups, as PyTorch's execution traces have it.
    fn groups(&mut self, writer: &ChakraWriter<'_>) -> io::Result<()> {
        let listed = writer.ids().map(|(id, group)| {
            json!({
                "pg_name": writer.group_name(id, group), "pg_desc": group.desc(),
                "backend_config": group.backend().name(), "ranks": group.ranks(),
                "group_size": group.size(), "group_count": writer.log.groups.len(),
            })
        });
        let values = Value::Array(listed.collect()).to_string();
        let node = Node {
            name: GROUPS_NODE.to_owned(),
            r#type: NodeType::Metadata.into(),
            inputs: Some(IoInfo { values, shapes: "[[]]".into(), types: "['String']".into() }),
            // ASTRA-sim passes over operations of the processor that take no time.
            attr: vec![Attribute::new("is_cpu_op", AttributeValue::Bool(true))],
            ..Node::default()
        };
        self.node(node, None).map(drop)
    }

    fn computation(&mut self, computation: &Computation<'_>, planned_ns: u64) -> io::Result<()> {
        let span = computation.span;
        let took_ps = span.to_ps.map(|to_ps| to_ps.saturating_sub(span.from_ps));
        let duration_ns = took_ps.map_or(planned_ns, |took_ps| took_ps / 1000);
        let mut node = computation_node(computation.name, span.from_ps, duration_ns);
        node.attr.push(Attribute::new("is_cpu_op", AttributeValue::Bool(computation.idle)));
        if let Some(line) = &computation.line {
            node.attr.push(Attribute::new("line", text(line)));
        }
        let id = self.node(node, None)?;
        self.after = BTreeSet::from([id]);
        Ok(())
    }

    /// Writes a recorded computation.
    fn kernel(&mut self, own: &RankLog, stretch: OnRow) -> io::Result<()> {
        let name = own.recording.computations.get(stretch.computation).map_or("", |one| &*one.name);
        self.busy(name, stretch.from_ps, stretch.to_ps.saturating_sub(stretch.from_ps) / 1000)
    }

    /// Writes a computation for the time between two calls.
    fn between(&mut self, from_ps: u64, duration_ns: u64) -> io::Result<()> {
        self.busy(BETWEEN, from_ps, duration_ns)
    }

    fn busy(&mut self, name: &str, from_ps: u64, duration_ns: u64) -> io::Result<()> {
        let mut node = computation_node(name, from_ps, duration_ns);
        node.attr.push(Attribute::new("is_cpu_op", AttributeValue::Bool(false)));
        let id = self.node(node, None)?;
        self.after = BTreeSet::from([id]);
        Ok(())
    }

    /// Writes a call; its id.
    fn call(
        &mut self,
        writer: &ChakraWriter<'_>,
        rank: GlobalRank,
        record: &CallRecord,
    ) -> io::Result<u64> {
        let call = &record.call;
        let group = writer.log.groups.get(call.group.index());
        let op = public_name(&call.op);
        let known = op.strip_suffix("_coalesced").unwrap_or(op);
        let known = known.strip_prefix("monitored_").unwrap_or(known);
        let comm_type = COMM_TYPES.iter().position(|name| *name == known);
        let kind = match (call.p2p, call.op.contains("send"), comm_type) {
            (true, true, _) => NodeType::CommSend,
            (true, false, _) => NodeType::CommRecv,
            (false, _, Some(_)) => NodeType::CommColl,
            // A call that Chakra has no word for.
            (false, _, None) => NodeType::Metadata,
        };
        let bytes = i64::try_from(bytes_of(payload(call))).unwrap_or(i64::MAX);
        let mut attr = vec![
            Attribute::new("is_cpu_op", AttributeValue::Bool(kind == NodeType::Metadata)),
            Attribute::new("comm_size", AttributeValue::Int64(bytes)),
        ];
        let mut put = |name: &str, value: AttributeValue| attr.push(Attribute::new(name, value));
        if let Some(comm_type) = comm_type.filter(|_| kind == NodeType::CommColl) {
            put("comm_type", AttributeValue::Int64(comm_type as i64));
        }
        let peer = call.peer.and_then(|peer| group?.global_rank(peer));
        if call.p2p {
            let (from, to) = match kind {
                NodeType::CommSend => (Some(rank), peer),
                _ => (peer, Some(rank)),
            };
            for (name, rank) in [("comm_src", from), ("comm_dst", to)] {
                if let Some(rank) = rank.and_then(|rank| i32::try_from(rank.0).ok()) {
                    put(name, AttributeValue::Int32(rank));
                }
            }
            put("comm_tag", AttributeValue::Int32(i32::try_from(call.tag).unwrap_or(i32::MAX)));
        }
        if is_of_unknown_group(&writer.trace.header.origin, record) {
            put("pg_name", text(""));
        } else if let Some(group) = group {
            put("pg_name", text(&writer.group_name(call.group, group)));
            put("pg_desc", text(group.desc()));
            put("pg_size", number(group.size().into()));
        }
        put("collective_name", text(op));
        if let Some(dtype) = dtype_of(call) {
            put("dtype", text(dtype.scalar_type()));
        }
        for (name, tensors) in [("in_msg_nelems", &call.inputs), ("out_msg_nelems", &call.outputs)]
        {
            if !tensors.is_empty() {
                put(name, number(numel_of(tensors)));
            }
        }
        if let Some(seq) = record.seq {
            put("seq", number(seq));
        }
        if let Some(root) = call.root {
            put("root", number(root.0.into()));
        }
        if let Some(op) = call.reduce_op {
            put("reduce_op", text(op.name()));
        }
        if let Some(line) = line_of(writer.log.plan.as_deref(), rank, record) {
            put("line", text(&line));
        }
        if !call.stack.is_empty() {
            put("call_stack", text(&stack_text(&call.stack)));
        }
        if record.state != CallState::Completed {
            put("state", text(state_name(record.state)));
        }
        attr.extend(times_of(record));
        let from_ps = record.started_ps.unwrap_or(record.scheduled_ps);
        let took_ps = record.completed_ps.map_or(0, |to_ps| to_ps.saturating_sub(from_ps));
        let node = Node {
            name: op.to_owned(),
            r#type: kind.into(),
            start_time_micros: from_ps / 1_000_000,
            duration_micros: took_ps.div_ceil(1_000_000),
            attr,
            ..Node::default()
        };
        let before = self.last_of.get(&call.group).copied().filter(|_| !call.p2p);
        let id = self.node(node, before)?;
        if !call.p2p {
            self.last_of.insert(call.group, id);
        }
        Ok(id)
    }
}

/// The recorded times of a call.
fn times_of(record: &CallRecord) -> impl Iterator<Item = Attribute> {
    let times = [
        ("scheduled_ns", Some(record.scheduled_ps)),
        ("started_ns", record.started_ps),
        ("completed_ns", record.completed_ps),
    ];
    let known = times.into_iter().filter_map(|(name, time_ps)| Some((name, time_ps?)));
    known.map(|(name, time_ps)| Attribute::new(name, number(time_ps / 1000)))
}

fn computation_node(name: &str, from_ps: u64, duration_ns: u64) -> Node {
    Node {
        name: name.to_owned(),
        r#type: NodeType::Comp.into(),
        start_time_micros: from_ps / 1_000_000,
        duration_micros: duration_ns.div_ceil(1000),
        attr: vec![
            Attribute::new("start_ns", number(from_ps / 1000)),
            Attribute::new("duration_ns", number(duration_ns)),
        ],
        ..Node::default()
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::Text(text.to_owned())
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::Uint64(number)
}
