//! From the events of a trace, in the order of time, to packets.

use super::schema::{
    CLOCK_BOOTTIME, CLOCK_REALTIME, Clock, ClockSnapshot, TYPE_COUNTER, TYPE_INSTANT,
    TYPE_SLICE_BEGIN, TYPE_SLICE_END, TracePacket,
};
use super::sequence::{Event, Sequence, Value};
use super::tracks::{self, RankTracks};
use crate::call_words::{bytes_of, dtype_of, line_of, numel_of, op_line, payload, state_name};
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::Action;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Event as TraceEvent, Origin, Outcome, RankLog, Trace, What,
    on_one_row,
};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The category of calls that do not end in the trace.
const UNFINISHED: &str = "unfinished";

/// Writes a trace for Perfetto.
///
/// # Errors
/// Those of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let log = CallLog::of(trace);
    let mut writer = Writer::new(trace, &log);
    writer.begin(out)?;
    let kernels: Vec<KernelEdge<'_>> =
        log.logs().flat_map(|(rank, own)| edges(rank, own)).collect();
    let edges = kernels.iter().map(|edge| (edge.time_ps, Next::Kernel(edge)));
    let events = trace.events.iter().map(|event| (event.time_ps, Next::Event(event)));
    let mut order: Vec<(u64, Next<'_>)> = edges.chain(events).collect();
    // Stable: what happened at one moment stays in the order of the trace.
    order.sort_by_key(|(time_ps, _)| *time_ps);
    for (_, next) in order {
        match next {
            Next::Event(event) => writer.take(event.time_ps, event.rank, &event.what, out)?,
            Next::Kernel(edge) => writer.kernel(edge, out)?,
        }
    }
    writer.end(out)
}

/// The next thing in the order of time.
enum Next<'a> {
    Event(&'a TraceEvent),
    Kernel(&'a KernelEdge<'a>),
}

/// The beginning or end of a stretch of a recorded computation.
struct KernelEdge<'a> {
    time_ps: u64,
    rank: GlobalRank,
    /// The computation that begins; `None` where it ends.
    begins: Option<&'a str>,
}

/// The edges of a rank's computations, as stretches that follow each other: slices of a track lie in each other, and
/// do not overlap.
fn edges(rank: GlobalRank, own: &RankLog) -> Vec<KernelEdge<'_>> {
    let mut edges = Vec::with_capacity(2 * own.recording.computations.len());
    for stretch in on_one_row(&own.recording.computations) {
        let Some(one) = own.recording.computations.get(stretch.computation) else { continue };
        edges.push(KernelEdge { time_ps: stretch.from_ps, rank, begins: Some(&one.name) });
        edges.push(KernelEdge { time_ps: stretch.to_ps, rank, begins: None });
    }
    edges
}

struct Writer<'a> {
    trace: &'a Trace,
    log: &'a CallLog,
    job: Sequence,
    ranks: BTreeMap<GlobalRank, RankWriter>,
    /// By rank, how many operations its program, and its compute stream, has gone on from.
    ended_ops: Vec<u32>,
    ended_on_stream: BTreeMap<GlobalRank, u32>,
    /// True if bytes in flight are those of messages; else they are those of calls.
    has_messages: bool,
    in_flight: u64,
    /// The numbers of sends and receives between two ranks so far.
    p2p: BTreeMap<Lane, [u64; 2]>,
}

/// Messages that are received in the order in which they are sent: group, sender, receiver, tag.
type Lane = (GroupId, GlobalRank, GlobalRank, u32);

struct RankWriter {
    sequence: Sequence,
    tracks: RankTracks,
    lanes: Vec<CallLane>,
    /// The lanes of calls that have begun and not ended.
    open: BTreeMap<u32, usize>,
    has_compute: bool,
    in_flight: u64,
}

/// A track of calls of one group, which does one after the other.
struct CallLane {
    group: GroupId,
    busy: bool,
}

