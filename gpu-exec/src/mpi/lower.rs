//! From a call of a plan to a call of MPI's: which, of what type, from where and to where. A pure
//! function; no MPI has to be there.
//!
//! On a group whose backend is `mpi`, what PyTorch refuses is refused, in its words
//! (`ProcessGroupMPI.cpp`: `mpiOp`, `mpiDatatype`, `reduce_scatter`, `*_coalesced`). A group of
//! another name (host, gloo, nccl) has all that MPI has: what only moves travels in any type,
//! integers have the bitwise operations, AVG and PREMUL_SUM are a sum of what was scaled as `core`
//! scales it, and complex numbers are two floats. MPI has no 16-bit and 8-bit floats.

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Action, Call, Plan, Signature, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::{self, ReduceOp, Refused};

/// The largest tag that every MPI has (`MPI_TAG_UB` of MPICH 4 is the smallest of those in use).
const MOST_TAG: u32 = (1 << 28) - 1;

/// MPI's element types that stand for PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float32,
    Float64,
}

/// MPI's predefined operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// MPI's calls, with counts in elements and roots and peers as ranks of the communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum How {
    Barrier,
    Broadcast {
        root: i32,
        count: i32,
    },
    AllReduce {
        op: Operation,
        count: i32,
    },
    Reduce {
        op: Operation,
        root: i32,
        count: i32,
    },
    ReduceScatter {
        op: Operation,
        count: i32,
    },
    AllGather {
        count: i32,
    },
    Gather {
        root: i32,
        count: i32,
    },
    Scatter {
        root: i32,
        count: i32,
    },
    AllToAll {
        count: i32,
    },
    AllToAllV {
        to: Vec<i32>,
        from: Vec<i32>,
    },
    Send {
        peer: i32,
        tag: i32,
        count: i32,
    },
    /// From any source without a peer.
    Receive {
        peer: Option<i32>,
        tag: i32,
        count: i32,
    },
}

/// The beginning of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) tensor: TensorId,
    pub(super) bytes: usize,
}

/// A call as MPI makes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lowered {
    pub(super) group: GroupId,
    pub(super) how: How,
    pub(super) element: Element,
    /// The tensor that the rank passes in; of a broadcast only the root's.
    pub(super) send: Option<Part>,
    /// The place of the result, on ranks that are promised one.
    pub(super) receive: Option<Part>,
    /// The factor, and its type, that the input is multiplied by first.
    pub(super) scale: Option<(Dtype, f64)>,
    /// The result is divided at last.
    pub(super) divide: Option<(Dtype, u32)>,
}

/// A call that MPI, PyTorch's use of it, or this executor cannot do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsupported {
    /// PyTorch's tables lack it; the text is PyTorch's.
    #[error(
        "operation {op}: {refused}: on groups of the backend mpi PyTorch has SUM, PRODUCT, MIN and \
         MAX of uint8, int8, int16, int32, int64, float32 and float64, and moves no other types"
    )]
    Table {
        /// The operation's index.
        op: u32,
        /// In PyTorch's words.
        refused: Refused,
    },
    /// PyTorch's MPI group has no such call; the text is PyTorch's.
    #[error(
        "operation {op}: {text}; on a group of another backend's name (host) this executor has it"
    )]
    Call {
        /// The operation's index.
        op: u32,
        /// In PyTorch's words.
        text: &'static str,
    },
    /// MPI has no such type.
    #[error(
        "operation {op}: MPI reduces no {dtype} with {reduction}; reduce float32, or run the plan \
         on the host backend"
    )]
    Reduction {
        /// The operation's index.
        op: u32,
        /// The elements.
        dtype: Dtype,
        /// The reduction that was asked for.
        reduction: ReduceOp,
    },
    /// A gloo call.
    #[error("operation {op}: monitored_barrier is only implemented for GLOO backend.")]
    MonitoredBarrier {
        /// The operation's index.
        op: u32,
    },
    /// MPI counts in C's int.
    #[error(
        "operation {op}: a call on {count} elements; MPI counts elements in a C int, so that a call \
         has at most {}",
        i32::MAX
    )]
    Count {
        /// The operation's index.
        op: u32,
        /// The number of elements.
        count: u64,
    },
    /// A tag that MPI need not have.
    #[error("operation {op}: tag {tag} is over {MOST_TAG}, the largest that MPICH has")]
    Tag {
        /// The operation's index.
        op: u32,
        /// The tag.
        tag: u32,
    },
    /// A plan that was not checked.
    #[error("operation {op}: {why}")]
    Broken {
        /// The operation's index.
        op: u32,
        /// The problem, in words.
        why: &'static str,
    },
}

