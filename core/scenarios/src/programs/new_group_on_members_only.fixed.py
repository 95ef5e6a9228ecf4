import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    loss = torch.ones(1)
    loggers = dist.new_group([0, 1])        # every rank of the job calls it
    if rank < 2:
        dist.all_reduce(loss, group=loggers)
    trainers = dist.new_group(range(world_size))
    dist.all_reduce(loss, group=trainers)
    torch.cuda.synchronize()

run(main, world_size=5)
