//! PyTorch's own execution traces: JSON of nodes
//! (`torch/csrc/profiler/standalone/execution_trace_observer.cpp`).
//!
//! Calls of NCCL are `record_param_comms` with attributes, those of gloo `c10d::…` with their arguments.
//! There are no times: calls are in the order in which they were made.

use super::error::ChakraError;
use super::graph::{Graph, GraphNode, Resource};
use super::nodes::{Contents, GROUPS_NODE, Names, dtype_in, groups_in};
use super::{MAX_DEPENDENCIES, MAX_ET_BYTES, MAX_NODES};
use crate::flight_recorder::public_name;
use crate::kineto::{dispatched, dispatched_name, is_call};
use crate::rank_calls::{Call, Flaws, Group, MAX_CALLS};
use crate::small_json::Small;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use lockstep_core::rank::GroupRank;
use lockstep_core::trace::TensorShape;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The nanoseconds between calls, since the file does not give their distance.
const APART_NS: u64 = 1;

/// The bytes of a file that are enough to recognise its form.
const HEAD: usize = 1 << 16;

/// True if bytes begin like an execution trace of PyTorch's own, in JSON.
pub fn is_one(bytes: &[u8]) -> bool {
    let head = bytes.get(..bytes.len().min(HEAD)).unwrap_or_default();
    let has = |what: &[u8]| head.windows(what.len()).any(|window| window == what);
    bytes.trim_ascii_start().first() == Some(&b'{')
        && has(b"\"schema\"")
        && has(b"\"nodes\"")
        && (has(b"chakra") || has(b"\"ctrl_deps\""))
}

/// The attributes of a node that describe a call.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    id: Small,
    name: Small,
    /// The node that it was called by, or, from a converter, those that it waits for; a root's is its own.
    ctrl_deps: Small,
    data_deps: Small,
    inputs: Inputs,
    attrs: Vec<Attribute>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Inputs {
    values: Small,
    shapes: Small,
    types: Small,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attribute {
    name: Small,
    value: Small,
}

/// The calls that were found so far, by the number of their node.
#[derive(Default)]
struct Found {
    graph: Graph,
    names: Names,
    params: Vec<(u64, Call)>,
    dispatched: Vec<(u64, Call)>,
    groups: BTreeMap<String, Group>,
}

/// Reads a file.
///
/// # Errors
/// When it is damaged, too large or without calls.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Contents, ChakraError> {
    if bytes.len() > MAX_ET_BYTES {
        return Err(ChakraError::TooLarge { file: file.to_owned(), bytes: bytes.len() });
    }
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = reader.deserialize_map(Document(&mut found)).and_then(|()| reader.end());
    let broken = read
        .err()
        .map(|error| ChakraError::Damaged { file: file.to_owned(), why: error.to_string() });
    if found.graph.nodes.len() > MAX_NODES || found.graph.needs.len() > MAX_DEPENDENCIES {
        return Err(ChakraError::TooManyNodes { file: file.to_owned() });
    }
    found.graph.broken = broken.is_some();
    // The calls are in the order of their numbers; a file whose nodes could not run is damaged all the same.
    found.graph.layout(file, |at| found.names.get(at))?;
    // NCCL's calls are recorded as both.
    let mut calls = if found.params.is_empty() { found.dispatched } else { found.params };
    if calls.is_empty() {
        return Err(broken.unwrap_or_else(|| ChakraError::NoCalls { file: file.to_owned() }));
    }
    calls.sort_by_key(|(id, _)| *id);
    let in_order = calls.into_iter().zip(1u64..).map(|((_, call), at)| {
        let at_ns = at.saturating_mul(APART_NS);
        Call { made_ns: at_ns, ran_ns: Some((at_ns, at_ns)), ..call }
    });
    let groups = found.groups.into_values().collect();
    let (calls, backend) = (in_order.collect(), BackendName::Unknown);
    let flaws = Flaws { broken: broken.map(|error| error.to_string()), ..Flaws::default() };
    Ok(Contents { calls, groups, has_times: false, computed: Vec::new(), backend, flaws })
}

