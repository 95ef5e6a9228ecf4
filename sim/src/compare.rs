//! Two traces of one plan, value by value: compares the real run's values with the simulation's.

use crate::left_open::ranks_left_open;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::display_element;
use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Called, Outcome, TensorShape, TensorValue, Trace, What,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A comparison of the results of two traces of one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Tensors that both traces have.
    pub tensors: u64,
    /// Elements in them.
    pub elements: u64,
    /// Tensors that are equal to the bit.
    pub equal: u64,
    /// Tensors that only one trace has: a rank did not finish there, or values were not carried.
    pub only_in_one: u64,
    /// Tensors that differ because the plan leaves the order open: a receive from any source takes the first
    /// message, which may be another one in each run. Not among the differences.
    #[serde(default)]
    pub left_open: u64,
    /// The first differences, at most [`Comparison::MAX_DIFFERENCES`].
    pub differences: Vec<Difference>,
    /// The reason that no tensor is in both, in words, where there are any at all.
    ///
    /// Always written: the page's worker sends it in postcard, which knows no absent fields.
    #[serde(default)]
    pub not_compared: Option<String>,
    /// The comparison of the ranks' calls.
    #[serde(default)]
    pub calls: CallComparison,
}

/// A comparison of the calls of two traces: each rank's in order, by name, group, sequence number, sizes and
/// element types. Used when values are too large to be simulated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallComparison {
    /// Calls of the trace that has more, all ranks together.
    pub calls: u64,
    /// Those that both have, in the same place with the same sizes, and that completed in both.
    pub equal: u64,
    /// Bytes that these take as inputs, all ranks together.
    pub bytes: u64,
    /// The first that differs; one that hangs in both does not.
    pub first_difference: Option<Box<CallDifference>>,
}

/// A call that differs between two traces, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDifference {
    /// The rank that makes it.
    pub rank: u32,
    /// Its place among the rank's calls, from 0.
    pub call: usize,
    /// The call in the one trace: `all_reduce float32[8]`.
    pub left: String,
    /// The call in the other.
    pub right: String,
}

impl CallDifference {
    /// The difference in a sentence without its end, with names for the two traces.
    pub fn words(&self, [left, right]: [&str; 2]) -> String {
        let CallDifference { rank, call, .. } = self;
        format!("rank {rank}, call {call}: {left} {}, {right} {}", self.left, self.right)
    }
}

/// The first element at which a tensor differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The rank of the tensor.
    pub rank: GlobalRank,
    /// The tensor that differs.
    pub tensor: TensorId,
    /// Its name.
    pub name: String,
    /// The first element that differs; `None` when only digests were kept.
    pub element: Option<u64>,
    /// The first trace's value there.
    pub left: String,
    /// The second trace's value there.
    pub right: String,
}

impl Comparison {
    /// Differences that are listed.
    pub const MAX_DIFFERENCES: usize = 16;

    /// True if there was something to compare and all of it is equal to the bit, except for tensors that the
    /// plan leaves open.
    pub fn all_equal(&self) -> bool {
        self.equal > 0 && self.equal + self.left_open == self.tensors
    }
}

