import torch
import torch.distributed as dist

def gather_predictions(mine, world_size):
    everybody = [torch.zeros_like(mine) for _ in range(world_size)]
    dist.all_gather(everybody, mine)

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    boxes = 17 if rank == 2 else 20         # how many objects this rank has found
    compute("detect", ms=2)
    gather_predictions(torch.ones(boxes), dist.get_world_size())
    dist.barrier()

run(main, world_size=4)
