import torch.distributed as dist; dist.init_process_group("gloo")
import torch
from torch.utils.data import Dataset, DataLoader, Subset
class Own(Dataset):
    def __init__(self, n):
        self.data = torch.arange(n * 2).reshape(n, 2).float()
        self.labels = [i % 3 for i in range(n)]
    def __len__(self):
        return len(self.data)
    def __getitem__(self, i):
        return self.data[i], self.labels[i]
class Wrapped(Dataset):
    def __init__(self, inner, indices):
        self.inner, self.indices = inner, indices
    def __len__(self):
        return len(self.indices)
    def __getitem__(self, idx):
        x, y = self.inner[self.indices[idx]]
        return x, y
ds = Own(10)
x, y = ds[3]
print(x.shape, y)
w = Wrapped(ds, [1, 3, 5, 7])
print(len(w), w[2][1])
sub = Subset(ds, [0, 4, 8])
print(len(sub), sub[1][1])
for x, y in DataLoader(w, batch_size=2):
    print(x.shape, y.shape)
for x, y in DataLoader(sub, batch_size=2):
    print(x.shape, y.shape)
class Table:
    def __init__(self):
        self.d = {}
    def __setitem__(self, k, v):
        self.d[k] = v
    def __getitem__(self, k):
        return self.d[k]
    def __delitem__(self, k):
        del self.d[k]
t = Table()
t["a"] = 3
t["a"] += 2
print(t["a"])
del t["a"]
try:
    print(t["a"])
except KeyError as e:
    print("no", e)
