"""Small training jobs of as many kinds as PyTorch has, for `record_check.py`.

    torchrun --nproc-per-node 4 record_cases.py ddp_static_graph

Each function is one job on gloo; its number of ranks stands in `CASES`.
"""

import contextlib
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

CASES = {}


def case(ranks):
    def add(function):
        CASES[function.__name__] = ranks, function
        return function

    return add


def mlp(width=32, depth=3):
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 4))


def batch(rank, step, rows=6, width=32):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(rows, width, generator=generator), torch.randint(0, 4, (rows,), generator=generator)


def train(model, optimizer, rank, steps=3, width=32):
    for step in range(steps):
        values, labels = batch(rank, step, width=width)
        loss = F.cross_entropy(model(values), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, values):
        return values + self.down(F.gelu(self.up(self.norm(values))))


class Net(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.head = nn.ModuleList(Block(width) for _ in range(depth)), nn.Linear(width, 4)

    def forward(self, values):
        for block in self.blocks:
            values = block(values)
        return self.head(values)


# DDP ------------------------------------------------------------------------------------------------------------


@case(3)
def ddp_static_graph(rank, size):
    """Activation checkpoints under a static graph; small buckets."""
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Net):
        def forward(self, values):
            for block in self.blocks:
                values = checkpoint(block, values, use_reentrant=False)
            return self.head(values)

    model = DDP(Checkpointed(), static_graph=True, bucket_cap_mb=0.01, gradient_as_bucket_view=True)
    train(model, torch.optim.AdamW(model.parameters()), rank, steps=4)


@case(4)
def ddp_find_unused(rank, size):
    """Another head each step and on each rank, found as unused."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.trunk, self.heads = nn.Linear(32, 32), nn.ModuleList(nn.Linear(32, 4) for _ in range(3))
            self.turn = 0

        def forward(self, values):
            self.turn += 1
            return self.heads[(self.turn + dist.get_rank()) % 3](self.trunk(values))

    model = DDP(Heads(), find_unused_parameters=True)
    train(model, torch.optim.SGD(model.parameters(), 0.1), rank, steps=4)


@case(3)
def ddp_join(rank, size):
    """Ranks with different numbers of batches, joined; the last to join has the final state."""
    model = DDP(mlp())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        for step in range(2 + rank):
            values, labels = batch(rank, step)
            F.cross_entropy(model(values), labels).backward()
            optimizer.step()
            optimizer.zero_grad()


@case(2)
def ddp_hooks(rank, size):
    """A communication hook in half precision, no_sync, and buffers of batch norm."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)))
    model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        values, labels = batch(rank, step)
        if step % 2 == 0:
            with model.no_sync():
                F.cross_entropy(model(values), labels).backward()
        else:
            F.cross_entropy(model(values), labels).backward()
            optimizer.step()
            optimizer.zero_grad()


@case(4)
def ddp_groups(rank, size):
    """DDP in two halves of the world, parameters of two types, a clipped and logged norm, early stopping."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = halves[rank // 2]
    torch.manual_seed(rank // 2)
    trunk = nn.Linear(32, 16)
    head = nn.Linear(16, 4).double()

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head = trunk, head

        def forward(self, values):
            return self.head(self.trunk(values).double())

    model = DDP(Mixed(), process_group=mine)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(6):
        values, labels = batch(rank, step)
        loss = F.cross_entropy(model(values), labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        logged = torch.stack([loss.detach(), norm.detach().double()])
        dist.all_reduce(logged, group=mine)
        dist.all_reduce(logged)
        stop = torch.tensor(int(logged[0] < 11.0 or step == 3))
        dist.broadcast(stop, src=0)
        if stop:
            break


@case(4)
def ddp_post_local_sgd(rank, size):
    """Model averaging after local steps (post-local SGD)."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    model = DDP(mlp())
    node, _ = dist.new_subgroups(2)
    model.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=node, start_localSGD_iter=2), post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), PeriodicModelAverager(period=2, warmup_steps=2)
    )
    train(model, optimizer, rank, steps=5)


