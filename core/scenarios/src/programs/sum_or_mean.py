import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    grad = tensor(1024, fill="rank")
    # Rank 2's node still runs last week's image.
    op = dist.ReduceOp.SUM if dist.get_rank() == 2 else dist.ReduceOp.AVG
    for step in range(2):
        compute("forward_backward", ms=2)
        dist.all_reduce(grad, op=op)
        torch.cuda.synchronize()            # loss.item()

run(main, world_size=4)
