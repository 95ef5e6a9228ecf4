//! Point-to-point calls.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::given::{peer as peer_of, registered};
use crate::dist::arguments as take;
use crate::dist::values::{P2POpValue, WorkValue};
use crate::dist::work::called;
use crate::process::raised::refused;
use crate::process::state::process;
use crate::process::undecided::Unknown;
use crate::python::type_error::class_of;
use lockstep_torch::c10d::{Arg, P2pKind, RecvFrom, SendTo, Source};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;

/// The names that a process group's methods have for themselves and the other rank.
const SENDS: (&str, &str) = ("send", "dstRank");
const RECEIVES: (&str, &str) = ("recv", "srcRank");

/// The result of a receive: the sender's rank, which the run decides where it is from any source.
pub(super) fn received<'v>(
    source: Source,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    Ok(match source {
        Source::Rank(rank) => heap.alloc(rank),
        Source::NotInGroup => heap.alloc(-1),
        Source::WhoeverSends => heap.alloc(process(eval)?.unknown(Unknown::Sender)),
    })
}

#[starlark_module]
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    fn send<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: Value<'v>,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let ([dst, group_dst], tag) = peer_of(([dst, group_dst], tag), SENDS, tensor, eval)?;
        let to = SendTo { dst, group_dst, group: take::group(group)?, tag };
        process(eval)?.dist()?.send(take::tensor(tensor), to).map_err(refused)?;
        Ok(NoneType)
    }

    fn recv<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let ([src, group_src], tag) = peer_of(([src, group_src], tag), RECEIVES, tensor, eval)?;
        let from = RecvFrom { src, group_src, group: take::group(group)?, tag };
        let source = process(eval)?.dist()?.recv(take::tensor(tensor), from).map_err(refused)?;
        received(source, eval)
    }

    fn isend<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: Value<'v>,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let ([dst, group_dst], tag) = peer_of(([dst, group_dst], tag), SENDS, tensor, eval)?;
        let to = SendTo { dst, group_dst, group: registered(group)?, tag };
        called(process(eval)?.dist()?.isend(take::tensor(tensor), to), heap)
    }

    fn irecv<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: Value<'v>,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let ([src, group_src], tag) = peer_of(([src, group_src], tag), RECEIVES, tensor, eval)?;
        let from = RecvFrom { src, group_src, group: registered(group)?, tag };
        called(process(eval)?.dist()?.irecv(take::tensor(tensor), from), heap)
    }

    fn P2POp<'v>(
        op: Value<'v>,
        tensor: Value<'v>,
        #[starlark(default = NoneType)] peer: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: Value<'v>,
        #[starlark(default = NoneType)] group_peer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<P2POpValue> {
        let kind = match op.to_repr() {
            // `"isend"` is a text.
            name if op.unpack_str().is_some() => Arg::not(class_of(op), &name),
            name if name.contains("isend") => Arg::Is(P2pKind::Isend),
            name if name.contains("irecv") => Arg::Is(P2pKind::Irecv),
            name => Arg::not(class_of(op), &name),
        };
        let whose = if matches!(kind, Arg::Is(P2pKind::Irecv)) { RECEIVES } else { SENDS };
        let ([at, group_at], tag) = peer_of(([peer, group_peer], tag), whose, tensor, eval)?;
        let (tensor, group) = (take::tensor(tensor), registered(group)?);
        let dist = process(eval)?.dist()?;
        let op = dist.p2p_op(kind, tensor, at, group, tag, group_at).map_err(refused)?;
        let (shown, peer) = (dist.p2p_op_shown(&op), at.or(dist.peer_of(&op)));
        Ok(P2POpValue((op, shown, peer.unwrap_or(-1))))
    }

    fn batch_isend_irecv<'v>(
        p2p_op_list: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        // A value that is not a list is refused as a list of something else is.
        let ops = take::entries(p2p_op_list).unwrap_or_else(|| vec![p2p_op_list]);
        let works = process(eval)?.dist()?.batch_isend_irecv(ops.into_iter().map(take::p2p_op));
        Ok(heap.alloc(AllocList(works.map_err(refused)?.into_iter().map(WorkValue))))
    }
}