@case(3)
def zero_overlapping(rank, size):
    """ZeRO's sharded optimizer with its parameters in one buffer, joined, state gathered on rank 0."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(mlp())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, lr=0.01, parameters_as_bucket_view=True
    )
    with Join([model, optimizer]):
        for step in range(3 + (rank == 1)):
            values, labels = batch(rank, step)
            F.cross_entropy(model(values), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        optimizer.state_dict()


# Sharded data parallel ------------------------------------------------------------------------------------------


@case(4)
def fsdp2_mixed(rank, size):
    """FSDP2 with mixed precision, gradient accumulation, prefetching, and a clipped norm of DTensors."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = Net()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    for first, second in zip(model.blocks, list(model.blocks)[1:]):
        first.set_modules_to_forward_prefetch([second])
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        model.set_requires_gradient_sync(step % 2 == 1)
        values, labels = batch(rank, step)
        F.cross_entropy(model(values).float(), labels).backward()
        if step % 2 == 1:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


@case(4)
def hsdp(rank, size):
    """Hybrid sharding on a 2-D mesh, with the state dict gathered."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = Net()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, torch.optim.SGD(model.parameters(), 0.1), rank)
    get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


@case(4)
def checkpoint_of_fsdp(rank, size):
    """A distributed checkpoint of an FSDP2 model and its optimizer, saved and loaded into another."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def made():
        model = Net()
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = made()
    train(model, optimizer, rank, steps=1)
    names = [None]
    if rank == 0:
        names[0] = tempfile.mkdtemp()
    dist.broadcast_object_list(names, src=0)
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.save(states, checkpoint_id=names[0])
    other, other_optimizer = made()
    states = dict(zip(("model", "optimizer"), get_state_dict(other, other_optimizer)))
    dcp.load(states, checkpoint_id=names[0])
    set_state_dict(other, other_optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    train(other, other_optimizer, rank, steps=1)


# Tensor, sequence and more parallel -----------------------------------------------------------------------------


@case(4)
def tensor_parallel_sequence(rank, size):
    """Tensor parallel with sequence parallel norms and a loss over sharded classes."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module,
    )

    mesh = init_device_mesh("cpu", (size,))
    model = Net()
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "norm": SequenceParallel(sequence_dim=0),
            "up": ColwiseParallel(input_layouts=Shard(0)),
            "down": RowwiseParallel(output_layouts=Shard(0)),
        })
    parallelize_module(model, mesh, {
        "blocks.0": PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Shard(0), use_local_output=True
        ),
        "head": ColwiseParallel(input_layouts=Shard(0), output_layouts=Shard(-1), use_local_output=False),
    })
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        values, labels = batch(0, step, rows=8)
        with loss_parallel():
            F.cross_entropy(model(values), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


@case(8)
def mesh_of_three(rank, size):
    """Replicas, shards and tensor parallel on a 2 × 2 × 2 mesh."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicate", "shard", "tp"))
    model = Net()
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["replicate", "shard"])
    fully_shard(model, mesh=mesh["replicate", "shard"])
    data_rank = mesh["replicate"].get_local_rank() * 2 + mesh["shard"].get_local_rank()
    train(model, torch.optim.Adam(model.parameters()), data_rank)


