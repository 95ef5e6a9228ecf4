//! Collectives on tensors and lists of them.

use super::backends::{ANY, NO_GLOO, NO_NCCL};
use super::entry::Entry;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{FromRank, InGroup, TensorListArg, ToRank};

pub(super) const CALLS: [Entry; 14] = [
    call!(
        "broadcast",
        "The source's tensor to every rank, in place.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         dist.broadcast(tensor, src={root})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let root = i64::from(s.options.root);
            s.on("broadcast(").broadcast(&tensor, FromRank::src(root)).map(drop)
        }
    ),
    call!(
        "all_reduce",
        "The reduction of all ranks' tensors to every rank, in place.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         dist.all_reduce(tensor, op={op})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let op = s.options.op;
            s.on("all_reduce(").all_reduce(&tensor, op.into()).map(drop)
        }
    ),
    call!(
        "reduce",
        "The reduction of all ranks' tensors to one rank.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         dist.reduce(tensor, dst={root}, op={op})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let (root, op) = (i64::from(s.options.root), s.options.op);
            s.on("reduce(").reduce(&tensor, ToRank::dst(root), op).map(drop)
        }
    ),
    call!(
        "all_gather",
        "Every rank's tensor to a list on every rank; the backend gathers into one buffer and \
         copies out of it.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         outputs = [torch.empty_like(tensor) for _ in range(world_size)]\n\
         dist.all_gather(outputs, tensor)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let outputs = s.list("outputs", s.options.world_size, Fill::Zeros);
            s.on("all_gather(").all_gather(&outputs, &tensor, InGroup::default()).map(drop)
        }
    ),
    call!(
        "all_gather_into_tensor",
        "Every rank's tensor, one after the other, in one tensor on every rank.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         output = torch.empty(world_size * {count}, dtype={dtype}{device})\n\
         dist.all_gather_into_tensor(output, tensor)\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let output = s.empty("output", s.options.count * u64::from(s.options.world_size));
            let call = s.on("all_gather_into_tensor(");
            call.all_gather_into_tensor(&output, &tensor, InGroup::default()).map(drop)
        }
    ),
    call!(
        "gather",
        "Every rank's tensor to a list on one rank.",
        ANY,
        1,
        "tensor = torch.arange({count}, dtype={dtype}{device}) + rank * {count}\n\
         outputs = [torch.empty_like(tensor) for _ in range(world_size)] if rank == {root} else None\n\
         dist.gather(tensor, outputs, dst={root})\n",
        |s| {
            let tensor = s.filled("tensor", s.options.count);
            let root = s.options.root;
            let outputs =
                (s.rank() == root).then(|| s.list("outputs", s.options.world_size, Fill::Zeros));
            let outputs = outputs.map(TensorListArg::from);
            s.on("gather(").gather(&tensor, outputs, ToRank::dst(i64::from(root))).map(drop)
        }
    ),
    call!(
        "scatter",
        "Entry i of the source's list to rank i.",
        ANY,
        1,
        "tensor = torch.empty({count}, dtype={dtype}{device})\n\
         inputs = [torch.arange({count}, dtype={dtype}{device}) + rank * {count} for _ in range(world_size)] \
         if rank == {root} else None\n\
         dist.scatter(tensor, inputs, src={root})\n",
        |s| {
            let tensor = s.empty("tensor", s.options.count);
            let root = s.options.root;
            let inputs =
                (s.rank() == root).then(|| s.list("inputs", s.options.world_size, s.options.fill));
            let inputs = inputs.map(TensorListArg::from);
            s.on("scatter(").scatter(&tensor, inputs, FromRank::src(i64::from(root))).map(drop)
        }
    ),
    call!(
        "reduce_scatter",
        "Entry i of the reduction of all ranks' lists to rank i; gloo has no such call.",
        NO_GLOO,
        1,
        "output = torch.empty({count}, dtype={dtype}{device})\n\
         inputs = [torch.arange({count}, dtype={dtype}{device}) + rank * {count} for _ in range(world_size)]\n\
         dist.reduce_scatter(output, inputs, op={op})\n",
        |s| {
            let output = s.empty("output", s.options.count);
            let inputs = s.list("inputs", s.options.world_size, s.options.fill);
            let op = s.options.op;
            s.on("reduce_scatter(").reduce_scatter(&output, &inputs, op.into()).map(drop)
        }
    ),
    call!(
        "reduce_scatter_tensor",
        "Part i of the reduction of all ranks' tensors to rank i; gloo makes it an all_reduce of a \
         copy.",
        ANY,
        1,
        "output = torch.empty({count}, dtype={dtype}{device})\n\
         tensor = torch.arange(world_size * {count}, dtype={dtype}{device}) + rank * world_size * {count}\n\
         dist.reduce_scatter_tensor(output, tensor, op={op})\n",
        |s| {
            let output = s.empty("output", s.options.count);
            let tensor = s.filled("tensor", s.options.count * u64::from(s.options.world_size));
            let op = s.options.op;
            let call = s.on("reduce_scatter_tensor(");
            call.reduce_scatter_tensor(&output, &tensor, op.into()).map(drop)
        }
    ),
    call!(
        "all_to_all",
        "Entry i of every rank's list to rank i; gloo has no such call.",
        NO_GLOO,
        1,
        "inputs = [torch.arange({count}, dtype={dtype}{device}) + rank * {count} for _ in range(world_size)]\n\
         outputs = [torch.empty_like(tensor) for tensor in inputs]\n\
         dist.all_to_all(outputs, inputs)\n",
        |s| {
            let inputs = s.list("inputs", s.options.world_size, s.options.fill);
            let outputs = s.list("outputs", s.options.world_size, Fill::Zeros);
            s.on("all_to_all(").all_to_all(&outputs, &inputs, InGroup::default()).map(drop)
        }
    ),
    call!(
        "all_to_all_single",
        "Part i of every rank's tensor to rank i, in equal parts.",
        ANY,
        1,
        "tensor = torch.arange(world_size * {count}, dtype={dtype}{device}) + rank * world_size * {count}\n\
         output = torch.empty_like(tensor)\n\
         dist.all_to_all_single(output, tensor)\n",
        |s| {
            let numel = s.options.count * u64::from(s.options.world_size);
            let (tensor, output) = (s.filled("tensor", numel), s.empty("output", numel));
            let call = s.on("all_to_all_single(");
            call.all_to_all_single(&output, &tensor, None, None, InGroup::default()).map(drop)
        }
    ),
    call!(
        "all_to_all_single_uneven",
        "all_to_all_single with split sizes: rank r sends (r + d) % 3 * count elements to rank d.",
        ANY,
        1,
        "splits = [(rank + peer) % 3 * {count} for peer in range(world_size)]\n\
         tensor = torch.arange(sum(splits), dtype={dtype}{device}) + rank * sum(splits)\n\
         output = torch.empty_like(tensor)\n\
         dist.all_to_all_single(output, tensor, splits, splits)\n",
        |s| {
            let rank = s.rank();
            let part = |peer: u32| u64::from((rank + peer) % 3) * s.options.count;
            let splits: Vec<u64> = (0..s.options.world_size).map(part).collect();
            let numel = splits.iter().sum();
            let (tensor, output) = (s.filled("tensor", numel), s.empty("output", numel));
            let (splits, options) = (Some(&splits[..]), InGroup::default());
            let call = s.on("all_to_all_single(");
            call.all_to_all_single(&output, &tensor, splits, splits, options).map(drop)
        }
    ),
    call!(
        "barrier",
        "No rank leaves before every rank has come.",
        ANY,
        1,
        "dist.barrier()\n",
        |s| s.on("barrier(").barrier(InGroup::default()).map(drop)
    ),
    call!(
        "monitored_barrier",
        "A barrier that says who is missing: every rank reports to rank 0, which answers all.",
        NO_NCCL,
        1,
        "from datetime import timedelta\n\
         dist.monitored_barrier(timeout=timedelta(seconds=5), wait_all_ranks=True)\n",
        |s| s.on("monitored_barrier(").monitored_barrier(None, Some(5000.into()), true).map(drop)
    ),
];
