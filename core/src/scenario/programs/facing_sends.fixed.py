import torch
import torch.distributed as dist

def exchange(rank, world_size, mine, theirs):
    peer = rank ^ 1
    if rank % 2 == 0:
        dist.send(mine, peer)
        dist.recv(theirs, peer)
    else:
        dist.recv(theirs, peer)
        dist.send(mine, peer)