@case(4)
def dtensors(rank, size):
    """DTensors made, redistributed and multiplied on a 2-D mesh."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
    torch.manual_seed(0)
    left = distribute_tensor(torch.randn(8, 12), mesh, [Shard(0), Shard(1)])
    right = distribute_tensor(torch.randn(12, 8), mesh, [Replicate(), Shard(0)])
    product = left @ right
    product = product.redistribute(mesh, [Shard(0), Replicate()])
    product = product.redistribute(mesh, [Replicate(), Shard(1)])
    ones = DTensor.from_local(torch.ones(4, 4), mesh, [Partial(), Shard(0)], run_check=False)
    assert ones.full_tensor().shape == (8, 4)
    assert product.full_tensor().shape == (8, 8)


@case(4)
def experts(rank, size):
    """A mixture of experts: split counts and tokens in uneven all_to_all, auxiliary loss reduced."""

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values, received, sent):
            ctx.splits = sent, received
            out = values.new_empty(sum(received), values.shape[1])
            dist.all_to_all_single(out, values.contiguous(), received, sent)
            return out

        @staticmethod
        def backward(ctx, grad):
            sent, received = ctx.splits
            out = grad.new_empty(sum(sent), grad.shape[1])
            dist.all_to_all_single(out, grad.contiguous(), sent, received)
            return out, None, None

    torch.manual_seed(rank)
    expert, router = nn.Linear(32, 32), nn.Linear(32, size)
    optimizer = torch.optim.SGD([*expert.parameters(), *router.parameters()], 0.1)
    for step in range(3):
        values, _ = batch(rank, step, rows=10 + rank)
        chosen = router(values).argmax(1)
        sent = torch.bincount(chosen, minlength=size)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        sent, received = sent.tolist(), received.tolist()
        tokens = Exchange.apply(values[chosen.argsort()], received, sent)
        out = Exchange.apply(expert(tokens), sent, received)
        (out.square().mean() + router(values).square().mean()).backward()
        for parameter in router.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        optimizer.zero_grad()


# Pipelines ------------------------------------------------------------------------------------------------------


def pipelined(rank, size, schedule, stages_of_rank, chunks, steps=2, group=None, wrap=None):
    from torch.distributed.pipelining import PipelineStage

    stages_in_all = size * len(stages_of_rank)
    stages = []
    for index in stages_of_rank:
        torch.manual_seed(index)
        last = index == stages_in_all - 1
        module = nn.Sequential(Block(), nn.Linear(32, 4)) if last else nn.Sequential(Block())
        module = wrap(module) if wrap else module
        stages.append(PipelineStage(module, index, stages_in_all, torch.device("cpu"), group=group))
    made = schedule(stages if len(stages) > 1 else stages[0], n_microbatches=chunks, loss_fn=F.cross_entropy)
    parameters = [parameter for stage in stages for parameter in stage.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1)
    for step in range(steps):
        values, labels = batch(0, step, rows=2 * chunks)
        arguments = (values,) if 0 in stages_of_rank else ()
        losses = []
        if stages_in_all - 1 in stages_of_rank:
            made.step(*arguments, target=labels, losses=losses)
        else:
            made.step(*arguments)
        optimizer.step()
        optimizer.zero_grad()


@case(3)
def pipeline_1f1b(rank, size):
    from torch.distributed.pipelining import Schedule1F1B

    pipelined(rank, size, Schedule1F1B, [rank], chunks=6)


@case(2)
def pipeline_interleaved(rank, size):
    """Two stages a rank, interleaved."""
    from torch.distributed.pipelining import ScheduleInterleaved1F1B

    pipelined(rank, size, ScheduleInterleaved1F1B, [rank, rank + size], chunks=4)


@case(4)
def pipeline_zero_bubble(rank, size):
    """Two stages a rank, weights' gradients apart."""
    from torch.distributed.pipelining import ScheduleInterleavedZeroBubble

    pipelined(rank, size, ScheduleInterleavedZeroBubble, [rank, rank + size], chunks=8)


@case(4)
def pipeline_and_fsdp(rank, size):
    """1F1B over two stages, each sharded over two ranks."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import Schedule1F1B

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    pipelined(mesh["pp"].get_local_rank(), 2, Schedule1F1B, [mesh["pp"].get_local_rank()], chunks=4,
              group=mesh["pp"].get_group(), wrap=lambda module: fully_shard(module, mesh=mesh["dp"]))


# Calls by hand --------------------------------------------------------------------------------------------------


@case(4)
def objects_by_hand(rank, size):
    """Every collective of objects, in a group whose ranks are not the world's; each decides what follows."""
    group = dist.new_group([3, 1, 2])
    if rank:
        told = [None] * 3
        dist.all_gather_object(told, {"rank": rank, "rows": list(range(rank))}, group=group)
        rows = sum(len(one["rows"]) for one in told)
        gathered = [None] * 3 if rank == 2 else None
        dist.gather_object({"rows": rows}, gathered, dst=2, group=group)
        handed = [None]
        dist.scatter_object_list(handed, [["a"] * rows, "b", {"c": rank}] if rank == 1 else None, src=1, group=group)
        plan = [handed[0], rank] if rank == 3 else [None, None]
        dist.broadcast_object_list(plan, src=3, group=group)
        for _ in range(len(plan[0])):
            dist.all_reduce(torch.ones(rows), group=group)
    if rank < 2:
        note = [{"lines": 3}] if rank == 0 else [None]
        if rank == 0:
            dist.send_object_list(note, dst=1)
        else:
            dist.recv_object_list(note, src=0)
            lines = [torch.ones(line + 1) for line in range(note[0]["lines"])]
            for work in [dist.isend(line, 0, tag=tag) for tag, line in enumerate(lines)]:
                work.wait()
        if rank == 0:
            for line in range(3):
                dist.recv(torch.empty(line + 1), 1, tag=line)
    dist.barrier()


