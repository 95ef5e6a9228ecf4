//! The recorded cases as scripts.

mod collectives;
mod detail;
mod faults;
mod groups;
mod lifecycle;
mod objects;
mod p2p;

use lockstep_core::dtype::Dtype::{Complex64, Float32, Float64, Int16, Int32};
use lockstep_core::plan::Fill;
use lockstep_core::reduce::ReduceOp;
use lockstep_torch::c10d::{
    Arg, Dist, DistError, FromRank, Group, InGroup, InitProcessGroup, Job, NewGroup, Object, P2POp,
    P2pKind, PyObject, RecvFrom, Reduction, SendTo, Source, Tensor, TensorArg, ToRank,
    store::{Answer, Store, StoreKind},
};
use serde_json::{Value, json};

/// The value that a script returns.
#[derive(Debug)]
pub(crate) enum Out {
    /// Nothing that is compared.
    Nothing,
    /// A value known at once.
    Json(Value),
    /// The contents of a tensor when the plan has run.
    Tensor(Tensor),
    /// A list of such.
    List(Vec<Out>),
}

/// The expected relation of our outcome to the recorded one.
pub(crate) enum Expect {
    /// The same.
    AsRecorded,
    /// Ours is another on purpose: only these ranks wait for ever.
    Differs { hangs: &'static [u32], why: &'static str },
    /// The same, but for these ranks, which go on where gloo notices that a peer has gone.
    ButGoesOn { ranks: &'static [u32], why: &'static str },
    /// We refuse, in our own words, what PyTorch lets hang or go wrong.
    WeRefuse { why: &'static str },
}

type Script = fn(&mut Dist<'_>) -> Result<Out, DistError>;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) expect: Expect,
    pub(crate) setup: fn(&mut Job),
    pub(crate) script: Script,
}

/// Recorded cases that this API cannot express, with the reason.
pub(crate) const NOT_REPLAYED: &[(&str, &str)] = &[
    ("init_duplicate_rank0", "two processes fight over one listening socket: the API has none"),
    (
        "init_duplicate_rank1",
        "gloo's full mesh times out on addresses that two processes overwrote",
    ),
    ("tcp_store_client_without_server", "it needs a socket; gpu-exec has the real store"),
    ("tcp_store_workers_missing", "it needs a socket; gpu-exec has the real store"),
    (
        "sequence_numbers",
        "gloo's private counter begins at 0; plans count as collective_seq_id, from 1",
    ),
    (
        "all_reduce_requires_grad_leaf",
        "tensors have no autograd here; PyTorch lets the call through, which every other case shows",
    ),
];

fn no_setup(_: &mut Job) {}

fn case(name: &'static str, script: Script) -> Case {
    Case { name, expect: Expect::AsRecorded, setup: no_setup, script }
}

fn with(name: &'static str, setup: fn(&mut Job), script: Script) -> Case {
    Case { setup, ..case(name, script) }
}

fn differs(name: &'static str, hangs: &'static [u32], why: &'static str, script: Script) -> Case {
    Case { expect: Expect::Differs { hangs, why }, ..case(name, script) }
}

fn but_goes_on(name: &'static str, ranks: &'static [u32], script: Script) -> Case {
    let why = "a rank that only sends is done when its message has left; gloo's sender notices the \
               closed connection, or waits for a receiver";
    Case { expect: Expect::ButGoesOn { ranks, why }, ..case(name, script) }
}

const MISMATCH: &str = "ranks that disagree on size, type or operation never complete here: gloo \
                        aborts or mixes the bits, and a finding says more";

fn gloo(dist: &mut Dist<'_>) -> Result<(), DistError> {
    dist.init_process_group(InitProcessGroup {
        timeout_ms: Some(4000.into()),
        ..InitProcessGroup::from("gloo")
    })
}

/// `torch.ones(numel)`; every rank's rank where `rank`.
fn tensor(dist: &mut Dist<'_>, name: &str, numel: u64) -> Tensor {
    dist.tensor(name, Float32, numel, Fill::Rank)
}

fn floats(dist: &mut Dist<'_>, name: &str, values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    dist.tensor_of(name, Float32, values.len() as u64, &data)
}

fn ints(dist: &mut Dist<'_>, name: &str, values: &[i32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    dist.tensor_of(name, Int32, values.len() as u64, &data)
}

fn rank(dist: &Dist<'_>) -> u32 {
    dist.process().0
}

fn int(value: i64) -> Object {
    Object::from(&PyObject::Int(value))
}

fn json(value: impl Into<Value>) -> Result<Out, DistError> {
    Ok(Out::Json(value.into()))
}

fn nothing<T>(_: T) -> Out {
    Out::Nothing
}

fn in_group(group: Option<Group>) -> Reduction {
    Reduction { group, ..Reduction::default() }
}

/// Ranks 0 and 1 of three.
fn pair(dist: &mut Dist<'_>) -> Result<Option<Group>, DistError> {
    gloo(dist)?;
    dist.new_group(Some(&[0, 1]), &NewGroup::default())
}

fn lists(dist: &mut Dist<'_>, name: &str, numels: &[u64]) -> Vec<Tensor> {
    let made = numels.iter().enumerate();
    made.map(|(i, numel)| tensor(dist, &format!("{name}[{i}]"), *numel)).collect()
}

fn store_timeout(store: &Store, answer: Answer<()>, keys: &[&str]) -> Result<Out, DistError> {
    match answer {
        Answer::Ready(()) => Ok(Out::Nothing),
        Answer::WouldBlock(waits) => {
            assert_eq!(waits, keys);
            Err(store.timed_out(keys, 1000))
        }
    }
}

pub(crate) fn all() -> Vec<Case> {
    [
        lifecycle::before_and_after(),
        lifecycle::init(),
        collectives::collectives(),
        collectives::lists_and_splits(),
        p2p::p2p(),
        faults::disagreements(),
        faults::absences(),
        detail::cases(),
        groups::groups(),
        objects::objects_and_stores(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
