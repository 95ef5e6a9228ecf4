import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Both:
    logits: torch.Tensor
    value: torch.Tensor


class Named(NamedTuple):
    logits: torch.Tensor
    value: torch.Tensor




class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.body = nn.Linear(8, 8)
        self.policy = nn.Linear(8, 4)
        self.value = nn.Linear(8, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        logits, value = self.policy(x), self.value(x)
        if self.kind == "dict":
            return {"logits": logits, "more": [value]}
        if self.kind == "tuple":
            return logits, (value,)
        if self.kind == "dataclass":
            return Both(logits, value)
        return Named(logits=logits, value=value)


def taken(kind, out):
    if kind == "dict":
        return out["logits"], out["more"][0]
    if kind == "tuple":
        logits, (value,) = out
        return logits, value
    return out.logits, out.value


dist.init_process_group("gloo")
for kind in ["dict", "tuple", "dataclass", "named"]:
    model = DDP(Net(kind), find_unused_parameters=True, bucket_cap_mb=0.0002)
    for step in range(2):
        logits, value = taken(kind, model(torch.randn(4, 8)))
        (F.cross_entropy(logits, torch.zeros(4, dtype=torch.long)) + value.mean()).backward()
dist.destroy_process_group()
