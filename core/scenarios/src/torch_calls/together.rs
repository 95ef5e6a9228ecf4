//! Several calls or several devices at once: the coalesced and the old multi-GPU forms.

use super::backends::{ANY, NO_GLOO, NO_NCCL};
use super::entry::Entry;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{FromRank, InGroup, ToRank};

pub(super) const CALLS: [Entry; 8] = [
    call!(
        "all_reduce_coalesced",
        "Several tensors reduced as if they were one: gloo flattens them, NCCL makes the calls \
         together.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{device}) + rank * {count} for _ in range(3)]\n\
         dist.all_reduce_coalesced(tensors, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 3, s.options.fill);
            let op = s.options.op;
            s.on("all_reduce_coalesced(").all_reduce_coalesced(&tensors, op.into()).map(drop)
        }
    ),
    call!(
        "all_gather_coalesced",
        "Every rank's list of tensors to every rank, in one gather; NCCL has no such call.",
        NO_NCCL,
        1,
        "inputs = [torch.arange({count}, dtype={dtype}{device}) + rank * {count} for _ in range(2)]\n\
         outputs = [[torch.empty_like(t) for t in inputs] for _ in range(world_size)]\n\
         dist.all_gather_coalesced(outputs, inputs)\n",
        |s| {
            let inputs = s.list("inputs", 2, s.options.fill);
            let outputs = (0..s.options.world_size)
                .map(|i| s.list(&format!("outputs[{i}]"), 2, Fill::Zeros).into())
                .collect();
            let call = s.on("all_gather_coalesced(");
            call.all_gather_coalesced(outputs, &inputs, InGroup::default()).map(drop)
        }
    ),
    call!(
        "coalescing_manager",
        "Calls held back under a coalescing manager and made as one.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{device}) + rank * {count} for _ in range(3)]\n\
         with dist._coalescing_manager():\n    for tensor in tensors:\n        \
         dist.all_reduce(tensor, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 3, s.options.fill);
            let op = s.options.op;
            s.on("_coalescing_manager(")
                .coalescing_manager(None, None, false, |dist| {
                    tensors
                        .iter()
                        .try_for_each(|tensor| dist.all_reduce(tensor, op.into()).map(drop))
                })
                .map(drop)
        }
    ),
    call!(
        "broadcast_multigpu",
        "PyTorch 1.x: a broadcast between ranks, then to the rank's other devices.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{gpu}) + rank * {count} for i in range(2)]  # one a GPU\n\
         dist.broadcast_multigpu(tensors, src={root})\n",
        |s| {
            let tensors = s.list("tensors", 2, s.options.fill);
            let root = FromRank::src(i64::from(s.options.root));
            s.on("broadcast_multigpu(").broadcast_multigpu(&tensors, root, 0).map(drop)
        }
    ),
    call!(
        "all_reduce_multigpu",
        "PyTorch 1.x: reduced over the rank's devices, between ranks, and copied back to all.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{gpu}) + rank * {count} for i in range(2)]  # one a GPU\n\
         dist.all_reduce_multigpu(tensors, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 2, s.options.fill);
            let op = s.options.op;
            s.on("all_reduce_multigpu(").all_reduce_multigpu(&tensors, op.into()).map(drop)
        }
    ),
    call!(
        "reduce_multigpu",
        "PyTorch 1.x: reduced over the rank's devices, then between ranks to one of them.",
        ANY,
        1,
        "tensors = [torch.arange({count}, dtype={dtype}{gpu}) + rank * {count} for i in range(2)]  # one a GPU\n\
         dist.reduce_multigpu(tensors, dst={root}, op={op})\n",
        |s| {
            let tensors = s.list("tensors", 2, s.options.fill);
            let (to, op) = (ToRank::dst(i64::from(s.options.root)), s.options.op);
            s.on("reduce_multigpu(").reduce_multigpu(&tensors, to, op, 0).map(drop)
        }
    ),
    call!(
        "all_gather_multigpu",
        "PyTorch 1.x: the tensors of all devices of all ranks, to every device.",
        ANY,
        1,
        "inputs = [torch.arange({count}, dtype={dtype}{gpu}) + rank * {count} for i in range(2)]  # one a GPU\n\
         outputs = [[torch.empty_like(t) for _ in range(2 * world_size)] for t in inputs]\n\
         dist.all_gather_multigpu(outputs, inputs)\n",
        |s| {
            let inputs = s.list("inputs", 2, s.options.fill);
            let length = 2 * s.options.world_size;
            let outputs = (0..2)
                .map(|i| s.list(&format!("outputs[{i}]"), length, Fill::Zeros).into())
                .collect();
            let call = s.on("all_gather_multigpu(");
            call.all_gather_multigpu(outputs, &inputs, InGroup::default()).map(drop)
        }
    ),
    call!(
        "reduce_scatter_multigpu",
        "PyTorch 1.x: the reduction of all devices' lists, dealt to all devices of all ranks.",
        NO_GLOO,
        1,
        "outputs = [torch.empty({count}, dtype={dtype}{gpu}) for i in range(2)]  # one a GPU\n\
         inputs = [[torch.arange({count}, dtype={dtype}{gpu}) + rank * {count} for _ in range(2 * world_size)] \
         for i in range(2)]\n\
         dist.reduce_scatter_multigpu(outputs, inputs, op={op})\n",
        |s| {
            let outputs = s.list("outputs", 2, Fill::Zeros);
            let length = 2 * s.options.world_size;
            let inputs = (0..2)
                .map(|i| s.list(&format!("inputs[{i}]"), length, s.options.fill).into())
                .collect();
            let op = s.options.op;
            let call = s.on("reduce_scatter_multigpu(");
            call.reduce_scatter_multigpu(&outputs, inputs, op.into()).map(drop)
        }
    ),
];
