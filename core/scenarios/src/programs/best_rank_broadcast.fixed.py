import torch
import torch.distributed as dist

def best_rank(rank):
    scores = tensor(dist.get_world_size(), fill="rank")
    dist.all_reduce(scores, op=dist.ReduceOp.MAX)
    return 1                                # scores.argmax(), the same on every rank

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    weights = tensor(2048, fill="rank")
    compute("evaluate", ms=2)
    dist.broadcast(weights, src=best_rank(rank))
    torch.cuda.synchronize()

run(main, world_size=4)
