import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(8, 8)
        self.a = nn.Linear(8, 8, bias=False)
        self.norm = nn.LayerNorm(8)
        self.b = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        left = self.a(x) * self.scale
        right = self.b(self.norm(x))
        again = self.a(right)
        return self.c(left + right + again)


dist.init_process_group("gloo")
model = DDP(Net(), bucket_cap_mb=0.0001)
for step in range(3):
    model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
