"""Jobs whose ranks play few roles, or seem to, for `record_roles_check.py`.

    torchrun --nproc-per-node 8 record_roles_cases.py fsdp_tp
"""

import os
import sys

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


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, values):
        return values + self.down(F.gelu(self.up(self.norm(values))))


def blocks(depth=2):
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(depth)))


def train(model, seed, steps=2):
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * seed + step)
        loss = model(torch.randn(4, 32, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


@case(8)
def ddp(rank, size):
    """Rank 0 alone saves and is waited for; every rank's loss is averaged, its name gathered."""
    loss = train(DDP(blocks()), rank)
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    names = [None] * size
    dist.all_gather_object(names, f"rank {rank}")
    assert len(names) == size
    dist.barrier()


@case(8)
def hand_written(rank, size):
    """Gradients averaged by the script; rank 0 gathers, so that its calls are its own."""
    model = blocks()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        model(torch.randn(4, 32)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    loss = torch.ones(1)
    dist.gather(loss, [torch.ones(1) for _ in range(size)] if rank == 0 else None, dst=0)


@case(8)
def hidden_rank(rank, size):
    """One rank in the middle makes no all_reduce, which only a comparison of the rank tells."""
    loss = train(DDP(blocks()), rank)
    if rank != 5:
        dist.all_reduce(loss)


@case(8)
def odd_ranks(rank, size):
    """Every other rank makes a call more."""
    train(DDP(blocks()), rank)
    odd = dist.new_group(list(range(1, size, 2)))
    if rank % 2 == 1:
        dist.all_reduce(torch.ones(3), group=odd)


@case(8)
def uneven_batches(rank, size):
    """The first ranks have a batch more than the last: the witnesses disagree."""
    with_more = torch.utils.data.DataLoader(range(rank, 19, size), batch_size=1)
    model = DDP(blocks())
    for _ in with_more:
        with model.no_sync():
            model(torch.randn(4, 32)).sum().backward()
        dist.all_reduce(torch.ones(1))


@case(8)
def no_roles(rank, size):
    """Ranks in a ring: no gradients, no role is known."""
    values = torch.full((4,), float(rank))
    received = torch.empty(4)
    sent = dist.isend(values, (rank + 1) % size)
    dist.recv(received, (rank - 1) % size)
    sent.wait()


@case(8)
def fsdp(rank, size):
    from torch.distributed.fsdp import fully_shard

    model = blocks()
    for block in model:
        fully_shard(block)
    fully_shard(model)
    dist.all_reduce(train(model, rank))


@case(8)
def fsdp_tp(rank, size):
    """FSDP2 over 4 replicas of 2 tensor-parallel ranks."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    model = blocks()
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    dist.all_reduce(train(model, mesh["dp"].get_local_rank()))


@case(8)
def hsdp(rank, size):
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (4, size // 4), mesh_dim_names=("replicate", "shard"))
    model = blocks()
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    dist.all_reduce(train(model, rank))


@case(8)
def pipeline(rank, size):
    """DDP over 4 replicas of a pipeline of 2 stages, whose shapes are sent."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    mesh = init_device_mesh("cuda", (size // 2, 2), mesh_dim_names=("dp", "pp"))
    stage_at = mesh["pp"].get_local_rank()
    model = DDP(nn.Linear(32, 32), process_group=mesh["dp"].get_group())
    stage = PipelineStage(model, stage_at, 2, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        schedule.step(torch.randn(4, 32)) if stage_at == 0 else schedule.step(target=torch.randn(4, 32), losses=[])
        optimizer.step()
        optimizer.zero_grad()


@case(8)
def pipeline_by_hand(rank, size):
    """Two stages of 4 replicas; activations are sent in the default group."""
    replicas = size // 2
    groups = [dist.new_group(list(range(stage * replicas, (stage + 1) * replicas))) for stage in range(2)]
    stage, replica = divmod(rank, replicas)
    model = DDP(nn.Linear(32, 32), process_group=groups[stage])
    for _ in range(2):
        if stage == 0:
            out = model(torch.randn(4, 32))
            dist.send(out.detach(), replicas + replica)
            gradient = torch.empty(4, 32)
            dist.recv(gradient, replicas + replica)
            out.backward(gradient)
        else:
            values = torch.empty(4, 32)
            dist.recv(values, replica)
            values.requires_grad_()
            model(values).sum().backward()
            dist.send(values.grad, replica)


@case(8)
def experts(rank, size):
    """Uneven all_to_all over all ranks: what a rank sends is its own affair."""
    torch.manual_seed(0)
    model = DDP(nn.Linear(32, size))
    generator = torch.Generator().manual_seed(rank)
    sent = torch.bincount(model(torch.randn(10, 32, generator=generator)).argmax(1), minlength=size)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sent, received = sent.tolist(), received.tolist()
    dist.all_to_all_single(torch.empty(sum(received), 8), torch.ones(sum(sent), 8), received, sent)


@case(8)
def mesh_of_three(rank, size):
    """Replicas, pipeline stages without a pipeline, and tensor parallel on a 2 × 2 × 2 mesh; a clipped norm."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("dp", "stage", "tp"))
    model = blocks(1 + mesh["stage"].get_local_rank())
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    dist.all_reduce(train(model, mesh["dp"].get_local_rank()), group=mesh["stage"].get_group())


def main():
    dist.init_process_group("nccl")
    CASES[sys.argv[1]][1](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