impl<'a> Writer<'a> {
    fn new(trace: &'a Trace, log: &'a CallLog) -> Writer<'a> {
        let mut ended_on_stream: BTreeMap<GlobalRank, u32> = BTreeMap::new();
        let mut has_messages = false;
        for event in &trace.events {
            match event.what {
                What::StreamEnded { op } => {
                    let ended = ended_on_stream.entry(event.rank).or_default();
                    *ended = op.saturating_add(1).max(*ended);
                }
                What::Sent { .. } => has_messages = true,
                _ => {}
            }
        }
        Writer {
            trace,
            log,
            job: Sequence::new(1),
            ranks: BTreeMap::new(),
            ended_ops: log.ended_ops(),
            ended_on_stream,
            has_messages,
            in_flight: 0,
            p2p: BTreeMap::new(),
        }
    }

    /// Writes the packets before the first event: the job's tracks and its clock, and the ranks' processes.
    fn begin(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.job.describe(tracks::job(), out)?;
        self.job.describe(tracks::job_counter(), out)?;
        let epoch_ns = self.trace.header.epoch_ns;
        if epoch_ns > 0 {
            let clock = |id, ns| Clock { clock_id: Some(id), timestamp: Some(ns) };
            let clocks = vec![clock(CLOCK_BOOTTIME, 0), clock(CLOCK_REALTIME, epoch_ns)];
            let snapshot = TracePacket {
                timestamp: Some(0),
                clock_snapshot: Some(ClockSnapshot { clocks }),
                ..TracePacket::default()
            };
            self.job.write(snapshot, out)?;
        }
        let origin = match &self.trace.header.origin {
            Origin::Simulated { version, topology, seed }
            | Origin::SimulatedOnCluster { version, topology, seed, .. } => {
                format!("simulated by lockstep {version}: {topology}, seed {seed}")
            }
            Origin::Run { backend, device } => format!("run by {backend} on {device}"),
            Origin::Recorded { by, .. } => format!("recorded by {by}"),
        };
        let began = Event {
            kind: TYPE_INSTANT,
            track: tracks::JOB,
            name: "began",
            arguments: vec![("origin", origin.into())],
            ..Event::default()
        };
        self.job.event(0, began, out)?;
        let ranks: Vec<GlobalRank> = self.log.logs().map(|(rank, _)| rank).collect();
        for rank in ranks {
            let mut sequence = Sequence::new(rank.0.saturating_add(2));
            let tracks = RankTracks::of(rank);
            for track in [tracks.process(), tracks.thread(), tracks.counter()] {
                sequence.describe(track, out)?;
            }
            let (lanes, open) = Default::default();
            let writer =
                RankWriter { sequence, tracks, lanes, open, has_compute: false, in_flight: 0 };
            self.ranks.insert(rank, writer);
        }
        Ok(())
    }

    fn take(
        &mut self,
        time_ps: u64,
        rank: GlobalRank,
        what: &What,
        out: &mut impl Write,
    ) -> io::Result<()> {
        match what {
            What::OpBegan { op } => self.op_began(time_ps, rank, *op, false, out),
            What::StreamBegan { op } => self.op_began(time_ps, rank, *op, true, out),
            What::OpEnded { .. } => self.op_ended(time_ps, rank, false, out),
            What::StreamEnded { .. } => self.op_ended(time_ps, rank, true, out),
            What::Scheduled { work, .. } | What::Started { work } => {
                let Some(record) = self.record(rank, *work) else { return Ok(()) };
                // A call of which only its making was recorded begins there.
                let begins = matches!(what, What::Started { .. }) == record.started_ps.is_some();
                if begins { self.call_began(time_ps, rank, record, out) } else { Ok(()) }
            }
            What::Completed { work } => {
                let Some(record) = self.record(rank, *work) else { return Ok(()) };
                self.call_ended(time_ps, rank, record, out)
            }
            What::TimedOut { work } => {
                let Some(record) = self.record(rank, *work) else { return Ok(()) };
                let how = format!("{} timed out", record.call.op);
                self.mark(time_ps, rank, Some(*work), &how, out)
            }
            What::Sent { bytes, .. } => self.flies(time_ps, rank, *bytes, true, out),
            What::Received { peer, bytes, .. } => self.flies(time_ps, *peer, *bytes, false, out),
            What::Died { how } => self.mark(time_ps, rank, None, &format!("died: {how}"), out),
            What::Unresponsive { how } => self.mark(time_ps, rank, None, how, out),
            What::Finished => self.mark(time_ps, rank, None, "finished", out),
            // Kernels of one row are written stretch by stretch.
            What::Result { .. } | What::Answered { .. } | What::Kernel { .. } => Ok(()),
        }
    }

    fn record(&self, rank: GlobalRank, work: u32) -> Option<&'a CallRecord> {
        let log: &'a RankLog = self.log.ranks.get(rank.index())?.as_ref()?;
        let at = log.calls.binary_search_by_key(&work, |record| record.work).ok()?;
        log.calls.get(at)
    }

    fn op_began(
        &mut self,
        time_ps: u64,
        rank: GlobalRank,
        op: u32,
        on_stream: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Some(plan) = &self.trace.header.plan else { return Ok(()) };
        let operation = plan.program(rank).and_then(|program| program.ops.get(op as usize));
        let Some((operation, writer)) = operation.zip(self.ranks.get_mut(&rank)) else {
            return Ok(());
        };
        let ended = match on_stream {
            true => self.ended_on_stream.get(&rank).copied().unwrap_or(0),
            false => self.ended_ops.get(rank.index()).copied().unwrap_or(0),
        };
        let category = match &operation.action {
            Action::Compute { .. } => "compute",
            Action::Sleep { .. } => "idle",
            _ => "program",
        };
        let (name, categories) = named(operation.action.name(), category, op < ended);
        let mut arguments = vec![("operation", Value::from(op))];
        arguments.extend(op_line(plan, rank, op).map(|line| ("line", line.into())));
        arguments.extend(operation.via.as_deref().map(|via| ("part of", via.into())));
        if on_stream {
            writer.describe_compute(out)?;
        }
        let began = Event {
            kind: TYPE_SLICE_BEGIN,
            track: writer.ops_track(on_stream),
            name: &name,
            categories: &categories,
            arguments,
            ..Event::default()
        };
        writer.sequence.event(time_ps, began, out)
    }

    /// Writes the beginning or end of a stretch of a recorded computation.
    fn kernel(&mut self, edge: &KernelEdge<'_>, out: &mut impl Write) -> io::Result<()> {
        let Some(writer) = self.ranks.get_mut(&edge.rank) else { return Ok(()) };
        writer.describe_compute(out)?;
        let (kind, name, categories): (i32, &str, &[&str]) = match edge.begins {
            Some(name) => (TYPE_SLICE_BEGIN, name, &["compute"]),
            None => (TYPE_SLICE_END, "", &[]),
        };
        let track = writer.tracks.compute();
        let event = Event { kind, track, name, categories, ..Event::default() };
        writer.sequence.event(edge.time_ps, event, out)
    }

    fn op_ended(
        &mut self,
        time_ps: u64,
        rank: GlobalRank,
        on_stream: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if self.trace.header.plan.is_none() {
            return Ok(());
        }
        let Some(writer) = self.ranks.get_mut(&rank) else { return Ok(()) };
        let track = writer.ops_track(on_stream);
        let ended = Event { kind: TYPE_SLICE_END, track, ..Event::default() };
        writer.sequence.event(time_ps, ended, out)
    }

    fn call_began(
        &mut self,
        time_ps: u64,
        rank: GlobalRank,
        record: &CallRecord,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let (log, call) = (self.log, &record.call);
        let group = log.groups.get(call.group.index());
        let flow = match call.p2p {
            false => record.seq.map(|seq| row_flow(call.group, seq)),
            true if call.op.contains("send") => self.message_flow(rank, record),
            // A flow leads to the end of the receive: it may have been made long before the send.
            true => None,
        };
        let Some(writer) = self.ranks.get_mut(&rank) else { return Ok(()) };
        let label = group.map_or("unknown group", ProcessGroup::label);
        let lane = writer.lane(call.group, label, out)?;
        writer.open.insert(record.work, lane);
        let category = if call.p2p { "p2p" } else { "collective" };
        let ended = record.state == CallState::Completed;
        let (name, categories) = named(&call.op, category, ended);
        let began = Event {
            kind: TYPE_SLICE_BEGIN,
            track: writer.tracks.calls(lane as u32),
            name: &name,
            categories: &categories,
            arguments: arguments_of(log, rank, record),
            flow,
            ..Event::default()
        };
        writer.sequence.event(time_ps, began, out)?;
        match self.has_messages {
            true => Ok(()),
            false => self.flies(time_ps, rank, bytes_of(payload(call)), true, out),
        }
    }

    fn call_ended(
        &mut self,
        time_ps: u64,
        rank: GlobalRank,
        record: &CallRecord,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let call = &record.call;
        let receives = call.p2p && !call.op.contains("send");
        let flow = if receives { self.message_flow(rank, record) } else { None };
        let Some(writer) = self.ranks.get_mut(&rank) else { return Ok(()) };
        let Some(at) = writer.open.remove(&record.work) else { return Ok(()) };
        if let Some(lane) = writer.lanes.get_mut(at) {
            lane.busy = false;
        }
        let track = writer.tracks.calls(at as u32);
        if flow.is_some() {
            let (kind, name) = (TYPE_INSTANT, "received");
            let received = Event { kind, track, name, ends_flow: flow, ..Event::default() };
            writer.sequence.event(time_ps, received, out)?;
        }
        let ended = Event { kind: TYPE_SLICE_END, track, ..Event::default() };
        writer.sequence.event(time_ps, ended, out)?;
        match self.has_messages {
            true => Ok(()),
            false => self.flies(time_ps, rank, bytes_of(payload(call)), false, out),
        }
    }

    /// The flow of a send or receive: both sides count the messages between them.
    fn message_flow(&mut self, rank: GlobalRank, record: &CallRecord) -> Option<u64> {
        let call = &record.call;
        let peer = self.log.groups.get(call.group.index())?.global_rank(call.peer?)?;
        let sends = call.op.contains("send");
        let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
        let counts = self.p2p.entry((call.group, from, to, call.tag)).or_default();
        let count = counts.get_mut(usize::from(!sends))?;
        *count += 1;
        let lane = [2, call.group.0.into(), from.0.into(), to.0.into(), call.tag.into(), *count];
        Some(flow_id(&lane))
    }

    /// Counts bytes that leave a rank, or have arrived.
    fn flies(
        &mut self,
        time_ps: u64,
        rank: GlobalRank,
        bytes: u64,
        leaves: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let counted = |before: u64| match leaves {
            true => before.saturating_add(bytes),
            false => before.saturating_sub(bytes),
        };
        let event = |track, bytes: u64| Event {
            kind: TYPE_COUNTER,
            track,
            counter: Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
            ..Event::default()
        };
        let Some(writer) = self.ranks.get_mut(&rank) else { return Ok(()) };
        writer.in_flight = counted(writer.in_flight);
        let own = event(writer.tracks.in_flight(), writer.in_flight);
        writer.sequence.event(time_ps, own, out)?;
        self.in_flight = counted(self.in_flight);
        self.job.event(time_ps, event(tracks::JOB_IN_FLIGHT, self.in_flight), out)
    }

    /// Writes that something happened to a call, or to the rank.
    fn mark(
        &mut self,
        time_ps: u64,
        rank: GlobalRank,
        work: Option<u32>,
        name: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Some(writer) = self.ranks.get_mut(&rank) else { return Ok(()) };
        let lane = work.and_then(|work| writer.open.get(&work));
        let track = lane.map_or(writer.tracks.program(), |lane| writer.tracks.calls(*lane as u32));
        let mark = Event { kind: TYPE_INSTANT, track, name, ..Event::default() };
        writer.sequence.event(time_ps, mark, out)
    }

    /// Writes how the job ended.
    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        let Some(end) = &self.trace.end else { return Ok(()) };
        let name = match &end.outcome {
            Outcome::Completed => "completed".to_owned(),
            Outcome::TimedOut => "timed out".to_owned(),
            Outcome::RankDied { rank, how } => format!("rank {rank} died: {how}"),
            Outcome::Cancelled => "cancelled".to_owned(),
            Outcome::Failed { why } => format!("failed: {why}"),
            Outcome::Unknown => "the recording ends".to_owned(),
            Outcome::RankStopped { rank, how } => format!("rank {rank} stopped: {how}"),
        };
        let ended =
            Event { kind: TYPE_INSTANT, track: tracks::JOB, name: &name, ..Event::default() };
        self.job.event(end.time_ps, ended, out)
    }
}

