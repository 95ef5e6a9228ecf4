import torch
import torch.distributed as dist
from torch.utils.data import Dataset, DataLoader, DistributedSampler
class Toy(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        return self.data[index]
class Dicts(Dataset):
    def __len__(self): return 10
    def __getitem__(self, i):
        return {"input_ids": torch.zeros(5, dtype=torch.long), "label": i, "w": 0.5}
class One(Dataset):
    def __init__(self): super().__init__()
    def __len__(self): return 7
    def __getitem__(self, i): return torch.zeros(3)
class Partition(object):
    def __init__(self, data, index):
        self.data, self.index = data, index
    def __len__(self):
        return len(self.index)
    def __getitem__(self, index):
        return self.data[self.index[index]]
dist.init_process_group("gloo")
dl = DataLoader(Toy(32), batch_size=4, pin_memory=False, shuffle=False, sampler=DistributedSampler(Toy(32)))
b_sz = len(next(iter(dl))[0])
print(b_sz, len(dl), len(dl.dataset))
for source, targets in dl:
    pass
print(source.shape, targets.shape, source.dtype)
for batch in DataLoader(Dicts(), batch_size=3):
    print(sorted(batch.keys()), batch["input_ids"].shape, batch["label"].dtype, batch["w"].dtype, batch["label"].shape)
for x in DataLoader(One(), batch_size=4, drop_last=True): print(x.shape)
it = iter(DataLoader(One(), batch_size=4))
n = 0
while True:
    try:
        x = next(it)
        n += 1
    except StopIteration:
        break
print(n, next(iter([]), "none"))
print(next(torch.nn.Linear(2, 2).parameters()).shape)
whole = torch.utils.data.TensorDataset(torch.randn(10, 3), torch.zeros(10, dtype=torch.long))
part = Partition(whole, [i for i in range(10) if i % 2 == dist.get_rank()])
for x, y in DataLoader(part, batch_size=3):
    print(x.shape, y.shape, y.dtype)
print(len(whole[0]), whole[-1][0].shape)
dist.destroy_process_group()