/// True if every call of every rank is one that MPI has.
///
/// # Errors
/// The first that is not.
pub(super) fn check(plan: &Plan) -> Result<(), Unsupported> {
    for (program, rank) in first_of_each_program(plan) {
        for (op, operation) in (0..).zip(&program.ops) {
            refuse_coalesced(plan, op, &operation.action)?;
            for call in operation.action.calls() {
                lower(plan, rank, op, call)?;
            }
        }
    }
    Ok(())
}

/// Programs with one of the ranks that execute them: what is refused does not depend on which.
fn first_of_each_program(
    plan: &Plan,
) -> impl Iterator<Item = (&lockstep_core::plan::Program, GlobalRank)> {
    (0..).zip(&plan.programs).filter_map(|(index, program)| {
        let rank = plan.program_of.iter().position(|of| *of == index)?;
        Some((program, GlobalRank(rank as u32)))
    })
}

fn refuse_coalesced(plan: &Plan, op: u32, action: &Action) -> Result<(), Unsupported> {
    let Action::Coalesced { calls, .. } = action else { return Ok(()) };
    let of_mpi = |call: &&Call| {
        plan.group(call.group()).is_some_and(|group| group.backend() == BackendName::Mpi)
    };
    let text = calls.iter().filter(of_mpi).find_map(|call| match call.collective()? {
        Collective::AllReduce { .. } => {
            Some("allreduce_coalesced is currently not supported with MPI")
        }
        Collective::AllGather => Some("ProcessGroupMPI does not support allgather_coalesced"),
        _ => None,
    });
    text.map_or(Ok(()), |text| Err(Unsupported::Call { op, text }))
}

/// The `op`-th operation's call as the rank makes it.
///
/// # Errors
/// When there is no such call of MPI's, or PyTorch refuses it.
pub(super) fn lower(
    plan: &Plan,
    rank: GlobalRank,
    op: u32,
    call: &Call,
) -> Result<Lowered, Unsupported> {
    let broken = |why| Unsupported::Broken { op, why };
    let group = plan.group(call.group()).ok_or(broken("a group that the plan has not"))?;
    let me = group.group_rank(rank).ok_or(broken("a group that the rank is no member of"))?;
    let at = Place { plan, group, op, me: me.0 };
    match call {
        Call::Collective { .. } => at.collective(rank, call),
        Call::Send { peer, tensor, tag, .. } => {
            at.transfer(call.group(), *tensor, *tag, Some(peer.0), true)
        }
        Call::Recv { peer, tensor, tag, .. } => {
            at.transfer(call.group(), *tensor, *tag, peer.map(|peer| peer.0), false)
        }
    }
}

/// The context of a call.
struct Place<'a> {
    plan: &'a Plan,
    group: &'a ProcessGroup,
    op: u32,
    me: u32,
}

