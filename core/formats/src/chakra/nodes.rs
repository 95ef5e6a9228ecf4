//! A file of nodes, read message by message.

use super::error::ChakraError;
use super::graph::{Graph, GraphNode, Resource};
use super::schema::{COMM_TYPES, GlobalMetadata, Node, NodeType};
use super::{MAX_DEPENDENCIES, MAX_ET_BYTES, MAX_NODE_BYTES, MAX_NODES};
use crate::flight_recorder::public_name;
use crate::frames::StackTexts;
use crate::kineto::dtype_of_cpp;
use crate::rank_calls::{Call, Computed, Flaws, Group, MAX_COMPUTED, ends_before_it_begins};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallState, TensorShape};
use prost::Message;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The default group's name, which calls without a group are of.
const WORLD: &str = "0";

/// The name of the computation between two recorded calls.
pub(super) const BETWEEN: &str = "what was done between the calls";

/// Names the node that lists the groups.
pub(super) const GROUPS_NODE: &str = "## process_group:init ##";

/// The calls and groups of one file.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) calls: Vec<Call>,
    pub(super) groups: Vec<Group>,
    /// True if the calls have recorded times.
    pub(super) has_times: bool,
    /// The computations of the device whose times were recorded, by when they began.
    pub(super) computed: Vec<Computed>,
    /// The backend of the groups, if the file says it.
    pub(super) backend: BackendName,
    pub(super) flaws: Flaws,
}

/// A call and the global ranks of its sides: places in groups are known when all groups are.
struct ReadCall {
    /// Its node's index.
    at: usize,
    call: Call,
    peer: Option<GlobalRank>,
    times_ns: Option<RecordedTimes>,
}

/// The times at which a call was made, began and ended, as far as they were recorded.
type RecordedTimes = [Option<u64>; 3];

/// The messages of a file: where each begins, and its bytes.
struct Messages<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
    count: usize,
}

impl<'a> Messages<'a> {
    /// The next message; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<(usize, &'a [u8])>, ChakraError> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let (begin, message) = (self.at, self.count);
        let cut_off = || ChakraError::CutOff { file: self.file.to_owned(), message, at: begin };
        let (mut length, mut shift) = (0u64, 0);
        loop {
            let byte = *self.bytes.get(self.at).ok_or_else(cut_off)?;
            self.at += 1;
            length |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 28 {
                length = u64::MAX;
                break;
            }
        }
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size > MAX_NODE_BYTES {
            let file = self.file.to_owned();
            return Err(ChakraError::NodeTooLarge { file, message, at: begin, bytes: length });
        }
        let content = self.bytes.get(self.at..self.at + size).ok_or_else(cut_off)?;
        self.at += size;
        self.count += 1;
        Ok(Some((begin, content)))
    }

    fn decode<M: Message + Default>(&mut self) -> Result<Option<M>, ChakraError> {
        let message = self.count;
        let Some((at, bytes)) = self.next()? else { return Ok(None) };
        M::decode(bytes).map(Some).map_err(|error| ChakraError::NotANode {
            file: self.file.to_owned(),
            message,
            at,
            why: error.to_string(),
        })
    }
}

