import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Stage(nn.Module):
    def __init__(self, first, last):
        super().__init__()
        self.first, self.last = first, last
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        if not self.first:
            x = torch.empty(4, 8)
            dist.recv(x, src=dist.get_rank() - 1)
            x.requires_grad_()
        out = self.layers(x)
        if not self.last:
            dist.send(out.detach(), dst=dist.get_rank() + 1)
        return x, out


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
stage = Stage(rank == 0, rank == world - 1)
opt = torch.optim.SGD(stage.parameters(), lr=0.1)
for step in range(2):
    opt.zero_grad()
    x, out = stage(torch.randn(4, 8))
    if stage.last:
        out.sum().backward()
    else:
        grad = torch.empty_like(out)
        dist.recv(grad, src=rank + 1)
        out.backward(grad)
    if not stage.first:
        dist.send(x.grad, dst=rank - 1)
    opt.step()
dist.destroy_process_group()
