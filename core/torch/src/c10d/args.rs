//! Arguments as Python passes them, with torch.distributed's defaults.
//!
//! PyTorch checks types when it is called. [`Arg`] carries what was passed instead of the type that
//! was asked for, so that a front end without static types gets PyTorch's refusals from here.

use super::process_group::Group;
use super::tensor::Tensor;
use lockstep_core::reduce::ReduceOp;

/// An argument of the expected type, or one of another Python type.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg<T> {
    /// The value that was asked for.
    Is(T),
    /// Something else.
    Not {
        /// The name of its type: `list`.
        class: String,
        /// `repr()` of it.
        repr: String,
    },
}

impl<T> Arg<T> {
    /// Something of another type, by the type's name and its `repr()`.
    pub fn not(class: &str, repr: &str) -> Arg<T> {
        Arg::Not { class: class.to_owned(), repr: repr.to_owned() }
    }
}

impl<T> From<T> for Arg<T> {
    fn from(value: T) -> Arg<T> {
        Arg::Is(value)
    }
}

/// An argument for which a tensor is asked.
pub type TensorArg = Arg<Tensor>;
/// An argument for which a list of tensors is asked.
pub type TensorListArg = Arg<Vec<TensorArg>>;

impl From<&Tensor> for TensorArg {
    fn from(tensor: &Tensor) -> TensorArg {
        Arg::Is(tensor.clone())
    }
}

impl From<&[Tensor]> for TensorListArg {
    fn from(tensors: &[Tensor]) -> TensorListArg {
        Arg::Is(tensors.iter().map(TensorArg::from).collect())
    }
}

impl From<&Vec<Tensor>> for TensorListArg {
    fn from(tensors: &Vec<Tensor>) -> TensorListArg {
        TensorListArg::from(tensors.as_slice())
    }
}

impl From<Vec<Tensor>> for TensorListArg {
    fn from(tensors: Vec<Tensor>) -> TensorListArg {
        TensorListArg::from(tensors.as_slice())
    }
}

/// `group=None, async_op=False`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InGroup {
    /// The group; the default group if `None`.
    pub group: Option<Group>,
    /// True to return a work instead of waiting.
    pub async_op: bool,
}

/// `op=ReduceOp.SUM, group=None, async_op=False`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// The operation that combines elements.
    pub op: Arg<ReduceOp>,
    /// The group; the default group if `None`.
    pub group: Option<Group>,
    /// True to return a work instead of waiting.
    pub async_op: bool,
}

impl Default for Reduction {
    fn default() -> Reduction {
        Reduction { op: Arg::Is(ReduceOp::Sum), group: None, async_op: false }
    }
}

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Reduction {
        Reduction { op: Arg::Is(op), ..Reduction::default() }
    }
}

/// `src=None, group=None, async_op=False, group_src=None` of `broadcast` and `scatter`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FromRank {
    /// The source's global rank.
    pub src: Option<i64>,
    /// The source's group rank, instead.
    pub group_src: Option<i64>,
    /// The group; the default group if `None`.
    pub group: Option<Group>,
    /// True to return a work instead of waiting.
    pub async_op: bool,
}

impl FromRank {
    /// `src=…` alone.
    pub fn src(src: i64) -> FromRank {
        FromRank { src: Some(src), ..FromRank::default() }
    }
}

/// `dst=None, group=None, async_op=False, group_dst=None` of `gather`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToRank {
    /// The destination's global rank.
    pub dst: Option<i64>,
    /// The destination's group rank, instead.
    pub group_dst: Option<i64>,
    /// The group; the default group if `None`.
    pub group: Option<Group>,
    /// True to return a work instead of waiting.
    pub async_op: bool,
}

impl ToRank {
    /// `dst=…` alone.
    pub fn dst(dst: i64) -> ToRank {
        ToRank { dst: Some(dst), ..ToRank::default() }
    }
}

/// `dst=None, group=None, tag=0, group_dst=None` of `send` and `isend`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendTo {
    /// The destination's global rank.
    pub dst: Option<i64>,
    /// The destination's group rank, instead.
    pub group_dst: Option<i64>,
    /// The group; the default group if `None`.
    pub group: Option<Group>,
    /// Matches a receive with the same tag; NCCL ignores it.
    pub tag: i64,
}

impl SendTo {
    /// `dst=…` alone.
    pub fn dst(dst: i64) -> SendTo {
        SendTo { dst: Some(dst), ..SendTo::default() }
    }
}

/// `src=None, group=None, tag=0, group_src=None` of `recv` and `irecv`. Neither source: any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecvFrom {
    /// The source's global rank.
    pub src: Option<i64>,
    /// The source's group rank, instead.
    pub group_src: Option<i64>,
    /// The group; the default group if `None`.
    pub group: Option<Group>,
    /// Matches a send with the same tag; NCCL ignores it.
    pub tag: i64,
}

impl RecvFrom {
    /// `src=…` alone.
    pub fn src(src: i64) -> RecvFrom {
        RecvFrom { src: Some(src), ..RecvFrom::default() }
    }
}

/// The arguments of `init_process_group`.
#[derive(Clone, Debug, PartialEq)]
pub struct InitProcessGroup {
    /// `gloo`, `nccl`, `cpu:gloo,cuda:nccl`, …; chosen by the machine if `None`.
    pub backend: Option<String>,
    /// `env://`, `tcp://HOST:PORT`, `file:///PATH`; `env://` if `None` and no store.
    pub init_method: Option<String>,
    /// In milliseconds; the backend's default if `None`.
    pub timeout_ms: Option<Arg<u64>>,
    /// The number of ranks; -1 if the URL or the environment says it.
    pub world_size: i64,
    /// This process's rank; -1 if the URL or the environment says it.
    pub rank: i64,
    /// True if a store is passed for the ranks to meet at.
    pub store: bool,
    /// The CUDA device that the process is bound to: `torch.device("cuda", 0)`.
    pub device_id: Option<u32>,
}

impl Default for InitProcessGroup {
    fn default() -> InitProcessGroup {
        InitProcessGroup {
            backend: None,
            init_method: None,
            timeout_ms: None,
            world_size: -1,
            rank: -1,
            store: false,
            device_id: None,
        }
    }
}

impl From<&str> for InitProcessGroup {
    fn from(backend: &str) -> InitProcessGroup {
        InitProcessGroup { backend: Some(backend.to_owned()), ..InitProcessGroup::default() }
    }
}

/// The arguments of `new_group`, `new_subgroups` and `new_subgroups_by_enumeration` that are not
/// the ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewGroup {
    /// In milliseconds; the backend's default if `None`.
    pub timeout_ms: Option<Arg<u64>>,
    /// The default group's if `None`.
    pub backend: Option<String>,
    /// True if only the members call `new_group`.
    pub use_local_synchronization: bool,
    /// A description.
    pub group_desc: Option<String>,
}