/// True if the bytes begin with Chakra's metadata and a node of a known type.
pub(super) fn begins_with_nodes(bytes: &[u8]) -> bool {
    let mut messages = Messages { file: "", bytes, at: 0, count: 0 };
    let metadata: Result<Option<GlobalMetadata>, _> = messages.decode();
    let Ok(Some(metadata)) = metadata else { return false };
    if metadata == GlobalMetadata::default() {
        return false;
    }
    let node: Result<Option<Node>, _> = messages.decode();
    match node {
        Ok(Some(node)) => {
            !node.name.is_empty()
                && NodeType::try_from(node.r#type).is_ok_and(|it| it != NodeType::Invalid)
        }
        _ => false,
    }
}

/// Reads a file of nodes.
///
/// # Errors
/// When it is cut off, damaged or too large, or its nodes cannot run.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Contents, ChakraError> {
    if bytes.len() > MAX_ET_BYTES {
        return Err(ChakraError::TooLarge { file: file.to_owned(), bytes: bytes.len() });
    }
    let mut messages = Messages { file, bytes, at: 0, count: 0 };
    let _: Option<GlobalMetadata> = messages.decode()?;
    let (mut graph, mut names) = (Graph::default(), Names::default());
    // When nodes ended whose times were recorded.
    let mut ended_ns: BTreeMap<u64, u64> = BTreeMap::new();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let (mut backend, mut stacks) = (BackendName::Unknown, StackTexts::default());
    let mut computed: Vec<Computed> = Vec::new();
    let mut calls: Vec<ReadCall> = Vec::new();
    let mut flaws = Flaws::default();
    loop {
        let node = match messages.decode::<Node>() {
            Ok(Some(node)) => node,
            Ok(None) => break,
            Err(error) if calls.is_empty() => return Err(error),
            Err(error) => {
                (flaws.broken, graph.broken) = (Some(error.to_string()), true);
                break;
            }
        };
        let at = graph.nodes.len();
        let needs = graph.needs.len()..graph.needs.len() + node.data_deps.len();
        graph.needs.extend_from_slice(&node.data_deps);
        graph.callers.extend(node.ctrl_deps.iter().map(|on| (node.id, *on)));
        if at >= MAX_NODES || graph.needs.len() + graph.callers.len() > MAX_DEPENDENCIES {
            return Err(ChakraError::TooManyNodes { file: file.to_owned() });
        }
        if node.name == GROUPS_NODE {
            let values = node.inputs.as_ref().map_or("", |inputs| &inputs.values);
            let listed = groups_in(values);
            backend = backend_in(values);
            groups.extend(listed.into_iter().map(|group| (group.name.clone(), group)));
        }
        let duration_ns = duration_ns(&node);
        let call = call_of(&node);
        let recorded = call.as_ref().and_then(|(_, _, times_ns)| (*times_ns)?[2]);
        let began_ns = node.number("start_ns").or(recorded_start_ns(&node));
        let end_ns = recorded.or_else(|| Some(began_ns?.saturating_add(duration_ns)));
        ended_ns.extend(end_ns.map(|end_ns| (node.id, end_ns)));
        let uses = if call.is_some() { Resource::Nothing } else { used_by(&node) };
        if let (Resource::Device, Some(from_ns)) = (uses, began_ns)
            && duration_ns > 0
            && node.name != BETWEEN
        {
            match computed.len() < MAX_COMPUTED {
                true => computed.push(Computed {
                    from_ns,
                    to_ns: from_ns.saturating_add(duration_ns),
                    name: node.name.as_str().into(),
                }),
                false => flaws.has_more_computations = true,
            }
        }
        graph.nodes.push(GraphNode { id: node.id, needs, uses, duration_ns });
        names.push(&node.name);
        if let Some((mut call, peer, times_ns)) = call {
            take_backwards(&call, times_ns, &mut flaws);
            call.stack = stacks.read(node.text("call_stack").unwrap_or_default());
            calls.push(ReadCall { at, call, peer, times_ns });
        }
    }
    let slots = graph.layout(file, |at| names.get(at))?;
    if calls.is_empty() {
        return Err(ChakraError::NoCalls { file: file.to_owned() });
    }
    for group in calls.iter().filter_map(|read| read.call.group.as_ref()) {
        let desc = if group == WORLD { "default_pg" } else { "" }.to_owned();
        let unlisted = || Group { name: group.clone(), desc, ranks: Vec::new() };
        groups.entry(group.clone()).or_insert_with(unlisted);
    }
    let has_times = calls.iter().any(|read| read.times_ns.is_some());
    let mut calls: Vec<(u64, Call)> = calls
        .into_iter()
        .map(|read| {
            let slot = slots.get(read.at).copied().unwrap_or_default();
            let id = graph.nodes.get(read.at).map_or(0, |node| node.id);
            let group = groups.get(read.call.group.as_deref().unwrap_or(WORLD));
            let peer = read.peer.and_then(|peer| place_in(group, peer));
            // A call is made when all is done that it depends on.
            let needs = graph.nodes.get(read.at).map_or(0..0, |node| node.needs.clone());
            let needs = graph.needs.get(needs).unwrap_or_default();
            let possible = needs.iter().filter_map(|on| ended_ns.get(on).copied()).max();
            let (made_ns, ran_ns) = times_of(&read, possible, (slot.from_ns, slot.to_ns));
            (id, Call { peer, made_ns, ran_ns, ..read.call })
        })
        .collect();
    calls.sort_by_key(|(id, call)| (call.made_ns, *id));
    let calls = calls.into_iter().map(|(_, call)| call).collect();
    computed.sort_by_key(|one| (one.from_ns, one.to_ns));
    let groups = groups.into_values().collect();
    Ok(Contents { calls, groups, has_times, computed, backend, flaws })
}