impl Place<'_> {
    fn count(&self, elements: u64) -> Result<i32, Unsupported> {
        let count = i32::try_from(elements);
        count.map_err(|_| Unsupported::Count { op: self.op, count: elements })
    }

    fn is_mpi(&self) -> bool {
        self.group.backend() == BackendName::Mpi
    }

    /// The type in which elements travel, and the number of them that make one.
    fn moved(&self, dtype: Dtype) -> Result<(Element, u64), Unsupported> {
        // A type that PyTorch's table has can be added, and only such.
        if self.is_mpi() {
            let known = reduce::allowed(BackendName::Mpi, ReduceOp::Sum, dtype);
            known.map_err(|refused| Unsupported::Table { op: self.op, refused })?;
        }
        Ok(match dtype.size_bytes() {
            2 => (Element::Uint16, 1),
            4 => (Element::Uint32, 1),
            8 => (Element::Uint64, 1),
            16 => (Element::Uint64, 2),
            bytes => (Element::Uint8, bytes),
        })
    }

    /// The type in which elements are reduced, the number of them that make one, and the operation.
    fn reduced(
        &self,
        dtype: Dtype,
        reduction: ReduceOp,
    ) -> Result<(Element, u64, Operation), Unsupported> {
        let op = self.op;
        if self.is_mpi() {
            let known = reduce::allowed(BackendName::Mpi, reduction, dtype);
            known.map_err(|refused| Unsupported::Table { op, refused })?;
        }
        let missing = Unsupported::Reduction { op, dtype, reduction };
        if !reduction.supports(dtype) {
            return Err(missing);
        }
        let element = match dtype.as_real() {
            Dtype::Int8 => Element::Int8,
            Dtype::Int16 => Element::Int16,
            Dtype::Int32 => Element::Int32,
            Dtype::Int64 => Element::Int64,
            Dtype::Uint8 | Dtype::Bool => Element::Uint8,
            Dtype::Float32 => Element::Float32,
            Dtype::Float64 => Element::Float64,
            _ => return Err(missing),
        };
        // Booleans are logic, as `core` reduces them.
        let operation = match (dtype, reduction) {
            (Dtype::Bool, ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor) => Operation::Or,
            (Dtype::Bool, ReduceOp::Product | ReduceOp::Min | ReduceOp::Band) => Operation::And,
            (_, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_)) => Operation::Sum,
            (_, ReduceOp::Product) => Operation::Product,
            (_, ReduceOp::Min) => Operation::Min,
            (_, ReduceOp::Max) => Operation::Max,
            (_, ReduceOp::Band) => Operation::And,
            (_, ReduceOp::Bor) => Operation::Or,
            (_, ReduceOp::Bxor) => Operation::Xor,
        };
        Ok((element, if dtype.is_complex() { 2 } else { 1 }, operation))
    }

    /// The beginning of a tensor of the call.
    fn part(&self, id: Option<TensorId>, bytes: u64) -> Result<Part, Unsupported> {
        let broken = |why| Unsupported::Broken { op: self.op, why };
        let id = id.ok_or(broken("a call without its tensor"))?;
        let tensor = self.plan.tensor(id).ok_or(broken("a tensor that the plan has not"))?;
        match usize::try_from(bytes) {
            Ok(fits) if bytes <= tensor.bytes() => Ok(Part { tensor: id, bytes: fits }),
            _ => Err(broken("a call on more elements than its tensor has")),
        }
    }

    fn transfer(
        &self,
        group: GroupId,
        tensor: TensorId,
        tag: u32,
        peer: Option<u32>,
        sends: bool,
    ) -> Result<Lowered, Unsupported> {
        if tag > MOST_TAG {
            return Err(Unsupported::Tag { op: self.op, tag });
        }
        let whole = self.plan.tensor(tensor);
        let (dtype, numel) = whole.map_or((Dtype::Unknown, 0), |whole| (whole.dtype, whole.numel));
        let (element, each) = self.moved(dtype)?;
        let count = self.count(numel.saturating_mul(each))?;
        let part = self.part(Some(tensor), numel.saturating_mul(dtype.size_bytes()))?;
        let (tag, peer) = (tag as i32, peer.map(|peer| peer as i32));
        let (how, send, receive) = match (sends, peer) {
            (true, Some(peer)) => (How::Send { peer, tag, count }, Some(part), None),
            _ => (How::Receive { peer, tag, count }, None, Some(part)),
        };
        Ok(Lowered { group, how, element, send, receive, scale: None, divide: None })
    }

    /// One side of an all_to_all with splits: the counts by peer, and the tensor, which a rank whose parts
    /// are all empty may leave out.
    fn split_part(
        &self,
        tensor: Option<TensorId>,
        parts: &[u64],
        dtype: Dtype,
        each: u64,
    ) -> Result<(Vec<i32>, Option<Part>), Unsupported> {
        let total = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        self.count(total.saturating_mul(each))?;
        let counts = parts.iter().map(|part| self.count(part.saturating_mul(each)));
        let counts = counts.collect::<Result<_, _>>()?;
        let part = match total {
            0 => None,
            total => Some(self.part(tensor, total.saturating_mul(dtype.size_bytes()))?),
        };
        Ok((counts, part))
    }

    fn collective(&self, rank: GlobalRank, call: &Call) -> Result<Lowered, Unsupported> {
        let (op, me, size) = (self.op, self.me, self.group.ranks().len() as u64);
        let broken = |why| Unsupported::Broken { op, why };
        let Call::Collective { group, collective, input, output, splits, .. } = call else {
            return Err(broken("no collective"));
        };
        let signature = self.plan.signature(rank, call);
        let Signature { dtype, count, .. } =
            signature.ok_or(broken("a collective that its rank cannot call"))?;
        let bytes = |elements: u64| elements.saturating_mul(dtype.size_bytes());
        let reduction = collective.reduce_op();
        let (element, each, operation) = match (collective, reduction) {
            (Collective::Barrier, _) => (Element::Uint8, 1, Operation::Sum),
            (Collective::MonitoredBarrier { .. }, _) => {
                return Err(Unsupported::MonitoredBarrier { op });
            }
            (_, Some(reduction)) => self.reduced(dtype, reduction)?,
            (_, None) => {
                let (element, each) = self.moved(dtype)?;
                (element, each, Operation::Sum)
            }
        };
        let elements = self.count(count.saturating_mul(each))?;
        let all = bytes(count).saturating_mul(size);
        // The buffers of all ranks in one are counted too.
        self.count(elements as u64 * if collective.in_place() { 1 } else { size })?;
        let part = |tensor: &Option<TensorId>, bytes| self.part(*tensor, bytes);
        let root = |root: lockstep_core::rank::GroupRank| (root.0 as i32, root.0 == me);
        let (how, send, receive) = match *collective {
            Collective::Barrier | Collective::MonitoredBarrier { .. } => (How::Barrier, None, None),
            Collective::AllReduce { .. } => {
                let tensor = part(output, bytes(count))?;
                let how = How::AllReduce { op: operation, count: elements };
                (how, Some(tensor), Some(tensor))
            }
            Collective::Broadcast { root: of } => {
                let (root, is_me) = root(of);
                let tensor = part(output, bytes(count))?;
                let how = How::Broadcast { root, count: elements };
                (how, is_me.then_some(tensor), (!is_me).then_some(tensor))
            }
            Collective::Reduce { root: of, .. } => {
                let (root, is_me) = root(of);
                let tensor = part(output, bytes(count))?;
                let how = How::Reduce { op: operation, root, count: elements };
                (how, Some(tensor), is_me.then_some(tensor))
            }
            Collective::ReduceScatter { .. } if self.is_mpi() => {
                let text = "ProcessGroupMPI does not support reduce_scatter";
                return Err(Unsupported::Call { op, text });
            }
            Collective::ReduceScatter { .. } => {
                let how = How::ReduceScatter { op: operation, count: elements };
                (how, Some(part(input, all)?), Some(part(output, bytes(count))?))
            }
            Collective::AllGather => {
                let how = How::AllGather { count: elements };
                (how, Some(part(input, bytes(count))?), Some(part(output, all)?))
            }
            Collective::Gather { root: of } => {
                let (root, is_me) = root(of);
                let whole = if is_me { Some(part(output, all)?) } else { None };
                let how = How::Gather { root, count: elements };
                (how, Some(part(input, bytes(count))?), whole)
            }
            Collective::Scatter { root: of } => {
                let (root, is_me) = root(of);
                let whole = if is_me { Some(part(input, all)?) } else { None };
                let how = How::Scatter { root, count: elements };
                (how, whole, Some(part(output, bytes(count))?))
            }
            Collective::AllToAll => match splits {
                None => {
                    let how = How::AllToAll { count: elements };
                    (how, Some(part(input, all)?), Some(part(output, all)?))
                }
                Some(splits) => {
                    let (to, send) = self.split_part(*input, &splits.input, dtype, each)?;
                    let (from, receive) = self.split_part(*output, &splits.output, dtype, each)?;
                    (How::AllToAllV { to, from }, send, receive)
                }
            },
        };
        let size = size as u32;
        let scale = reduction.and_then(|op| reduce::premultiplier(op, dtype, size));
        let divide = reduction.and_then(|op| reduce::divisor(op, dtype, size));
        Ok(Lowered {
            group: *group,
            how,
            element,
            send,
            receive,
            scale: scale.map(|factor| (dtype, factor)),
            divide: divide.map(|by| (dtype, by)),
        })
    }
}

#[cfg(test)]
mod tests;
