//! Two traces of one plan, value by value: does the real run leave what the simulation says?

use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{TensorValue, Trace, What};
use lockstep_core::value::display_element;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the results of two traces of one plan compare.
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
    /// The first differences, at most [`Comparison::MAX_DIFFERENCES`].
    pub differences: Vec<Difference>,
}

/// The first element at which a tensor differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Whose tensor.
    pub rank: GlobalRank,
    /// Which.
    pub tensor: TensorId,
    /// Its name.
    pub name: String,
    /// The first element that differs; `None` when only digests were kept.
    pub element: Option<u64>,
    /// What the first trace has there.
    pub left: String,
    /// What the second trace has there.
    pub right: String,
}

impl Comparison {
    /// Differences that are listed.
    pub const MAX_DIFFERENCES: usize = 16;

    /// True when there was something to compare and all of it is equal to the bit.
    pub fn all_equal(&self) -> bool {
        self.tensors > 0 && self.equal == self.tensors
    }
}

/// Compares the tensors that two traces of `plan` ended with.
pub fn compare(plan: &Plan, left: &Trace, right: &Trace) -> Comparison {
    let (left, right) = (results(left), results(right));
    let mut comparison = Comparison::default();
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
        } else if comparison.differences.len() < Comparison::MAX_DIFFERENCES {
            let (element, left, right) = first_difference(dtype, left, right);
            comparison.differences.push(Difference { rank, tensor, name, element, left, right });
        }
    }
    comparison.only_in_one += right.keys().filter(|key| !left.contains_key(key)).count() as u64;
    comparison
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