impl Found {
    fn add_to_graph(&mut self, node: &Node, name: &str) {
        let (nodes, first) = (self.graph.nodes.len(), self.graph.needs.len());
        let Some(id) = node.id.whole() else { return };
        if nodes > MAX_NODES || first > MAX_DEPENDENCIES {
            return;
        }
        for on in [&node.ctrl_deps, &node.data_deps] {
            let listed = on.list().iter().chain([on]).filter_map(Small::whole);
            self.graph.needs.extend(listed.filter(|on| *on != id));
        }
        let (needs, uses) = (first..self.graph.needs.len(), Resource::Nothing);
        self.graph.nodes.push(GraphNode { id, needs, uses, duration_ns: 0 });
        self.names.push(name);
    }

    fn take(&mut self, node: &Node) {
        let (name, inputs) = (node.name.text(), &node.inputs);
        self.add_to_graph(node, name);
        if name == GROUPS_NODE {
            for group in groups_in(inputs.values.at(0).text()) {
                self.groups.insert(group.name.clone(), group);
            }
            return;
        }
        if self.params.len() + self.dispatched.len() >= MAX_CALLS {
            return;
        }
        let Some(id) = node.id.whole() else { return };
        if name == "record_param_comms" {
            self.params.extend(call_of_params(node).map(|call| (id, call)));
        } else if let Some(op) = name.strip_prefix("c10d::").and_then(dispatched_name) {
            let mut said = dispatched(op, &inputs.values, &inputs.shapes);
            let dtype = dtype_in(inputs.types.at(0).text()).unwrap_or(Dtype::Unknown);
            let tensors = said.inputs.iter_mut().chain(&mut said.outputs);
            tensors.for_each(|tensor| tensor.dtype = dtype);
            let call = Call {
                op: op.to_owned(),
                group: None,
                seq: None,
                peer: said.peer,
                tag: said.tag,
                inputs: said.inputs,
                outputs: said.outputs,
                reduce_op: None,
                root: said.root,
                made_ns: 0,
                ran_ns: None,
                unfinished: None,
                stack: Arc::from([]),
            };
            self.dispatched.push((id, call));
        }
    }
}

fn call_of_params(node: &Node) -> Option<Call> {
    let attribute = |name: &str| {
        let found = node.attrs.iter().find(|attribute| attribute.name.text() == name);
        found.map_or(&Small::Nothing, |attribute| &attribute.value)
    };
    let op = public_name(attribute("collective_name").text());
    if !is_call(op) {
        return None;
    }
    let dtype = Dtype::from_torch_name(attribute("dtype").text());
    let tensor = |name: &str| -> Vec<TensorShape> {
        let numel = attribute(name).whole();
        numel.map(|numel| TensorShape { shape: vec![numel], dtype }).into_iter().collect()
    };
    // The macro's arguments behind the tensors: seq, (name, desc) of the group, rank, the call's name, …
    let values = node.inputs.values.list();
    let called =
        values.iter().position(|value| public_name(value.text()) == op && !value.text().is_empty());
    let before = |back: usize| called.and_then(|at| values.get(at.checked_sub(back)?));
    let place = before(1).and_then(Small::whole).and_then(|rank| u32::try_from(rank).ok());
    let p2p = matches!(op, "send" | "recv");
    let rooted = matches!(op, "broadcast" | "scatter" | "reduce" | "gather");
    Some(Call {
        op: op.to_owned(),
        group: Some(attribute("pg_name").text().to_owned()).filter(|name| !name.is_empty()),
        seq: before(3).and_then(Small::whole).filter(|seq| *seq > 0),
        peer: place.filter(|_| p2p).map(GroupRank),
        tag: 0,
        inputs: tensor("in_msg_nelems"),
        outputs: tensor("out_msg_nelems"),
        reduce_op: None,
        root: place.filter(|_| rooted).map(GroupRank),
        made_ns: 0,
        ran_ns: None,
        unfinished: None,
        stack: Arc::from([]),
    })
}

struct Document<'a>(&'a mut Found);

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an execution trace: an object with nodes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "nodes" => map.next_value_seed(Nodes(&mut *self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct Nodes<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for Nodes<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Nodes<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<(), A::Error> {
        while let Some(node) = nodes.next_element::<Node>()? {
            self.0.take(&node);
        }
        Ok(())
    }
}
