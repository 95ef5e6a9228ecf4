import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    dtype = torch.float32                   # from the config that all ranks read
    grad = torch.ones(1024, dtype=dtype)
    for step in range(2):
        compute("forward_backward", ms=2)
        dist.all_reduce(grad)
        torch.cuda.synchronize()            # loss.item()

run(main, world_size=4)