/// The resource that a node takes which is no call.
fn used_by(node: &Node) -> Resource {
    match NodeType::try_from(node.r#type) {
        Ok(NodeType::Comp) if node.flag("is_cpu_op") == Some(true) => Resource::Processor,
        Ok(NodeType::Comp) => Resource::Device,
        _ => Resource::Nothing,
    }
}

/// The place of a rank in a group; one that is not listed has all ranks.
fn place_in(group: Option<&Group>, rank: GlobalRank) -> Option<GroupRank> {
    let ranks = group.map_or(&[][..], |group| &group.ranks);
    match ranks.iter().position(|member| *member == rank) {
        Some(place) => u32::try_from(place).ok().map(GroupRank),
        None => ranks.is_empty().then_some(GroupRank(rank.0)),
    }
}

/// Notes a call that ends before it begins, or begins before it is made.
fn take_backwards(call: &Call, times_ns: Option<RecordedTimes>, flaws: &mut Flaws) {
    let known: Vec<u64> = times_ns.unwrap_or_default().into_iter().flatten().collect();
    let by_ns = known.windows(2).map(|pair| match pair {
        [before, after] => before.saturating_sub(*after),
        _ => 0,
    });
    if let Some(by_ns) = by_ns.max().filter(|by_ns| *by_ns > 0) {
        let seq = call.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
        let what = || ends_before_it_begins(&format!("{}{seq}", call.op), by_ns as f64);
        flaws.backwards.add(what);
    }
}

/// The moment at which a call is made, and from when until when it runs, in nanoseconds; nothing of one that never
/// began. It cannot be made before `possible`; without recorded times it fills its `slot`.
fn times_of(read: &ReadCall, possible: Option<u64>, slot: (u64, u64)) -> (u64, Option<(u64, u64)>) {
    let (made, ran) = match read.times_ns {
        Some([made, started, ended]) => {
            let began = started.or(made).or(ended).unwrap_or(slot.0);
            let made = possible.or(made).unwrap_or(began).min(began.max(made.unwrap_or(0)));
            let started = began.max(made);
            (made, (started, ended.unwrap_or(started)))
        }
        None => (slot.0, slot),
    };
    let never_began = read.call.unfinished == Some(CallState::Scheduled);
    (made, Some(ran).filter(|_| !never_began))
}

/// The names of nodes, one behind the other.
#[derive(Default)]
pub(super) struct Names {
    text: String,
    ends: Vec<usize>,
}

impl Names {
    pub(super) fn push(&mut self, name: &str) {
        // An error names one of them.
        self.text.extend(name.chars().take(80));
        self.ends.push(self.text.len());
    }

    pub(super) fn get(&self, at: usize) -> String {
        let begin = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let range = begin.unwrap_or(0)..self.ends.get(at).copied().unwrap_or(0);
        self.text.get(range).unwrap_or_default().to_owned()
    }
}

/// The recorded start of a node, in nanoseconds; converters that know no times write 0.
fn recorded_start_ns(node: &Node) -> Option<u64> {
    (node.start_time_micros > 0).then(|| node.start_time_micros.saturating_mul(1000))
}

/// The duration of a node, in nanoseconds.
fn duration_ns(node: &Node) -> u64 {
    node.number("duration_ns").unwrap_or_else(|| node.duration_micros.saturating_mul(1000))
}

/// A call, its peer, and its times.
type CallOfNode = (Call, Option<GlobalRank>, Option<RecordedTimes>);