impl RankWriter {
    /// Describes the track of the compute stream, once.
    fn describe_compute(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.has_compute {
            return Ok(());
        }
        self.has_compute = true;
        let name = "compute stream".to_owned();
        let track = self.tracks.child(self.tracks.compute(), name, 0);
        self.sequence.describe(track, out)
    }

    fn ops_track(&self, on_stream: bool) -> u64 {
        if on_stream { self.tracks.compute() } else { self.tracks.program() }
    }

    /// Takes a free track of a group's calls. Calls of a stream follow one another; those of which only the making
    /// was recorded may overlap, and so need several.
    fn lane(&mut self, group: GroupId, label: &str, out: &mut impl Write) -> io::Result<usize> {
        let free = |lane: &CallLane| lane.group == group && !lane.busy;
        if let Some(at) = self.lanes.iter().position(free) {
            if let Some(lane) = self.lanes.get_mut(at) {
                lane.busy = true;
            }
            return Ok(at);
        }
        let at = self.lanes.len();
        self.lanes.push(CallLane { group, busy: true });
        let order = i32::try_from(group.0).unwrap_or(i32::MAX - 2).saturating_add(1);
        let name = format!("communication {label}");
        let track = self.tracks.child(self.tracks.calls(at as u32), name, order);
        self.sequence.describe(track, out)?;
        Ok(at)
    }
}

