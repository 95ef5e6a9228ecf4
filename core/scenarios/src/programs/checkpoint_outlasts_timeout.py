import torch
import torch.distributed as dist

def save_checkpoint():
    if dist.get_rank() == 0:
        sleep("torch.save", s=1200)         # 100 GB to a busy file system
    dist.barrier()

def main():
    dist.init_process_group("nccl", timeout=minutes(10))
    grad = tensor(1024, fill="rank")
    for step in range(3):
        compute("forward_backward", ms=2)
        dist.all_reduce(grad)
        torch.cuda.synchronize()            # loss.item()
    save_checkpoint()

run(main, world_size=4)
