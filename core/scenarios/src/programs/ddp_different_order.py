import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def build(rank):
    # Layers are made in a loop over a Python set of names: its order differs between processes.
    sizes = [64, 32, 128] if rank == 1 else [64, 128, 32]
    return models.mlp(sizes)

def main():
    dist.init_process_group("nccl")
    model = DDP(build(dist.get_rank()))
    for batch in range(3):
        model(None).sum().backward()
        torch.cuda.synchronize()            # loss.item()

run(main, world_size=4)
