import torch
import torch.distributed as dist

def step(rank, world_size, activation, weight):
    tp = dist.new_group(range(world_size - 1), group_desc="tp")
    pp = dist.new_group(range(1, world_size), group_desc="pp")
    dist.barrier()
    if rank == world_size - 2:
        dist.all_reduce(weight, group=pp)
        dist.all_reduce(activation, group=tp)
    else:
        if rank < world_size - 1:
            dist.all_reduce(activation, group=tp)
        if rank > 0:
            dist.all_reduce(weight, group=pp)

def main():
    dist.init_process_group("gloo")
    activation = tensor(64, fill="rank")
    weight = tensor(64, fill="iota")
    step(dist.get_rank(), dist.get_world_size(), activation, weight)

run(main, world_size=4)
