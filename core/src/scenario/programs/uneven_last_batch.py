import torch
import torch.distributed as dist

def evaluate(rank, batches):
    for batch in batches:
        scores = model(batch)
        dist.all_reduce(scores)
    dist.barrier()
