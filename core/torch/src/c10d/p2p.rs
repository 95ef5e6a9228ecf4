//! Point-to-point calls.

use super::args::{Arg, RecvFrom, SendTo, TensorArg};
use super::backend::Device;
use super::checks::single;
use super::dist::{Called, Dist};
use super::error::{DistError, index_error, not_implemented, runtime_error, value_error};
use super::issue::{Issue, Use};
use super::pairs::Pair;
use super::process_group::{Group, GroupHandle};
use super::recorded::{GivenTag, Recorded};
use super::refusals::Asked;
use super::tensor::{Layout, Tensor};
use super::work::Work;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::Call;
use lockstep_core::rank::GroupRank;

/// The call that a [`P2POp`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum P2pKind {
    /// `dist.isend`.
    Isend,
    /// `dist.irecv`.
    Irecv,
}

/// One call of a `batch_isend_irecv`: made by [`Dist::p2p_op`].
#[derive(Clone, Debug, PartialEq)]
pub struct P2POp {
    kind: P2pKind,
    tensor: Tensor,
    group: Group,
    group_peer: i64,
    tag: i64,
}

impl P2POp {
    /// The tensor that is sent, or received into.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The other rank, in the group.
    pub fn group_peer(&self) -> i64 {
        self.group_peer
    }

    /// Its tag.
    pub fn tag(&self) -> i64 {
        self.tag
    }
}

/// The sender of the tensor that a `recv` got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// That global rank.
    Rank(i64),
    /// None: the rank is not in the group, and `recv` returns -1.
    NotInGroup,
    /// Whoever sends first, which the run decides.
    WhoeverSends,
}

