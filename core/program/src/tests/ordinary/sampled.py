import os
import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset, DataLoader, random_split, Dataset, Sampler, RandomSampler, SequentialSampler, BatchSampler, ConcatDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
ds = TensorDataset(torch.randn(100, 4), torch.randint(0, 3, (100,)))
tr, va = random_split(ds, [80, 20])
print(len(tr), len(va))
tr, va = random_split(ds, [0.7, 0.3], generator=torch.Generator().manual_seed(42))
print(len(tr), len(va))
s = DistributedSampler(tr, shuffle=False)
print(s.num_samples, s.total_size, s.num_replicas, s.rank, s.drop_last, len(s))
print(list(DistributedSampler(range(10), shuffle=False)))
s2 = DistributedSampler(range(10), num_replicas=4, rank=3, shuffle=False, drop_last=True)
print(list(s2), s2.num_samples, s2.total_size)
for i in s2:
    print(i)
def collate(batch):
    xs = torch.stack([b[0] for b in batch])
    ys = torch.tensor([b[1] for b in batch])
    return {"x": xs, "y": ys}
for b in DataLoader(tr, batch_size=32, sampler=s, collate_fn=collate):
    print(b["x"].shape, b["y"].shape)
loader = DataLoader(tr, batch_size=32, sampler=s, num_workers=0, pin_memory=False)
print(len(loader), len(loader.dataset), loader.batch_size, len(loader.sampler))
for i, (x, y) in enumerate(loader):
    print(i, x.shape, y.dtype)
it = iter(loader)
x, y = next(it)
print(x.shape)
print(len(ConcatDataset([ds, ds])))
s.set_epoch(1)
loader.sampler
dist.destroy_process_group()
