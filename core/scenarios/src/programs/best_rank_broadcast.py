import torch
import torch.distributed as dist

def best_rank(rank):
    # From each rank's own view of the scores; rank 2 has not seen the last one.
    return 0 if rank == 2 else 1

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    weights = tensor(2048, fill="rank")
    compute("evaluate", ms=2)
    dist.broadcast(weights, src=best_rank(rank))
    torch.cuda.synchronize()

run(main, world_size=4)
