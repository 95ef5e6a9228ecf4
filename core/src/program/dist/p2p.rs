//! Point-to-point calls.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::super::arguments as take;
use super::super::process::{process, refused};
use super::super::undecided::Unknown;
use super::super::values::{P2POpValue, WorkValue};
use super::called;
use crate::c10d::{Arg, P2pKind, RecvFrom, SendTo, Source};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;

/// What a receive returns: the sender's rank, which the run decides where it is from any source.
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
        #[starlark(default = 0)] tag: i32,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let to = SendTo {
            dst: take::whole_or_none(dst, "dst")?,
            group_dst: take::whole_or_none(group_dst, "group_dst")?,
            group: take::group(group)?,
            tag: i64::from(tag),
        };
        process(eval)?.dist()?.send(take::tensor(tensor), to).map_err(refused)?;
        Ok(NoneType)
    }

    fn recv<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: i32,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let from = RecvFrom {
            src: take::whole_or_none(src, "src")?,
            group_src: take::whole_or_none(group_src, "group_src")?,
            group: take::group(group)?,
            tag: i64::from(tag),
        };
        let source = process(eval)?.dist()?.recv(take::tensor(tensor), from).map_err(refused)?;
        received(source, eval)
    }

    fn isend<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] dst: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: i32,
        #[starlark(default = NoneType)] group_dst: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let to = SendTo {
            dst: take::whole_or_none(dst, "dst")?,
            group_dst: take::whole_or_none(group_dst, "group_dst")?,
            group: take::group(group)?,
            tag: i64::from(tag),
        };
        called(process(eval)?.dist()?.isend(take::tensor(tensor), to), heap)
    }

    fn irecv<'v>(
        tensor: Value<'v>,
        #[starlark(default = NoneType)] src: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: i32,
        #[starlark(default = NoneType)] group_src: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let from = RecvFrom {
            src: take::whole_or_none(src, "src")?,
            group_src: take::whole_or_none(group_src, "group_src")?,
            group: take::group(group)?,
            tag: i64::from(tag),
        };
        called(process(eval)?.dist()?.irecv(take::tensor(tensor), from), heap)
    }

    fn P2POp<'v>(
        op: Value<'v>,
        tensor: Value<'v>,
        #[starlark(default = NoneType)] peer: Value<'v>,
        #[starlark(default = NoneType)] group: Value<'v>,
        #[starlark(default = 0)] tag: i32,
        #[starlark(default = NoneType)] group_peer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<P2POpValue> {
        let kind = match op.to_repr() {
            // `"isend"` is a text.
            name if op.unpack_str().is_some() => Arg::not(take::class_of(op), &name),
            name if name.contains("isend") => Arg::Is(P2pKind::Isend),
            name if name.contains("irecv") => Arg::Is(P2pKind::Irecv),
            name => Arg::not(take::class_of(op), &name),
        };
        let peer = take::whole_or_none(peer, "peer")?;
        let group_peer = take::whole_or_none(group_peer, "group_peer")?;
        let (tensor, group) = (take::tensor(tensor), take::group(group)?);
        let dist = process(eval)?.dist()?;
        let op = dist.p2p_op(kind, tensor, peer, group, i64::from(tag), group_peer);
        op.map(P2POpValue).map_err(refused)
    }

    fn batch_isend_irecv<'v>(
        p2p_op_list: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        // What is no list is refused as a list of something else is.
        let ops = take::entries(p2p_op_list).unwrap_or_else(|| vec![p2p_op_list]);
        let works = process(eval)?.dist()?.batch_isend_irecv(ops.into_iter().map(take::p2p_op));
        Ok(heap.alloc(AllocList(works.map_err(refused)?.into_iter().map(WorkValue))))
    }
}
