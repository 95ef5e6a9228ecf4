import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.middle = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8, bias=False))
        self.head = nn.Linear(8, 2)

    def run_middle(self, x):
        seen = x.detach().mean()
        dist.all_reduce(seen)
        return self.middle(x)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = checkpoint(self.run_middle, x, use_reentrant=True)
        return self.head(x)


dist.init_process_group("gloo")
model = DDP(Net(), bucket_cap_mb=0.0002)
for step in range(3):
    model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