impl Dist<'_> {
    /// `dist.isend(tensor, dst)`.
    ///
    /// # Errors
    /// PyTorch's refusals, as of every call here.
    pub fn isend(&mut self, tensor: impl Into<TensorArg>, to: SendTo) -> Called {
        let SendTo { dst, group_dst, group, tag } = to;
        let group = self.or_default(group)?;
        let peer = self.group_rank_of(group, dst, group_dst)?;
        let tensor = single(tensor, "tensor")?;
        let Some(pg) = self.member(Some(group), "isend")? else { return Ok(None) };
        self.send_to(pg, &tensor, peer, tag, true)
    }

    /// `dist.irecv(tensor, src)`; from any rank if neither `src` nor `group_src` is given, which
    /// NCCL cannot.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn irecv(&mut self, tensor: impl Into<TensorArg>, from: RecvFrom) -> Called {
        let RecvFrom { src, group_src, group, tag } = from;
        let tensor = single(tensor, "tensor")?;
        let Some(pg) = self.member(group, "irecv")? else { return Ok(None) };
        let peer = self.source(pg, src, group_src)?;
        self.recv_from(pg, &tensor, peer, tag, true)
    }

    /// `dist.send(tensor, dst)`.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn send(&mut self, tensor: impl Into<TensorArg>, to: SendTo) -> Result<(), DistError> {
        let SendTo { dst, group_dst, group, tag } = to;
        let group = self.or_default(group)?;
        let peer = self.logged_rank_of(group, dst, group_dst)?;
        self.not_self(group, peer, "destination")?;
        let tensor = single(tensor, "tensor")?;
        let Some(pg) = self.member(Some(group), "isend")? else { return Ok(()) };
        self.send_to(pg, &tensor, peer, tag, false).map(|_| ())
    }

    /// `dist.recv(tensor, src)`; returns the sender.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn recv(
        &mut self,
        tensor: impl Into<TensorArg>,
        from: RecvFrom,
    ) -> Result<Source, DistError> {
        let RecvFrom { src, group_src, group, tag } = from;
        let tensor = single(tensor, "tensor")?;
        let Some(pg) = self.member(group, "irecv")? else { return Ok(Source::NotInGroup) };
        let peer = self.source(pg, src, group_src)?;
        self.recv_from(pg, &tensor, peer, tag, false)?;
        match (src, peer) {
            (Some(src), _) => Ok(Source::Rank(src)),
            (None, Some(peer)) => Ok(Source::Rank(self.get_global_rank(Group::Member(pg), peer)?)),
            (None, None) => Ok(self.whoever_sends(pg)),
        }
    }

    /// The source of a group's receive from any source: in a group of two, the other rank.
    pub(super) fn whoever_sends(&self, pg: GroupHandle) -> Source {
        let pg = self.pg(pg);
        match pg.ranks.as_ref() {
            [a, b] => Source::Rank(i64::from(if pg.me.0 == 0 { b.0 } else { a.0 })),
            _ => Source::WhoeverSends,
        }
    }

    /// `dist.P2POp(op, tensor, peer, group, tag, group_peer)`.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn p2p_op(
        &mut self,
        op: impl Into<Arg<P2pKind>>,
        tensor: impl Into<TensorArg>,
        peer: Option<i64>,
        group: Option<Group>,
        tag: i64,
        group_peer: Option<i64>,
    ) -> Result<P2POp, DistError> {
        let Arg::Is(kind) = op.into() else {
            return Err(value_error(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or \
                 ``torch.distributed.irecv``.",
            ));
        };
        let tensor = single(tensor, "tensor")?;
        let group = self.or_default(group)?;
        let group_peer = self.group_rank_of(group, peer, group_peer)?;
        Ok(P2POp { kind, tensor, group, group_peer, tag })
    }

    /// `repr()` of a `P2POp`.
    pub fn p2p_op_shown(&self, op: &P2POp) -> String {
        let (me, peer) = (self.get_rank(Some(op.group)).unwrap_or(-1), op.group_peer);
        let (name, src, dst) = match op.kind {
            P2pKind::Isend => ("isend", me, peer),
            P2pKind::Irecv => ("irecv", peer, me),
        };
        let group = self.group_name(Some(op.group)).unwrap_or_default();
        let shape: Vec<String> = op.tensor.shape.iter().map(u64::to_string).collect();
        let (shape, dtype) = (shape.join(", "), op.tensor.dtype);
        format!(
            "P2POp({name} pg={group}, group_src={src}, group_dst={dst},  torch.Size([{shape}]), \
             torch.{dtype})"
        )
    }

    /// The other rank of a `P2POp`, in the world.
    pub fn peer_of(&self, op: &P2POp) -> Option<i64> {
        self.get_global_rank(op.group, op.group_peer).ok()
    }

    /// `dist.batch_isend_irecv(p2p_op_list)`: NCCL makes the calls together and returns one work,
    /// gloo makes one after the other and returns one each.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn batch_isend_irecv(
        &mut self,
        p2p_op_list: impl IntoIterator<Item = impl Into<Arg<P2POp>>>,
    ) -> Result<Vec<Work>, DistError> {
        let ops: Option<Vec<P2POp>> = p2p_op_list
            .into_iter()
            .map(|op| match op.into() {
                Arg::Is(op) => Some(op),
                Arg::Not { .. } => None,
            })
            .collect();
        let ops = ops.ok_or_else(|| {
            value_error(
                "Invalid ``p2p_op_list``. Each op is expected to to be of type \
                 ``torch.distributed.P2POp``.",
            )
        })?;
        let Some(first) = ops.first() else {
            return Err(index_error("list index out of range")
                .with_help("The list is empty; PyTorch looks at its first entry."));
        };
        if ops.iter().any(|op| op.group != first.group) {
            return Err(value_error("All ops need to use the same group."));
        }
        let Some(pg) = self.member(Some(first.group), "batch_isend_irecv")? else {
            return Ok(Vec::new());
        };
        let (asked, _) = self.ask(pg, first.tensor.device, "startCoalescing")?;
        let together = asked.backend == BackendName::Nccl;
        let batch = || Issue { batched: true, ..Issue::new("batch_isend_irecv", GroupId::WORLD) };
        let outer = match together {
            true => self.state.batch.replace(batch()),
            false => None,
        };
        let mut works = Vec::new();
        let made = ops.iter().try_for_each(|op| {
            let work = match op.kind {
                P2pKind::Isend => self.send_to(pg, &op.tensor, op.group_peer, op.tag, true)?,
                P2pKind::Irecv => {
                    self.recv_from(pg, &op.tensor, Some(op.group_peer), op.tag, true)?
                }
            };
            works.extend(work);
            Ok(())
        });
        if together {
            let made_together = std::mem::replace(&mut self.state.batch, outer);
            made?;
            works.extend(self.issue(made_together.unwrap_or_else(batch), true)?);
        } else {
            made?;
        }
        Ok(works)
    }

    /// `_check_not_self_rank`.
    pub(super) fn not_self(&self, group: Group, peer: i64, which: &str) -> Result<(), DistError> {
        let Group::Member(handle) = group else {
            return Err(value_error("Invalid process group specified")
                .with_help("This rank is not in the group: let only its members send in it."));
        };
        if i64::from(self.pg(handle).me.0) == peer {
            return Err(value_error(format!(
                "Invalid {which} rank: {which} rank should not be the same as the rank of the \
                 current process."
            )));
        }
        Ok(())
    }

    /// The group rank to receive from; `None` for any.
    fn source(
        &self,
        pg: GroupHandle,
        src: Option<i64>,
        group_src: Option<i64>,
    ) -> Result<Option<i64>, DistError> {
        if src.is_none() && group_src.is_none() {
            return Ok(None);
        }
        self.group_rank_of(Group::Member(pg), src, group_src).map(Some)
    }

    fn send_to(
        &mut self,
        pg: GroupHandle,
        tensor: &Tensor,
        peer: i64,
        tag: i64,
        async_op: bool,
    ) -> Called {
        let (asked, group) = self.ask(pg, tensor.device, "send")?;
        let (tag, given) = (sendable(asked, tensor, tag)?, tag);
        let peer = GroupRank(asked.peer(peer, self.pg(pg).me.0)?);
        let mut issue = Issue::new(if async_op { "isend" } else { "send" }, group);
        if asked.backend == BackendName::Nccl {
            issue.batched = !self.pair_with(pg, group, peer);
            self.note_tag((pg, group, peer), true, given);
        }
        let tensor = self.whole(&mut issue, tensor, Use::Read, "tensor");
        issue.calls.push(Call::Send { group, peer, tensor, tag });
        self.issue(issue, async_op)
    }

    fn recv_from(
        &mut self,
        pg: GroupHandle,
        tensor: &Tensor,
        peer: Option<i64>,
        tag: i64,
        async_op: bool,
    ) -> Called {
        let (asked, group) = self.ask(pg, tensor.device, "recv")?;
        let (tag, given) = (sendable(asked, tensor, tag)?, tag);
        let peer = match peer {
            Some(peer) => Some(GroupRank(asked.peer(peer, self.pg(pg).me.0)?)),
            None if asked.backend == BackendName::Nccl => {
                return Err(not_implemented("ProcessGroupNCCL does not support recvAnysource"));
            }
            None => None,
        };
        let mut issue = Issue::new(if async_op { "irecv" } else { "recv" }, group);
        if let (Some(peer), BackendName::Nccl) = (peer, asked.backend) {
            issue.batched = !self.pair_with(pg, group, peer);
            self.note_tag((pg, group, peer), false, given);
        }
        let tensor = self.whole(&mut issue, tensor, Use::Write, "tensor");
        issue.calls.push(Call::Recv { group, peer, tensor, tag });
        self.issue(issue, async_op)
    }
}

