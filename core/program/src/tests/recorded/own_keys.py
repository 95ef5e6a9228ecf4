import torch
import torch.distributed as dist
class Shard:
    def __init__(self, r):
        self.r = r
    def __eq__(self, o):
        return self.r == o.r
s = Shard(1)
try:
    {s: 1}
except TypeError as e:
    print(e)
print(s == Shard(1), s in [Shard(1)])
class K:
    def __init__(self, r):
        self.r = r
    def __eq__(self, o):
        return self.r == o.r
    def __hash__(self):
        return hash(self.r)
d = {K(1): 0}
d[K(1)] = 3
d[K(2)] = 4
print(len(d), len(set([K(1), K(1), K(3)])), {K(i % 2): i for i in range(4)}[K(1)])
print([K(1), K(2)] == [K(1), K(2)], [K(1), K(2)].index(K(2)), [K(1)].count(K(1)))
