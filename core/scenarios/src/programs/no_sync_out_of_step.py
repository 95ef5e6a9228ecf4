import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 2

def main():
    dist.init_process_group("nccl")
    model = DDP(models.mlp([256, 256, 256]))
    # Rank 2 came back from a checkpoint that counts one step more.
    first = 1 if dist.get_rank() == 2 else 0
    for step in range(first, first + 5):
        if step % ACCUMULATE == 0:
            model(None).sum().backward()
        else:
            with model.no_sync():
                model(None).sum().backward()
        torch.cuda.synchronize()            # loss.item()
    dist.barrier()

run(main, world_size=4)
