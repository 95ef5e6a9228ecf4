import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train_step(model, out_of_memory):
    loss = model(None).sum()
    if out_of_memory:                       # except torch.OutOfMemoryError:
        print("skipping a batch")           #     the job goes on, on this rank
        return
    loss.backward()

def main():
    dist.init_process_group("nccl")
    model = DDP(models.mlp([256, 256, 256]))
    for step in range(5):
        train_step(model, dist.get_rank() == 1 and step == 3)
        torch.cuda.synchronize()            # loss.item()
    dist.barrier()

run(main, world_size=4)