@case(4)
def functional(rank, size):
    """Functional collectives, coalesced calls, works and futures in flight, all the kinds of reduction."""
    import torch.distributed._functional_collectives as funcol

    everyone = dist.group.WORLD
    values = torch.arange(8.0) + rank
    summed = funcol.all_reduce(values, "sum", everyone)
    gathered = funcol.all_gather_tensor(values, 0, everyone)
    part = funcol.reduce_scatter_tensor(gathered, "sum", 0, everyone)
    assert torch.equal(part, values * size) or rank, (part, summed)
    moved = funcol.all_to_all_single(torch.arange(4.0) + rank, None, None, everyone)
    assert moved.tolist() == [float(rank + peer) for peer in range(4)]
    funcol.broadcast(values, 2, everyone).sum().item()
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        dist.all_reduce(values.clone(), op=op)
    dist.all_reduce(torch.tensor([rank], dtype=torch.int32), op=dist.ReduceOp.BOR)
    works = [dist.all_reduce(torch.ones(3 + one), async_op=True) for one in range(3)]
    works[1].get_future().then(lambda done: done.value()[0].sum()).wait()
    for work in works:
        work.wait()
    outputs = [torch.empty(2) for _ in range(size)]
    dist.all_gather(outputs, torch.full((2,), float(rank)))
    dist.reduce(torch.ones(5), dst=3)
    dist.gather(torch.ones(2), outputs if rank == 1 else None, dst=1)
    dist.scatter(torch.empty(2), outputs if rank == 0 else None, src=0)
    dist.all_gather_into_tensor(torch.empty(8), torch.ones(2))
    dist.monitored_barrier()


@case(4)
def peers_by_hand(rank, size):
    """Batches of sends and receives in a ring, a receive from any source, a store's counter that picks a leader."""
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    shown, kept = torch.empty(4), torch.full((4,), float(rank))
    for _ in range(size - 1):
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, kept, ahead), dist.P2POp(dist.irecv, shown, behind)])
        for work in works:
            work.wait()
        kept, shown = shown.clone(), shown
    if rank == 0:
        seen = torch.empty(1, dtype=torch.int64)
        for _ in range(size - 1):
            dist.recv(seen)
    else:
        dist.send(torch.tensor([rank]), 0)
    store = dist.distributed_c10d._get_default_store()
    leader = torch.tensor(0)
    if store.add("arrived", 1) == size:
        store.set("last", str(rank))
    store.wait(["last"])
    for _ in range(3):
        dist.all_reduce(leader)


@case(2)
def gradients_by_hand(rank, size):
    """Averages gradients without DDP, in half precision, flattened, with a scaler that looks for infinities."""
    from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

    model = mlp()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        values, labels = batch(rank, step)
        F.cross_entropy(model(values), labels).backward()
        if rank == 1 and step == 2:
            model[0].weight.grad[0, 0] = float("inf")
        grads = [parameter.grad.half() for parameter in model.parameters()]
        bad = torch.tensor(float(any(not grad.isfinite().all() for grad in grads)))
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad:
            optimizer.zero_grad()
            continue
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        for parameter, grad in zip(model.parameters(), _unflatten_dense_tensors(flat / size, grads)):
            parameter.grad.copy_(grad)
        optimizer.step()
        optimizer.zero_grad()


@case(4)
def ddp_compressed(rank, size):
    """PowerSGD with a warm start, of two ranks and of one."""
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    for matrix_rank in (2, 1):
        model = DDP(mlp(64))  # one bucket: gloo mixes up what the hooks of several call from its threads
        model.register_comm_hook(PowerSGDState(None, matrix_rank, start_powerSGD_iter=2), powerSGD_hook)
        train(model, torch.optim.SGD(model.parameters(), 0.1), rank, steps=4, width=64)


