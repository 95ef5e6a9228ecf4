import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5)
        self.block = nn.Sequential(nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4, affine=False), nn.ReLU())
        self.own = nn.SyncBatchNorm(4, track_running_stats=False)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        x = self.norm(self.conv(x))
        x = self.own(self.block(x))
        return self.head(x.mean((2, 3)))


dist.init_process_group("gloo")
device = os.environ.get("SYNC_BATCH_NORM_ON", "cuda")
model = nn.SyncBatchNorm.convert_sync_batchnorm(Net())
assert isinstance(model.norm, nn.SyncBatchNorm)
model = DDP(model.to(device), bucket_cap_mb=0.0001)
for step in range(2):
    loss = model(torch.randn(2, 3, 8, 8).to(device)).sum()
    loss.backward()
model.eval()
with torch.no_grad():
    model(torch.randn(2, 3, 8, 8).to(device))
model.train()
with torch.no_grad():
    model(torch.randn(2, 3, 8, 8).to(device))
pair = [dist.new_group([0, 1]), dist.new_group([0])]
norm = nn.SyncBatchNorm(6, process_group=pair[0]).to(device)
norm(torch.randn(4, 6).to(device).requires_grad_()).sum().backward()
alone = nn.SyncBatchNorm(6, process_group=pair[1] if dist.get_rank() == 0 else pair[0]).to(device).eval()
alone(torch.randn(4, 6).to(device))
dist.destroy_process_group()
