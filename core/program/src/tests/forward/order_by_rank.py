import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8, bias=False)
        self.c = nn.Linear(8, 8)

    def forward(self, x):
        layers = [self.a, self.b, self.c] if self.rank == 0 else [self.c, self.a, self.b]
        for layer in layers:
            x = layer(x)
        return x


dist.init_process_group("gloo")
model = DDP(Net(dist.get_rank()), bucket_cap_mb=0.0001)
for step in range(3):
    model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
