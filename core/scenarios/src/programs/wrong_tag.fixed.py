import torch
import torch.distributed as dist

WEIGHTS, STATS = 1, 2

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = tensor(256, fill="rank")
    if rank == 0:
        for worker in range(1, dist.get_world_size()):
            dist.send(weights, worker, tag=WEIGHTS)
    else:
        tag = WEIGHTS
        dist.recv(weights, 0, tag=tag)
    dist.barrier()

run(main, world_size=4)
