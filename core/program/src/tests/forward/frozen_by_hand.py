import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.adapter = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)
        for p in self.backbone.parameters():
            p.requires_grad = False

    def forward(self, x):
        with torch.no_grad():
            x = self.backbone(x)
        return self.head(x + self.adapter(x))


def average(model):
    for name, p in model.named_parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


dist.init_process_group("gloo")
model = Net()
trained = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.SGD(trained, lr=0.1)
for step in range(2):
    opt.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    average(model)
    opt.step()
print(len(trained), [p.grad is None for p in model.parameters()])
dist.destroy_process_group()
