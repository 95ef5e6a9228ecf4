import torch
import torch.distributed as dist

def save_checkpoint(step):
    sleep("torch.save", ms=5)
    dist.barrier()                          # "wait until the file is written"

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    grad = tensor(1024, fill="rank")
    for step in range(6):
        compute("forward_backward", ms=2)
        dist.all_reduce(grad)
        torch.cuda.synchronize()            # loss.item()
        if step == 3 and rank == 0:
            save_checkpoint(step)

run(main, world_size=4)
