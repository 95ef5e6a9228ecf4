"""A small mixture-of-experts job on 16 ranks: data parallel over 4 replicas, expert parallel over 4 ranks each.

The mistake of this recording: a rank whose loss is not finite skips the step, on its own.
Run with PyTorch 2.15 over gloo; `record.py` starts the ranks and writes their Flight Recorders.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

DIM, STEPS, BATCH = 64, 24, 8


class Experts(nn.Module):
    """One expert a rank; tokens travel to their expert and back."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.expert = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, tokens):
        there = torch.empty_like(tokens)
        dist.all_to_all_single(there, tokens.detach(), group=self.group)
        out = self.expert(there.requires_grad_())
        back = torch.empty_like(out)
        dist.all_to_all_single(back, out.detach(), group=self.group)
        return tokens + back + 0.0 * out.sum()


def average(parameters, group):
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= dist.get_world_size(group)


def train(model, experts, batches, mesh):
    optimizer = torch.optim.AdamW(list(model.parameters()) + list(experts.parameters()), lr=1e-3)
    data, expert = mesh["data"].get_group(), mesh["expert"].get_group()
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        hidden = experts(model[0](x))
        loss = F.mse_loss(model[1](hidden), y)
        if not torch.isfinite(loss):
            continue  # skips this step's gradients, on this rank alone
        loss.backward()
        average(experts.parameters(), data)
        average(model.parameters(), data)
        optimizer.step()
        if step % 4 == 3:
            dist.all_reduce(loss.detach(), op=dist.ReduceOp.SUM)


def main():
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("data", "expert"))
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(DIM, DIM), nn.Linear(DIM, 1))
    experts = Experts(mesh["expert"].get_group())
    batches = [(torch.randn(BATCH, DIM), torch.randn(BATCH, 1)) for _ in range(STEPS)]
    if rank == 10:
        batches[17][1][3] = float("nan")  # one bad label in one shard
    train(model, experts, batches, mesh)