/// The call that a node is.
fn call_of(node: &Node) -> Option<CallOfNode> {
    let kind = NodeType::try_from(node.r#type).ok()?;
    let recorded_name = node.text("collective_name").map(public_name);
    let op = match kind {
        NodeType::CommSend => "send",
        NodeType::CommRecv => "recv",
        NodeType::CommColl => {
            let listed = node.number("comm_type").and_then(|at| usize::try_from(at).ok());
            recorded_name.or_else(|| COMM_TYPES.get(listed?).copied())?
        }
        _ => return None,
    };
    let types = node.inputs.as_ref().map_or("", |inputs| &inputs.types);
    let dtype = node.text("dtype").map(Dtype::from_torch_name).or_else(|| dtype_in(types));
    let bytes = node.number("comm_size");
    // Without a type, elements are bytes.
    let dtype = dtype.filter(|dtype| dtype.size_bytes() > 0).unwrap_or(Dtype::Uint8);
    let tensor = |numel: u64| vec![TensorShape { shape: vec![numel], dtype }];
    let told = [node.number("in_msg_nelems"), node.number("out_msg_nelems")];
    let [inputs, outputs] = match told {
        [None, None] => {
            let numel = bytes.map(|bytes| bytes / dtype.size_bytes()).filter(|_| op != "barrier");
            [numel.map(tensor).unwrap_or_default(), Vec::new()]
        }
        told => told.map(|numel| numel.map(tensor).unwrap_or_default()),
    };
    let small = |name: &str| node.number(name).and_then(|number| u32::try_from(number).ok());
    let peer = match kind {
        NodeType::CommSend => small("comm_dst"),
        NodeType::CommRecv => small("comm_src"),
        _ => None,
    };
    let unfinished = match node.text("state") {
        Some("scheduled") => Some(CallState::Scheduled),
        Some("started") => Some(CallState::Started),
        _ => None,
    };
    let exact = ["scheduled_ns", "started_ns", "completed_ns"].map(|name| node.number(name));
    let coarse = recorded_start_ns(node).map(|from_ns| {
        let to_ns = from_ns.saturating_add(node.duration_micros.saturating_mul(1000));
        [None, Some(from_ns), Some(to_ns)]
    });
    let times_ns = if exact.iter().any(Option::is_some) { Some(exact) } else { coarse };
    let call = Call {
        op: op.to_owned(),
        // An empty name is written where the group is not known; converters leave it out for the default group.
        group: Some(node.text("pg_name").unwrap_or(WORLD).to_owned())
            .filter(|name| !name.is_empty()),
        seq: node.number("seq").filter(|seq| *seq > 0),
        peer: None,
        tag: small("comm_tag").unwrap_or(0),
        inputs,
        outputs,
        reduce_op: node.text("reduce_op").and_then(reduce_op),
        root: small("root").map(GroupRank),
        made_ns: 0,
        ran_ns: None,
        unfinished,
        stack: Arc::from([]),
    };
    Some((call, peer.map(GlobalRank), times_ns))
}

fn reduce_op(name: &str) -> Option<ReduceOp> {
    let simple = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
    ];
    simple.into_iter().find(|op| op.name() == name)
}

/// The element type in `['Tensor(float)']`, or in a list of several tensors.
pub(super) fn dtype_in(types: &str) -> Option<Dtype> {
    let (_, behind) = types.split_once("Tensor(")?;
    let (name, _) = behind.split_once(')')?;
    Some(dtype_of_cpp(name))
}

/// A group as PyTorch lists it.
#[derive(Deserialize)]
struct ListedGroup {
    pg_name: String,
    /// `cuda:nccl`, or the backend's name alone.
    #[serde(default)]
    backend_config: String,
    #[serde(default)]
    pg_desc: String,
    #[serde(default)]
    ranks: Vec<u32>,
}

/// The groups in a node's values: JSON in a string of a list, as JSON or as Python writes it.
pub(super) fn groups_in(values: &str) -> Vec<Group> {
    let group = |it: ListedGroup| Group {
        name: it.pg_name,
        desc: it.pg_desc,
        ranks: it.ranks.into_iter().map(GlobalRank).collect(),
    };
    listed_in(values).into_iter().map(group).collect()
}

fn listed_in(values: &str) -> Vec<ListedGroup> {
    let (Some(from), Some(to)) = (values.find("[{"), values.rfind("}]")) else { return Vec::new() };
    let Some(json) = values.get(from..to + 2) else { return Vec::new() };
    let listed: Option<Vec<ListedGroup>> = serde_json::from_str(json)
        .ok()
        .or_else(|| serde_json::from_str(&json.replace("\\\"", "\"")).ok());
    listed.unwrap_or_default()
}

/// The backend of the first group that names one.
pub(super) fn backend_in(values: &str) -> BackendName {
    let known = [BackendName::Nccl, BackendName::Gloo, BackendName::Mpi, BackendName::Host];
    let of_group = |group: ListedGroup| {
        let name = group.backend_config.rsplit(':').next()?.to_owned();
        known.into_iter().find(|backend| backend.name() == name)
    };
    listed_in(values).into_iter().find_map(of_group).unwrap_or(BackendName::Unknown)
}