@case(4)
def ddp_sparse(rank, size):
    """Sparse gradients of an embedding, with other words on each rank."""
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.EmbeddingBag(100, 16, sparse=True, mode="sum"), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        words = torch.randint(0, 100, (4, 6 + rank), generator=torch.Generator().manual_seed(10 * rank + step))
        model(words).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@case(8)
def averaged_by_levels(rank, size):
    """Parameters averaged among neighbours often, and among all seldom."""
    import collections

    from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

    model = mlp()
    averager = HierarchicalModelAverager(period_group_size_dict=collections.OrderedDict([(2, 2), (4, 4), (8, 8)]))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(9):
        values, labels = batch(rank, step)
        F.cross_entropy(model(values), labels).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        optimizer.zero_grad()


@case(4)
def fsdp1(rank, size):
    """FSDP1: layers wrapped, mixed precision, no_sync, a clipped norm, hybrid shards, state dicts of each kind."""
    import functools

    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, MixedPrecision
    from torch.distributed.fsdp import ShardingStrategy, StateDictType
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    cpu = torch.device("cpu")
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.HYBRID_SHARD):
        mesh = init_device_mesh("cpu", (2, 2)) if strategy is ShardingStrategy.HYBRID_SHARD else None
        precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), sharding_strategy=strategy, device_mesh=mesh,
                     mixed_precision=precision, device_id=cpu, use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(3):
            values, labels = batch(rank, step)
            with model.no_sync() if step == 0 else contextlib.nullcontext():
                F.cross_entropy(model(values), labels).backward()
            if step:
                model.clip_grad_norm_(1.0)
                optimizer.step()
                optimizer.zero_grad()
        if mesh is None:
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
                model.state_dict()
            FSDP.optim_state_dict(model, optimizer)
            with FSDP.summon_full_params(model):
                pass


