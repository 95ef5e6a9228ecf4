import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.net2 = nn.Linear(10, 5)
        self.name = "net"
    def forward(self, x):
        return self.net2(self.encode(x))
    def encode(self, x):
        return torch.relu(self.net1(x))
    def describe(self):
        return f"net of {self.name}"
    def configure(self, lr):
        return torch.optim.SGD(self.parameters(), lr=lr)
    def num_params(self):
        return sum(p.numel() for p in self.parameters())
dist.init_process_group("gloo")
m = Net()
print(m.describe(), m.num_params())
ddp = DDP(m)
print(ddp.module.describe(), ddp.device_ids, ddp.module.name)
opt = ddp.module.configure(0.1)
h = ddp.module.encode(torch.randn(3, 10))
print(h.shape)
out = ddp(torch.randn(3, 10))
out.sum().backward()
opt.step()
opt.zero_grad()
print(ddp.module.num_params())
dist.destroy_process_group()
