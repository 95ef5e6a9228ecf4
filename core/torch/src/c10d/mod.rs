//! torch.distributed's functions as Rust: PyTorch 2.7.1's names, arguments, defaults and refusals, each call
//! recorded as operations of a plan.
//!
//! A [`Job`] has one [`Dist`] for each of its processes. Its methods are the functions of
//! `torch.distributed`; they make PyTorch's checks, in its order, refuse in its words ([`DistError`]), and
//! make exactly the calls that its backends make: gloo flattens lists, NCCL turns uneven ones into several
//! calls made together, object calls send sizes first. The ranks' records become a
//! [`Plan`](lockstep_core::plan::Plan), which need not end: a rank that skips a call is what Lockstep is for.
//!
#![doc = concat!("```\n", include_str!("../../tests/recording_calls.rs"), "```")]
//!
//! Sources: `torch/distributed/{distributed_c10d,device_mesh,rendezvous}.py`,
//! `torch/csrc/distributed/c10d/{ProcessGroupGloo,ProcessGroupNCCL,Utils,*Store}.*` of PyTorch
//! 2.7, and what 2.7.1 was recorded to answer (`tests/data/pytorch/errors.json`), to which
//! `sim/tests/suite/c10d` holds every case.

mod args;
mod backend;
mod barriers;
mod checks;
mod clock;
mod coalesced;
mod collectives;
mod detail;
mod device_mesh;
mod dist;
mod error;
mod fingerprint;
mod group_table;
mod groups;
mod held_calls;
mod init;
mod issue;
mod issuing;
mod job;
mod lists;
mod mesh;
mod mesh_grid;
mod multigpu;
mod new_group;
mod object;
mod p2p;
mod pairs;
mod pickle;
mod process_group;
mod python;
mod recorded;
mod refusals;
mod remark;
mod rendezvous;
mod sizes;
mod state;
pub mod store;
mod store_waits;
mod stream;
mod streams;
pub mod support;
mod tensor;
mod tensors;
mod unknown;
mod waiting;
mod work;

pub use args::{
    Arg, FromRank, InGroup, InitProcessGroup, NewGroup, RecvFrom, Reduction, SendTo, TensorArg,
    TensorListArg, ToRank,
};
pub use backend::{Backend, BackendConfig, Device, Machine};
pub use checks::ABSENT;
pub use clock::Clock;
pub use coalesced::Coalescer;
pub use detail::{DetailRaise, detail_of};
pub use device_mesh::{DeviceMesh, Flattened, MeshDim};
pub use dist::{Called, Dist};
pub use error::{DistError, ErrorKind};
pub use job::Job;
pub use p2p::{P2POp, P2pKind, Source};
pub use pickle::{Object, PyObject};
pub use process_group::{Group, GroupHandle};
pub use rendezvous::{Environment, MeetingPlace, Rendezvous, rendezvous};
pub use store_waits::STORE_TENSOR;
pub use stream::{Stream, StreamEvent};
pub use tensor::{Grad, Layout, Shape, Tensor};
pub use work::Work;

#[cfg(test)]
mod tests;