impl Dist<'_> {
    /// True if a call with that rank uses the communicator of the pair, which NCCL makes at their first call
    /// that is not batched. A group whose processes are bound to devices uses its own communicator for all
    /// calls.
    fn pair_with(&mut self, pg: GroupHandle, group: GroupId, peer: GroupRank) -> bool {
        let own = self.pg(pg);
        if self.state.batch.is_some() || own.device_id.is_some() {
            return false;
        }
        let Some(peer) = own.ranks.get(peer.index()).copied() else { return true };
        let pair = Pair::new(group, self.rank, peer);
        if self.state.pairs.insert(pair) {
            let at = self.state.at;
            self.write(Recorded::Pair { pair, at });
        }
        true
    }

    /// Notes the tag that a call was given, which NCCL ignores.
    fn note_tag(&mut self, with: (GroupHandle, GroupId, GroupRank), sends: bool, tag: i64) {
        let (pg, group, peer) = with;
        let Some(peer) = self.pg(pg).ranks.get(peer.index()).copied() else { return };
        let (from, to) = if sends { (self.rank, peer) } else { (peer, self.rank) };
        let at = self.state.at;
        self.state.recorded.push(Recorded::Tag(GivenTag {
            lane: (group, from, to),
            sends,
            tag,
            at,
        }));
    }
}

/// `checkSingleTensor` and `checkTag`; NCCL has no tags.
fn sendable(asked: Asked, tensor: &Tensor, tag: i64) -> Result<u32, DistError> {
    if asked.backend == BackendName::Nccl {
        let dense = tensor.layout == Layout::Strided;
        return match dense {
            true => asked.nccl_type(tensor.dtype).map(|()| 0),
            false => Err(value_error("Tensors must be CUDA and dense")),
        };
    }
    // The table of the documents has no GPU here; the transport hands the pointer to the kernel.
    if asked.backend == BackendName::Gloo && tensor.device != Device::Cpu {
        let call = if asked.call == "recv" { "readv" } else { "writev" };
        return Err(runtime_error(format!("gloo/transport/tcp/pair.cc: {call}: Bad address"))
            .with_help(
                "gloo sends and receives CPU tensors only: pass tensor.cpu(), or use nccl.",
            ));
    }
    if !tensor.is_contiguous() {
        return Err(runtime_error("input tensor has to be contiguous")
            .with_help("Send tensor.contiguous()."));
    }
    if tensor.layout != Layout::Strided {
        return Err(runtime_error("input tensor has to be dense"));
    }
    u32::try_from(tag).map_err(|_| runtime_error("Tag must be nonnegative"))
}
