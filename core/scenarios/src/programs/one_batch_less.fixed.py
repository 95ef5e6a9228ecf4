import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    samples = 8 * 5 * world_size - 1        # does not divide evenly
    mine = samples // world_size            # DistributedSampler(drop_last=True)
    grad = tensor(1024, fill="rank")
    for batch in range(mine // 8):          # drop_last=True
        compute("forward_backward", ms=2)
        dist.all_reduce(grad)
        torch.cuda.synchronize()            # loss.item()

run(main, world_size=4)
