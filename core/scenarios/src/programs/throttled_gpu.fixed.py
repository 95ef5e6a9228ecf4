import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    grad = tensor(1 << 20, fill="rank")
    for step in range(12):
        compute("forward_backward", ms=20)
        dist.all_reduce(grad)
        torch.cuda.synchronize()            # loss.item()

# Rank 2's node is drained, and another one has taken its place.
run(main, world_size=4)
