import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        self.first = nn.Linear(8, 16)
        self.extra = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.first(x))
        if self.rank == 0:
            x = x + self.extra(x)
        return self.head(x)


dist.init_process_group("gloo")
model = DDP(Net(dist.get_rank()), find_unused_parameters=True, bucket_cap_mb=0.0005)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    opt.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    opt.step()
dist.barrier()
dist.destroy_process_group()
