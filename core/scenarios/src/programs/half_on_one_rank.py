import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    # Rank 1's environment has another default: it trains in half precision.
    dtype = torch.float16 if rank == 1 else torch.float32
    grad = torch.ones(1024, dtype=dtype)
    for step in range(2):
        compute("forward_backward", ms=2)
        dist.all_reduce(grad)
        torch.cuda.synchronize()            # loss.item()

run(main, world_size=4)
