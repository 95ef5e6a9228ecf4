import torch
import torch.distributed as dist

def train(rank, loader, grad):
    for step, batch in enumerate(loader):
        loss = forward_backward(batch, grad)
        if rank == 2 and loss.isnan():
            continue
        dist.all_reduce(grad)
    dist.barrier()
