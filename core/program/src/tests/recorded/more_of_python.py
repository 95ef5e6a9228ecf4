import torch
import torch.distributed as dist
from collections import defaultdict, Counter
class A:
    def hi(self):
        return "A"
class B(A):
    def hi(self):
        return "B" + super().hi()
class C(A):
    def hi(self):
        return "C" + super().hi()
class D(B, C):
    def hi(self):
        return "D" + super().hi()
print(D().hi())
class Base:
    def __init__(self):
        print("Base")
class L(Base):
    def __init__(self):
        print("L")
        super().__init__()
class M(Base):
    def __init__(self):
        print("M")
        super().__init__()
class N(L, M):
    def __init__(self):
        print("N")
        super().__init__()
N()
d = defaultdict(int)
d["a"] += 1
print(d)
e = defaultdict(list)
e["x"].append(3)
print(e, dict(e))
print(Counter("abca"))
print(Counter())
print(defaultdict(lambda: 3)["k"])
print(f"{d}", str(d), repr(d), [d])
torch.set_grad_enabled(False)
print(torch.is_grad_enabled())
with torch.enable_grad():
    print(torch.is_grad_enabled())
    torch.set_grad_enabled(False)
    print(torch.is_grad_enabled())
print(torch.is_grad_enabled())
torch.set_grad_enabled(True)
print(torch.is_grad_enabled())
with torch.set_grad_enabled(False):
    print(torch.is_grad_enabled())
print(torch.is_grad_enabled())
from torch.utils.data import DataLoader, TensorDataset, BatchSampler, SequentialSampler
ds = TensorDataset(torch.arange(10.0).reshape(10, 1))
for (x,) in DataLoader(ds, batch_sampler=BatchSampler(SequentialSampler(ds), batch_size=4, drop_last=False)):
    print(x.shape)
print(len(DataLoader(ds, batch_sampler=BatchSampler(SequentialSampler(ds), 4, True))))
ok = True
n = 3
print(ok + n, ok + ok, n * ok, n - ok, -ok, ok / 2, 2 - ok * 3 + n // 2, 1e-3 * 2)
