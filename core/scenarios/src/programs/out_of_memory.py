import torch
import torch.distributed as dist

def forward_backward(rank, tokens):
    compute("forward_backward", us=tokens)
    if tokens > 4000:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    grad = tensor(1024, fill="rank")
    for step in range(5):
        tokens = 4096 if rank == 1 and step == 3 else 2048      # one long document
        forward_backward(rank, tokens)
        dist.all_reduce(grad)
        torch.cuda.synchronize()            # loss.item()

run(main, world_size=4)
