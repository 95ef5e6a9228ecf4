import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        mean = x.detach().mean(0)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG if False else dist.ReduceOp.SUM)
        parts = [torch.empty_like(mean) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mean)
        x = x - torch.stack(parts).mean(0)
        dist.broadcast(mean, src=0)
        return self.second(x)


dist.init_process_group("gloo")
model = DDP(Net())
for step in range(2):
    model(torch.randn(4, 8)).sum().backward()
with torch.no_grad():
    model.module(torch.randn(2, 8))
dist.destroy_process_group()
