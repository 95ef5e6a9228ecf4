import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.layers = nn.ModuleList()
        for i in range(3):
            self.layers.append(nn.Linear(d, d))
        self.bn = nn.BatchNorm1d(d)
        self.head = nn.Linear(d, 2)
        self._init_weights()
    def _init_weights(self):
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)
    def forward(self, x):
        for l in self.layers:
            x = torch.relu(l(x))
        return self.head(self.bn(x))
    def count(self):
        return sum(p.numel() for p in self.parameters())
    def describe(self, tag="x"):
        return f"{tag}: {self.count()}"
dist.init_process_group("gloo")
net = Net(8)
ddp = DDP(net)
out = ddp(torch.randn(4, 8))
out.sum().backward()
print(len(list(net.buffers())), [tuple(b.shape) for b in net.buffers()])
total = 0
for p in ddp.parameters():
    g = p.grad.norm()
    total = total + g ** 2
print(g.shape)
print(sum(p.numel() for p in net.parameters()))
inner = ddp.module
print(inner.head.weight.shape, inner.layers[1].bias.shape, inner.bn.running_mean.shape)
print(inner.head.weight.grad.shape, hasattr(inner, "tail"), hasattr(inner.head, "bias"))
weights = [torch.empty_like(inner.head.weight) for _ in range(2)]
dist.all_gather(weights, inner.head.weight.data)
print(len(weights), weights[1].shape)
dist.destroy_process_group()