/// The name and categories of a slice, which say so if it does not end.
fn named<'c>(name: &str, category: &'c str, ended: bool) -> (String, Vec<&'c str>) {
    match ended {
        true => (name.to_owned(), vec![category]),
        false => (format!("{name} (unfinished)"), vec![category, UNFINISHED]),
    }
}

/// The flow of a collective's members.
fn row_flow(group: GroupId, seq: u64) -> u64 {
    flow_id(&[1, group.0.into(), seq])
}

fn flow_id(of: &[u64]) -> u64 {
    let bytes: Vec<u8> = of.iter().flat_map(|number| number.to_le_bytes()).collect();
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// The arguments of a call's slice.
fn arguments_of(
    log: &CallLog,
    rank: GlobalRank,
    record: &CallRecord,
) -> Vec<(&'static str, Value)> {
    let call = &record.call;
    let group = log.groups.get(call.group.index());
    let member = |place| match group.and_then(|group| group.global_rank(place)) {
        Some(rank) => Value::from(format!("rank {rank}")),
        None => Value::from(format!("group rank {place}")),
    };
    let mut arguments: Vec<(&'static str, Value)> = Vec::with_capacity(14);
    if let Some(group) = group {
        arguments.push(("group", group.label().into()));
        arguments.push(("group size", group.size().into()));
    }
    arguments.extend(record.seq.map(|seq| ("seq", seq.into())));
    arguments.push(("bytes", bytes_of(payload(call)).into()));
    arguments.extend(dtype_of(call).map(|dtype| ("dtype", dtype.name().into())));
    for (name, tensors) in [("input elements", &call.inputs), ("output elements", &call.outputs)] {
        if !tensors.is_empty() {
            arguments.push((name, numel_of(tensors).into()));
        }
    }
    arguments.extend(call.reduce_op.map(|op| ("reduce op", op.name().into())));
    arguments.extend(call.root.map(|root| ("root", member(root))));
    if call.p2p {
        let side = if call.op.contains("send") { "to" } else { "from" };
        arguments.extend(call.peer.map(|peer| (side, member(peer))));
        arguments.push(("tag", call.tag.into()));
    }
    let line = line_of(log.plan.as_deref(), rank, record);
    arguments.extend(line.map(|line| ("line", line.into())));
    arguments.push(("state", state_name(record.state).into()));
    if record.state != CallState::Completed {
        arguments.push((UNFINISHED, Value::Flag(true)));
    }
    if let Some(started_ps) = record.started_ps {
        let queued_ps = started_ps.saturating_sub(record.scheduled_ps);
        arguments.push(("queued ns", (queued_ps / 1000).into()));
    }
    arguments
}