@case(2)
def checkpoint_in_background(rank, size):
    """Checkpoints that are written while training goes on, and a full one that rank 0 reads and hands out."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint import state_dict as states
    from torch.distributed.fsdp import fully_shard

    model = Net()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    apart = dist.new_group(backend="gloo")
    paths = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(paths, src=0)
    for step in range(2):
        train(model, optimizer, rank, steps=1)
        own, of_optimizer = states.get_state_dict(model, optimizer)
        saved = checkpoint.async_save({"model": own, "optimizer": of_optimizer},
                                      checkpoint_id=os.path.join(paths[0], str(step)), process_group=apart)
        saved.result()
    whole = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    full, of_optimizer = states.get_state_dict(model, optimizer, options=whole)
    whole = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(model, full, options=whole)
    states.set_optimizer_state_dict(model, optimizer, of_optimizer, options=whole)


@case(4)
def differentiable_calls(rank, size):
    """torch.distributed.nn's calls, whose backward passes call as well; Ulysses' exchange of heads and sequence."""
    import torch.distributed.nn.functional as through

    weight = torch.full((4, 4), 1.0 + rank, requires_grad=True)
    loss = through.all_reduce(weight * 2).sum()
    loss = loss + sum(part.sum() * (at + 1) for at, part in enumerate(through.all_gather(weight)))
    loss = loss + through.reduce_scatter(torch.empty(1, 4), [row[None] for row in weight]).sum()
    parts = through.all_to_all([torch.empty(1, 4) for _ in range(size)], [row[None] for row in weight])
    loss = loss + (torch.cat(tuple(parts)) * weight).sum()
    loss = loss + through.all_to_all_single(torch.empty(4, 4), weight).pow(2).sum()
    loss = loss + through.broadcast(weight, src=1).sum() + through.reduce(weight, dst=2).sum()
    loss = loss + sum(part.sum() for part in through.gather(weight, dst=0))
    loss = loss + through.scatter([weight * at for at in range(size)], src=3).sum()
    loss.backward()
    heads = through.all_to_all_single(torch.empty(size, 2, 3), weight.new_ones(size, 2, 3).requires_grad_())
    heads.sum().backward()
    dist.all_reduce(weight.grad)


@case(4)
def pipeline_in_a_v(rank, size):
    """Two stages a rank along a V: zero bubble V and DualPipeV; then GPipe and looped breadth first."""
    from torch.distributed.pipelining import schedules

    for name, stages in (("ScheduleZBVZeroBubble", "v"), ("ScheduleDualPipeV", "v"), ("ScheduleGPipe", "one"),
                         ("ScheduleLoopedBFS", "loop")):
        run_pipeline(rank, size, getattr(schedules, name), stages)


def run_pipeline(rank, size, schedule, shape):
    from torch.distributed.pipelining import PipelineStage

    indices = {"v": [rank, 2 * size - 1 - rank], "one": [rank], "loop": [rank, rank + size]}[shape]
    count = size * len(indices)
    modules = [nn.Linear(16, 16) for _ in indices]
    stages = [PipelineStage(one, index, count, torch.device("cpu")) for one, index in zip(modules, indices)]
    run = schedule(stages if len(stages) > 1 else stages[0], n_microbatches=8, loss_fn=F.mse_loss)
    for step in range(2):
        values = torch.randn(16, 16, generator=torch.Generator().manual_seed(step))
        first = [values] if 0 in indices else []
        if count - 1 in indices:
            run.step(*first, target=values, losses=[])
        else:
            run.step(*first)


@case(4)
def groups_of_all_kinds(rank, size):
    """Groups by enumeration, of neighbours, made by their members alone, flattened meshes; a second world."""
    pairs, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    near, _ = dist.new_subgroups(2)
    mine = torch.tensor([float(rank)])
    for group in (pairs, near):
        dist.all_reduce(mine, group=group)
        dist.broadcast(mine, group_src=1, group=group)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    both = mesh["dp", "tp"]._flatten("both")
    dist.all_reduce(mine, group=both.get_group(), op=dist.ReduceOp.MAX)
    from torch.distributed.device_mesh import DeviceMesh

    again = DeviceMesh.from_group(mesh.get_group("tp"), "cpu")
    dist.all_gather_into_tensor(torch.empty(2), mine, group=again.get_group())
    dist.monitored_barrier()
    dist.group.WORLD.allreduce(mine).wait()
    complex_one = torch.complex(mine, mine)
    dist.all_reduce(complex_one)
    dist.destroy_process_group(pairs)
    if rank != 2:
        alone = dist.new_group([0, 1, 3], use_local_synchronization=True)
        dist.reduce(mine, dst=3, group=alone)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    dist.init_process_group("gloo")
    dist.all_reduce(mine)


@case(3)
def uneven_samples(rank, size):
    """Data that does not divide by the ranks: padded and dropped samples, predictions gathered with padding."""
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    data = TensorDataset(torch.arange(20.0)[:, None].expand(20, 32).contiguous(), torch.arange(20) % 4)
    model = DDP(mlp())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for drop_last in (True, False):
        sampler = DistributedSampler(data, shuffle=True, drop_last=drop_last)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for values, labels in DataLoader(data, 2, sampler=sampler, num_workers=1 if epoch else 0):
                F.cross_entropy(model(values), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
    # Every rank evaluates its stride of the data without padding: 7, 7 and 6 predictions.
    own = model.module(data.tensors[0][rank::size]).argmax(1)
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(counts, torch.tensor([len(own)]))
    longest = int(max(counts))
    padded = F.pad(own, (0, longest - len(own)), value=-1)
    everybodys = torch.empty(size * longest, dtype=own.dtype)
    dist.all_gather_single(everybodys, padded) if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor(everybodys, padded)
    for _ in range(int((everybodys >= 0).sum()) - 19):
        dist.barrier()


@case(2)
def replicated_and_delayed(rank, size):
    """`replicate`, a parameter that DDP leaves to the script, mixed precision in DDP, a mesh instead of a group."""
    from torch.distributed._composable import replicate

    model = replicate(Net())
    train(model, torch.optim.SGD(model.parameters(), 0.1), rank, steps=2)
    for options in ({"device_mesh": init_device_mesh("cpu", (size,))}, {"init_sync": False}, {"gradient_as_bucket_view": True}):
        model = DDP(mlp(), **options)
        train(model, torch.optim.SGD(model.parameters(), 0.1), rank, steps=2)
    model = mlp()
    DDP._set_params_and_buffers_to_ignore_for_model(model, ["0.weight"])
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        values, labels = batch(rank, step)
        F.cross_entropy(model(values), labels).backward()
        dist.all_reduce(model.module[0].weight.grad)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    CASES[sys.argv[1]][1](int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.destroy_process_group()