/// Compares the tensors that two traces of `plan` ended with: a simulation, and a run.
pub fn compare(plan: &Plan, left: &Trace, right: &Trace) -> Comparison {
    let calls = compare_calls(left, right);
    let completed = [left, right]
        .map(|trace| trace.end.as_ref().is_some_and(|end| end.outcome == Outcome::Completed));
    let (left, right) = (results(left), results(right));
    let mut comparison = Comparison { calls, ..Comparison::default() };
    let open = ranks_left_open(plan);
    for (key, left) in &left {
        let Some(right) = right.get(key) else {
            comparison.only_in_one += 1;
            continue;
        };
        let (rank, tensor) = *key;
        let (name, dtype) = plan
            .tensor(tensor)
            .map_or((String::new(), Dtype::Unknown), |t| (t.name.clone(), t.dtype));
        comparison.tensors += 1;
        comparison.elements += length(left) / dtype.size_bytes().max(1);
        if left == right {
            comparison.equal += 1;
        } else if open.contains(&rank) {
            comparison.left_open += 1;
        } else if comparison.differences.len() < Comparison::MAX_DIFFERENCES {
            let (element, left, right) = first_difference(dtype, left, right);
            comparison.differences.push(Difference { rank, tensor, name, element, left, right });
        }
    }
    comparison.only_in_one += right.keys().filter(|key| !left.contains_key(key)).count() as u64;
    if comparison.tensors == 0 && comparison.only_in_one > 0 {
        comparison.not_compared =
            Some(why_apart(completed, [&left, &right].map(BTreeMap::is_empty)));
    }
    comparison
}

/// The reason that a simulation and a run have no tensor in common, though one of them has some:
/// whether each came to its end, and whether it has none.
fn why_apart([simulated, ran]: [bool; 2], none: [bool; 2]) -> String {
    let why = match none {
        [_, true] if !ran => {
            "no rank of the run came to the end of its program, where it hands in its tensors"
        }
        [_, true] => "the run handed in no tensors",
        [true, _] if simulated => {
            "the plan's tensors are too large to be simulated with values, or it does not say what they hold"
        }
        [true, _] => "no rank of the simulation came to the end of its program",
        _ => {
            "the ranks that came to the end of their programs in the run did not in the simulation"
        }
    };
    why.to_owned()
}

fn compare_calls(left: &Trace, right: &Trace) -> CallComparison {
    let (left, right) = (CallLog::of(left), CallLog::of(right));
    let mut found = CallComparison::default();
    for rank in 0..left.ranks.len().max(right.ranks.len()) {
        let of = |log: &CallLog| -> Vec<CallRecord> {
            let log = log.ranks.get(rank).and_then(Option::as_ref);
            log.map(|log| log.calls.clone()).unwrap_or_default()
        };
        let (left, right) = (of(&left), of(&right));
        for place in 0..left.len().max(right.len()) {
            found.calls += 1;
            let (left, right) = (left.get(place), right.get(place));
            let pair = left.zip(right);
            let same = pair.is_some_and(|(left, right)| {
                left.seq == right.seq && same_call(&left.call, &right.call)
            });
            let ended = |call: &CallRecord| call.state == CallState::Completed;
            if let Some((left, right)) = pair.filter(|_| same)
                && ended(left)
                && ended(right)
            {
                found.equal += 1;
                let bytes = left.call.inputs.iter();
                let bytes = bytes.map(|of| of.numel().saturating_mul(of.dtype.size_bytes()));
                found.bytes = bytes.fold(found.bytes, u64::saturating_add);
            } else if found.first_difference.is_none()
                // Calls that hang on both sides count as neither equal nor different.
                && !(same && pair.is_some_and(|(left, right)| !ended(left) && !ended(right)))
            {
                found.first_difference = Some(Box::new(CallDifference {
                    rank: rank as u32,
                    call: place,
                    left: in_words(left),
                    right: in_words(right),
                }));
            }
        }
    }
    found
}

fn same_call(left: &Called, right: &Called) -> bool {
    let sizes = |call: &Called| {
        let numels = |of: &[TensorShape]| -> Vec<_> {
            of.iter().map(|shape| (shape.numel(), shape.dtype)).collect()
        };
        (numels(&call.inputs), numels(&call.outputs))
    };
    (&left.op, left.group) == (&right.op, right.group)
        && (left.reduce_op, left.root, left.peer) == (right.reduce_op, right.root, right.peer)
        && sizes(left) == sizes(right)
}

