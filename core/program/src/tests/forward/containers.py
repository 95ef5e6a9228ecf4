import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.net = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.net(self.norm(x))


class Net(nn.Module):
    def __init__(self, width=8, depth=3):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 2), "b": nn.Linear(width, 3)})
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.last = nn.ModuleList()
        for _ in range(2):
            self.last.append(nn.Linear(width, width))

    def forward(self, x):
        for block in reversed(self.blocks):
            x = block(x)
        for number, layer in enumerate(self.last):
            x = layer(x) if number == 0 else x + layer(x)
        return {name: head(x) for name, head in self.heads.items()}


dist.init_process_group("gloo")
model = DDP(Net(), bucket_cap_mb=0.0005)
for step in range(3):
    out = model(torch.randn(4, 8))
    (out["a"].sum() + out["b"].mean()).backward()
print(sum(p.numel() for p in model.parameters()), [name for name, _ in model.module.named_children()])
dist.destroy_process_group()
