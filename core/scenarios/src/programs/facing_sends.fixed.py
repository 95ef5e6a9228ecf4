import torch
import torch.distributed as dist

def exchange(rank, peer, mine, theirs):
    if rank % 2 == 0:
        dist.send(mine, peer)
        dist.recv(theirs, peer)
    else:
        dist.recv(theirs, peer)
        dist.send(mine, peer)

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    peer = rank ^ 1
    if peer < dist.get_world_size():
        mine = tensor(64, fill="rank")
        theirs = torch.zeros(64)
        exchange(rank, peer, mine, theirs)

run(main, world_size=4)