fn in_words(call: Option<&CallRecord>) -> String {
    let Some(CallRecord { call, state, .. }) = call else { return "nothing".into() };
    let shape = call.inputs.first().or(call.outputs.first());
    let shape = shape.map_or_else(String::new, |of| format!(" {}[{}]", of.dtype, of.numel()));
    let left_open = if *state == CallState::Completed { "" } else { ", not completed" };
    format!("{}{shape}{left_open}", call.op)
}

fn results(trace: &Trace) -> BTreeMap<(GlobalRank, TensorId), &TensorValue> {
    let results = trace.events.iter().filter_map(|event| match &event.what {
        What::Result { tensor, value } => Some(((event.rank, *tensor), value)),
        _ => None,
    });
    results.collect()
}

fn length(value: &TensorValue) -> u64 {
    match value {
        TensorValue::Bytes(bytes) => bytes.len() as u64,
        TensorValue::Digest { bytes, .. } => *bytes,
    }
}

fn first_difference(
    dtype: Dtype,
    left: &TensorValue,
    right: &TensorValue,
) -> (Option<u64>, String, String) {
    let size = dtype.size_bytes().max(1) as usize;
    match (left, right) {
        (TensorValue::Bytes(left), TensorValue::Bytes(right)) => {
            let differ = left.chunks(size).zip(right.chunks(size)).position(|(a, b)| a != b);
            let element = differ.unwrap_or(left.len().min(right.len()) / size);
            let show = |bytes: &[u8]| match bytes.get(element * size..(element + 1) * size) {
                Some(bytes) => display_element(dtype, bytes),
                None => "no such element".into(),
            };
            (Some(element as u64), show(left), show(right))
        }
        (left, right) => (None, show_digest(left), show_digest(right)),
    }
}

fn show_digest(value: &TensorValue) -> String {
    match value {
        TensorValue::Bytes(bytes) => format!("{} bytes", bytes.len()),
        TensorValue::Digest { bytes, xxh3: [high, low] } => {
            format!("{bytes} bytes, XXH3 {high:016x}{low:016x}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::trace::{Event, Origin, TraceEnd, TraceHeader};

    /// A trace whose ranks below `finished` handed in four bytes.
    fn trace(finished: u32, outcome: Outcome) -> Trace {
        let header = TraceHeader {
            origin: Origin::Recorded { by: "a test".into(), files: Vec::new() },
            world_size: 2,
            groups: Vec::new(),
            plan: None,
            epoch_ns: 0,
        };
        let result = |rank| {
            let value = TensorValue::Bytes(vec![0; 4]);
            let what = What::Result { tensor: TensorId(0), value };
            Event { time_ps: 0, rank: GlobalRank(rank), what }
        };
        let events = (0..finished).map(result).collect();
        Trace { header, events, end: Some(TraceEnd { time_ps: 0, outcome }) }
    }

    #[test]
    fn values_that_are_not_compared_say_why() {
        let mut plan = PlanBuilder::new("p", 2, BackendName::Host).unwrap();
        plan.tensor("t", Dtype::Float32, 1, Fill::Zeros);
        let plan = plan.every_rank(|_, _| {}).unwrap();
        let why = |simulated: &Trace, ran: &Trace| compare(&plan, simulated, ran).not_compared;
        let whole = trace(2, Outcome::Completed);
        assert_eq!(why(&whole, &whole), None);
        assert_eq!(why(&trace(0, Outcome::Completed), &trace(0, Outcome::TimedOut)), None);
        for ended in [Outcome::Cancelled, Outcome::TimedOut] {
            let why = why(&whole, &trace(0, ended)).unwrap();
            assert!(why.starts_with("no rank of the run came to the end"), "{why}");
        }
        let large = why(&trace(0, Outcome::Completed), &whole).unwrap();
        assert!(large.contains("too large to be simulated"), "{large}");
        let stuck = why(&trace(0, Outcome::TimedOut), &whole).unwrap();
        assert!(stuck.starts_with("no rank of the simulation"), "{stuck}");
    }
}
