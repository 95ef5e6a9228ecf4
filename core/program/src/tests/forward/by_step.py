import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.even = nn.Linear(8, 2)
        self.odd = nn.Linear(8, 2)

    def forward(self, x, step):
        x = self.body(x).relu()
        head = self.even if step % 2 == 0 else self.odd
        return head(x)


dist.init_process_group("gloo")
model = DDP(Net(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step % 2 == 0:
        with model.no_sync():
            model(torch.randn(4, 8), step).sum().backward()
        continue
    model(torch.randn(4, 8), step=step).sum().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
