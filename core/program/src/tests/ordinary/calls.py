import os, argparse, itertools
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
class Counter:
    def __init__(self):
        self._n = 0
    @property
    def n(self):
        return self._n
dist.init_process_group("gloo")
r = dist.get_rank()
c = Counter()
c._n = 4
print(c.n)
setattr(c, "k", 5)
print(c.k, getattr(c, "k"), hasattr(c, "zz"), getattr(c, "zz", None))
for a, b in itertools.combinations([1, 2, 3], 2):
    print(a, b)
print(list(itertools.product([1, 2], [3, 4])), list(itertools.chain([1], [2])))
x = torch.linspace(0, 1, 5)
print(x.shape)
print(dist.group.WORLD is dist.GroupMember.WORLD)
print(len(list(itertools.permutations([1,2,3]))), list(itertools.islice([1,2,3,4], 2)), list(itertools.islice(range(10), 2, 4)))
dist.destroy_process_group()
